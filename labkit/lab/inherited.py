"""What a new process inherits under each start method, found by trying, as a table.

Before it: the program in `programs/inheritance.py`, whose children look. After it: notebook 02.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

from labkit.lab.child import output_of
from labkit.lab.programs import inheritance

__all__ = ["Inherited", "inherited"]

_YES, _NO = "yes", "–"
_CELL = (
    "text-align: left; color: inherit; padding: 0.3em 1em; "
    "border-bottom: 1px solid rgba(128, 128, 128, 0.5)"
)


def inherited(limit_s: float = 120) -> Inherited:
    """Start a child under each start method that there is here, and let it look.

    Raises:
        RuntimeError: the program failed; says what it wrote.
        subprocess.TimeoutExpired: it took longer than `limit_s`.
    """
    return Inherited(json.loads(output_of([sys.executable, inheritance.__file__], limit_s)))


@dataclass(frozen=True, repr=False)
class Inherited:
    """What was found. A notebook shows it as a table.

    Attributes:
        found: by start method, and then by what was looked for, whether the child had it.
    """

    found: Mapping[str, Mapping[str, bool]]

    @property
    def rows(self) -> list[list[str]]:
        """The table's cells, the first row being its heading."""
        methods = list(self.found)
        things = next(iter(self.found.values()), {})
        words = {True: _YES, False: _NO}
        return [
            ["the child has", *methods],
            *([thing, *(words[self.found[m][thing]] for m in methods)] for thing in things),
        ]

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(*self.rows, strict=True)]
        lines = (
            "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in self.rows
        )
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        heading, *rows = self.rows
        head = "".join(f'<th scope="col" style="{_CELL}">{escape(cell)}</th>' for cell in heading)
        body = "\n".join(_as_row(thing, cells) for thing, *cells in rows)
        return (
            '<table style="border-collapse: collapse">\n'
            f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
        )


def _as_row(thing: str, cells: list[str]) -> str:
    cells = [f'<td style="{_CELL}">{escape(cell)}</td>' for cell in cells]
    return f'<tr><th scope="row" style="{_CELL}">{escape(thing)}</th>{"".join(cells)}</tr>'
