"""Text on a figure: its measured width, its lines, and the pen that writes it, all in inches.

After it: `plots` and `timeline`. matplotlib would place text for us, but only while it draws; here
the page is laid out around the text first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from labkit.lab import need

need("matplotlib")

from matplotlib.figure import Figure  # noqa: E402 (what is missing is named first)
from matplotlib.font_manager import FontProperties  # noqa: E402
from matplotlib.textpath import text_to_path  # noqa: E402

__all__ = ["DPI", "FONT", "Pen", "Type", "shortened", "width_inches", "wrapped"]

FONT = "DejaVu Sans"
"""Comes with matplotlib, so a figure has the same layout everywhere."""

DPI = 160
"""Pixels an inch in which figures are drawn."""

_POINTS = 72  # an inch
_ROUNDING = 1.03
"""Letters are set at whole pixels, so a line may get a little wider than the font says."""


@dataclass(frozen=True)
class Type:
    """How text is set: its size in points, and from line to line in inches."""

    size: float
    line: float
    weight: Literal["normal", "bold"] = "normal"


@lru_cache(maxsize=4096)
def width_inches(text: str, how: Type) -> float:
    """How wide a line of text is."""
    font = FontProperties(family=FONT, size=how.size, weight=how.weight)
    width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return float(width) / _POINTS * _ROUNDING


def wrapped(text: str, inches: float, how: Type) -> list[str]:
    """The text in lines of at most that width: broken between words, or else within one."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if width_inches(longer, how) <= inches:
            lines[-1] = longer
            continue
        if lines[-1]:
            lines.append("")
        for letter in word:
            if lines[-1] and width_inches(lines[-1] + letter, how) > inches:
                lines.append("")
            lines[-1] += letter
    return lines


def shortened(lines: list[str], most: int) -> list[str]:
    """The first lines, with an ellipsis where some are left out."""
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], lines[most - 1][:-1] + "…"]


class Pen:
    """Writes on a figure, in inches from its top left corner.

    Signs such as $ are written as they are: what users name is no formula.
    """

    def __init__(self, figure: Figure) -> None:
        self._figure = figure

    def write(
        self,
        lines: Iterable[str],
        x: float,
        y: float,
        how: Type,
        colour: str,
        align: Literal["left", "center", "right"] = "left",
        behind: str | None = None,
    ) -> float:
        """Write lines below each other, the first from `y` on; gives the `y` below the last.

        Args:
            lines: what to write.
            x: their left end, middle or right end, as `align` says.
            y: the top of the first.
            how: size, line height and weight.
            colour: of the letters.
            align: on which side the lines are flush.
            behind: colour of a box behind each, which keeps lines of the drawing out of the text.
        """
        width, height = self._figure.get_size_inches()
        box = None if behind is None else {"facecolor": behind, "edgecolor": "none", "pad": 0.5}
        for line in lines:
            self._figure.text(
                x / width,
                1 - (y + how.line / 2) / height,
                line,
                fontsize=how.size,
                fontweight=how.weight,
                family=FONT,
                color=colour,
                horizontalalignment=align,
                verticalalignment="center_baseline",
                bbox=box,
                parse_math=False,
            )
            y += how.line
        return y
