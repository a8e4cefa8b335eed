"""A small table of findings, which a notebook shows, and whose text is the same in every run.

Before it: `shared_memory`, `failures`, `feeding`, `learner`, which find them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from labkit.lab.code_spans import with_code

__all__ = ["Table"]

_CELL = (
    "text-align: left; color: inherit; padding: 0.3em 1em; "
    "border-bottom: 1px solid rgba(128, 128, 128, 0.5)"
)


@dataclass(frozen=True, repr=False)
class Table:
    """A heading, and rows that begin with their name.

    Attributes:
        heading: of each column.
        rows: as many cells each.
    """

    heading: Sequence[str]
    rows: Sequence[Sequence[object]]

    def __str__(self) -> str:
        cells = [[str(cell) for cell in row] for row in (self.heading, *self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = (
            "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in cells
        )
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def row(name: object, cells: Sequence[object]) -> str:
            rest = "".join(f'<td style="{_CELL}">{with_code(str(cell))}</td>' for cell in cells)
            head = f'<th scope="row" style="{_CELL}">{escape(str(name))}</th>'
            return f"<tr>{head}{rest}</tr>"

        head = "".join(
            f'<th scope="col" style="{_CELL}">{escape(cell)}</th>' for cell in self.heading
        )
        body = "\n".join(row(name, cells) for name, *cells in self.rows)
        return (
            '<table style="border-collapse: collapse">\n'
            f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
        )
