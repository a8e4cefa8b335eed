"""Where things stand on the figure of a result, in inches from its top left corner.

Before it: the result. After it: `plots`, which draws in the place that is left for the axes.
"""

from __future__ import annotations

from dataclasses import dataclass

from labkit.lab.explain.wording import machine_words, median_interval, origin_words, settings_words
from labkit.lab.plots.lettering import Pen, Type, shortened, width_inches, wrapped
from labkit.lab.plots.palette import Theme
from labkit.lab.predictions import Prediction
from labkit.lab.results import Result

__all__ = ["AXIS_NAME", "DOTS", "MARGIN", "MEDIAN", "NOTE", "Page", "WIDTH"]

WIDTH = 8.2
MARGIN = 0.15
DOTS = 0.42
"""The middle of a row's dots, below its top."""

TITLE = Type(13, 0.25, "bold")
ORIGIN = Type(9, 0.17)
ELSEWHERE = Type(9, 0.17, "bold")
LABEL = Type(10, 0.2)
MEDIAN = Type(9.5, 0.2, "bold")
NOTE = Type(9, 0.18)
AXIS_NAME = Type(9.5, 0.2)
CAPTION = Type(8.5, 0.17)

_ROW = 0.68
_PREDICTED = 0.18  # more for the row that was thought to be the fastest
_RECORDED = 0.62  # more for what was recorded
_HEADER = 0.32
_AXIS = 0.62
_SIGNS = {"live": "●", "recorded": "■", "simulated": "▲"}


@dataclass(frozen=True)
class Page:
    """The texts beside the axes, broken into lines, and what place that leaves.

    Attributes:
        theme: the page's colours.
        title, origin, caption: lines above and below the axes.
        origin_type: bold where the result is not from this machine.
        recorded: lines that say where the recorded result comes from; none without one.
        labels: of each setting, its lines.
        rows: the top of each setting's row below the axes' top, and the end of the last.
    """

    theme: Theme
    title: list[str]
    origin: list[str]
    origin_type: Type
    recorded: list[str]
    caption: list[str]
    labels: list[list[str]]
    rows: list[float]

    @classmethod
    def of(
        cls,
        result: Result,
        prediction: Prediction | None,
        theme: Theme,
        recorded: Result | None = None,
    ) -> Page:
        """The page for this figure."""
        wide = WIDTH - 2 * MARGIN
        origin_type = ORIGIN if result.origin == "live" else ELSEWHERE
        labels = [shortened(wrapped(label, 2.3, LABEL), 5) for label in result.labels]
        return cls(
            theme=theme,
            title=wrapped(result.question, wide, TITLE),
            origin=wrapped(_origin(result), wide, origin_type),
            origin_type=origin_type,
            recorded=[] if recorded is None else wrapped(_origin(recorded), wide, ELSEWHERE),
            caption=[
                line for text in _caption(result, recorded) for line in wrapped(text, wide, CAPTION)
            ],
            labels=labels,
            rows=_rows(result, prediction, labels, recorded),
        )

    @property
    def body(self) -> float:
        """The axes' height."""
        return self.rows[-1]

    @property
    def left(self) -> float:
        """The axes' left end."""
        return max(width_inches(line, LABEL) for lines in self.labels for line in lines) + 0.32

    @property
    def width(self) -> float:
        """The axes' width."""
        return WIDTH - self.left - 0.3

    @property
    def top(self) -> float:
        """The axes' top."""
        above = TITLE.line * len(self.title) + self.origin_type.line * len(self.origin)
        return MARGIN + above + ELSEWHERE.line * len(self.recorded) + 0.14

    @property
    def height(self) -> float:
        """The figure's height."""
        return self.top + self.body + _AXIS + CAPTION.line * len(self.caption) + MARGIN

    @property
    def axes_place(self) -> tuple[float, float, float, float]:
        """Left, bottom, width, height, as matplotlib wants them: in parts of the figure."""
        bottom = self.height - self.top - self.body
        return (
            self.left / WIDTH,
            bottom / self.height,
            self.width / WIDTH,
            self.body / self.height,
        )

    def behind(self, row: int) -> str:
        """The colour behind a row."""
        return self.theme.paper if row % 2 else self.theme.band

    def recorded_top(self, row: int) -> float:
        """The top of what is recorded, in a row that has it."""
        return self.rows[row + 1] - _RECORDED - 0.06

    def write_margins(self, pen: Pen) -> None:
        """All that stands beside the axes."""
        ink = self.theme.ink
        below = pen.write(self.title, MARGIN, MARGIN, TITLE, ink)
        below = pen.write(self.origin, MARGIN, below, self.origin_type, ink)
        pen.write(self.recorded, MARGIN, below, ELSEWHERE, ink)
        for row, lines in enumerate(self.labels):
            above = max(0.05, DOTS - LABEL.line * len(lines) / 2)
            y = self.top + self.rows[row] + above
            pen.write(lines, self.left - 0.17, y, LABEL, ink, "right")
        y = self.height - MARGIN - CAPTION.line * len(self.caption)
        pen.write(self.caption, MARGIN, y, CAPTION, self.theme.muted)


def _origin(result: Result) -> str:
    return f"{_SIGNS[result.origin]} {origin_words(result)}: {machine_words(result.machine)}"


def _rows(
    result: Result,
    prediction: Prediction | None,
    labels: list[list[str]],
    recorded: Result | None,
) -> list[float]:
    factor = prediction.factor if prediction is not None else None
    rows = [0.0 if factor is None else _HEADER]
    for label, lines in zip(result.labels, labels, strict=True):
        named = prediction is not None and prediction.fastest == label and factor != 1
        height = max(_ROW + _PREDICTED * named, LABEL.line * len(lines) + 0.15)
        rows.append(rows[-1] + height + _RECORDED * (recorded is not None))
    return rows


def _caption(result: Result, recorded: Result | None) -> list[str]:
    """What the signs mean, how the settings differ, and what else must be known."""
    parts = [_signs(result), settings_words(result), *result.notes]
    if recorded is not None:
        parts += [_signs(recorded), *recorded.notes]
    return [text for text in parts if text]


def _signs(result: Result) -> str:
    counts = sorted({len(values) for values in result.repeats.values()})
    n = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    signs = f"{_SIGNS[result.origin]} one repeat (n = {n} a setting). Line: the median."
    covered = [median_interval(v).coverage for v in result.repeats.values() if len(v) > 1]
    if covered and min(covered) >= 0.95:
        signs += " Band: 95% interval of the median."
    elif covered:
        signs += f" Band: smallest to largest, a {min(covered):.1%} interval of the median."
    return signs
