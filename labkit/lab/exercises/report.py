"""What a learner reads: the verdict on an answer, hints and solutions, as text and as HTML.

Before it: `check` and `hint` in the package. Words and signs carry the meaning; colours are the
page's own, light or dark.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any, Literal

from labkit.lab.code_spans import with_code

__all__ = ["Failure", "Hint", "Report"]

Verdict = Literal["right", "not right yet", "not yet done"]
_SIGNS = {"right": "✓", "not right yet": "✗", "not yet done": "…"}
_BORDERS = {"right": "solid", "not right yet": "double", "not yet done": "dashed"}

_MONOSPACE = "; font-family: var(--jp-code-font-family, monospace)"
_FONTS = {"Expected": _MONOSPACE, "Got": _MONOSPACE}


@dataclass(frozen=True)
class Failure:
    """The first case in which an answer was wrong.

    Attributes:
        given: the input, in words or as Python writes it.
        expected: what should have come.
        got: what came.
        thought: leads on, without giving the solution away.
        place: the line of the answer where it happened, if one is known.
    """

    given: str
    expected: str
    got: str
    thought: str
    place: str = ""

    @property
    def rows(self) -> list[tuple[str, str]]:
        """(label, text) of what there is, in the order in which it is read."""
        rows = [("Given", self.given), ("Expected", self.expected), ("Got", self.got)]
        rows += [("Where", self.place), ("Think", self.thought)]
        return [row for row in rows if row[1]]


@dataclass(frozen=True, repr=False)
class Report:
    """The verdict on an answer. A notebook shows it when it is a cell's last value.

    Attributes:
        exercise: its id, such as "03.shard".
        verdict: "right", "not right yet" or "not yet done".
        cases: how many cases were right.
        failure: the first that was not.
        printed: what the answer printed meanwhile.
        remark: besides: what to do next.
    """

    exercise: str
    verdict: Verdict
    cases: int = 0
    failure: Failure | None = None
    printed: str = ""
    remark: str = ""

    @property
    def passed(self) -> bool:
        """Whether the answer is right."""
        return self.verdict == "right"

    @property
    def headline(self) -> str:
        """The verdict in a sentence or two."""
        count = "1 case" if self.cases == 1 else f"{self.cases} cases"
        if self.verdict == "right":
            return f"Right: {count} tried, all as expected."
        if self.verdict == "not right yet":
            return "Not right yet" + (f": {count} right, then this one:" if self.cases else ":")
        return "Not yet done."

    def as_text(self) -> str:
        """The whole report as plain text."""
        lines = [f"{self.exercise}: {self.headline}"]
        for label, text in self.failure.rows if self.failure else []:
            lines.append(f"  {label + ':':<10}" + text.replace("\n", "\n" + " " * 12))
        if self.printed:
            lines.append("  Printed:  " + self.printed.rstrip().replace("\n", "\n" + " " * 12))
        if self.remark:
            lines.append(self.remark)
        return "\n".join(lines)

    __repr__ = as_text

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": self.as_text(), "text/html": self._html()}

    def _html(self) -> str:
        sign = f'<span aria-hidden="true">{_SIGNS[self.verdict]}</span>'
        parts = [f"<p><strong>{sign} {escape(self.headline)}</strong></p>"]
        if self.failure is not None:
            rows = "".join(
                f"<dt><strong>{label}</strong></dt>"
                f'<dd style="white-space: pre-wrap; margin-bottom: 0.4em{_FONTS.get(label, "")}">'
                f"{with_code(text)}</dd>"
                for label, text in self.failure.rows
            )
            parts.append(f"<dl>{rows}</dl>")
        if self.printed:
            parts.append(
                "<details><summary>What your code printed</summary>"
                f'<pre style="max-height: 20em; overflow: auto">{escape(self.printed)}</pre>'
                "</details>"
            )
        if self.remark:
            parts.append(f"<p>{with_code(self.remark)}</p>")
        return (
            f'<section aria-label="Exercise {escape(self.exercise)}: {self.verdict}" '
            f'style="border-left: 5px {_BORDERS[self.verdict]} currentColor; '
            f'padding-left: 1em">{"".join(parts)}</section>'
        )


@dataclass(frozen=True, repr=False)
class Hint:
    """A hint to an exercise."""

    exercise: str
    number: int
    text: str
    remark: str

    def as_text(self) -> str:
        """The hint as plain text."""
        return f"{self.exercise}, hint {self.number}: {self.text}\n{self.remark}"

    __repr__ = as_text

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        html = (
            f"<p><strong>Hint {self.number}.</strong> {with_code(self.text)}</p>"
            f"<p>{with_code(self.remark)}</p>"
        )
        return {"text/plain": self.as_text(), "text/html": html}
