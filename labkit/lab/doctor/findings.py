"""What the doctor found, as text, as HTML for a notebook and as plain data for JSON.

Before it: `doctor`, which finds it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from labkit.lab.doctor.limits import Limits

__all__ = ["Finding", "Findings"]

_WIDTH = 96
_INDENT = 21


@dataclass(frozen=True)
class Finding:
    """One thing about this machine.

    Attributes:
        name: what it is about, such as "cores".
        value: in words.
        raw: the same as plain data, ready for JSON,
        unit: and its unit, where it has one.
        meaning: what it means for loading.
        advice: what can be changed; None if there is nothing to do.
        concern: whether it will get in the way.
    """

    name: str
    value: str
    raw: Any
    unit: str | None
    meaning: str
    advice: str | None = None
    concern: bool = False


@dataclass(frozen=True, repr=False)
class Findings:
    """All that `examine` found. A notebook shows it as a table.

    Attributes:
        findings: in the order in which they are shown.
        limits: the numbers behind some of them.
    """

    findings: tuple[Finding, ...]
    limits: Limits

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __getitem__(self, name: str) -> Finding:
        """The finding of that name.

        Raises:
            KeyError: there is none; says which there are.
        """
        for finding in self.findings:
            if finding.name == name:
                return finding
        known = ", ".join(repr(finding.name) for finding in self.findings)
        raise KeyError(f"no finding {name!r}: there are {known}")

    @property
    def concerns(self) -> list[Finding]:
        """Those that will get in the way."""
        return [finding for finding in self.findings if finding.concern]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "findings": [asdict(finding) for finding in self.findings],
            "limits": asdict(self.limits),
        }

    def __str__(self) -> str:
        return "\n".join([*map(_as_text, self.findings), "", self.summary])

    __repr__ = __str__

    @property
    def summary(self) -> str:
        """Whether anything will get in the way, and what."""
        names = ", ".join(finding.name for finding in self.concerns)
        if not names:
            return "Nothing here will get in the way."
        return f"Look at what is marked with ! ({names})."

    def _repr_html_(self) -> str:
        head = "".join(
            f'<th scope="col" style="{_CELL}">{title}</th>'
            for title in ("What", "Found here", "What it means for loading", "What to change")
        )
        rows = "\n".join(map(_as_row, self.findings))
        return (
            f'<table style="border-collapse: collapse; max-width: 70em">\n'
            f'<caption style="text-align: left; color: inherit; padding: 0.4em 0">'
            f"<strong>This machine, and what it means for loading.</strong> {escape(self.summary)}"
            f"</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>"
        )


def _as_text(finding: Finding) -> str:
    mark = "!" if finding.concern else " "
    lines = [finding.value, finding.meaning]
    if finding.advice is not None:
        lines.append(f"→ {finding.advice}")
    wrapped = [part for line in lines for part in textwrap.wrap(line, _WIDTH - _INDENT)]
    first = f"{mark} {finding.name:{_INDENT - 2}}{wrapped[0]}"
    return "\n".join([first, *(" " * _INDENT + line for line in wrapped[1:])])


# Colours are the page's own, so that it can be read on a light and on a dark one.
_CELL = (
    "text-align: left; vertical-align: top; white-space: normal; color: inherit; "
    "padding: 0.4em 0.8em; border-bottom: 1px solid rgba(128, 128, 128, 0.5)"
)


def _as_row(finding: Finding) -> str:
    mark = "<strong>! </strong>" if finding.concern else ""
    cells = (finding.value, finding.meaning, finding.advice or "nothing")
    return (
        f'<tr><th scope="row" style="{_CELL}">{mark}{escape(finding.name)}</th>'
        + "".join(f'<td style="{_CELL}">{escape(cell)}</td>' for cell in cells)
        + "</tr>"
    )
