"""What stands in a row of a figure: a setting's repeats with their median, and the prediction.

Before it: `page`, which has the places. After it: `plots`.
"""

from __future__ import annotations

from dataclasses import dataclass

from labkit.lab import need
from labkit.lab.explain.wording import ends, median_interval, number
from labkit.lab.plots.axis import tick
from labkit.lab.plots.lettering import Pen, Type, shortened, width_inches, wrapped
from labkit.lab.plots.page import DOTS, MEDIAN, NOTE, Page
from labkit.lab.predictions import Prediction
from labkit.lab.results import Origin, Result

need("matplotlib")

from matplotlib.axes import Axes  # noqa: E402 (what is missing is named first)

__all__ = ["MARKERS", "draw_prediction", "draw_row", "predicted_slowest"]

MARKERS: dict[Origin, str] = {"live": "o", "recorded": "s", "simulated": "^"}
"""The shape of a dot says where it comes from."""

_WHENCE: dict[Origin, str] = {"live": "here", "recorded": "recorded", "simulated": "simulated"}

_HALF = 0.18
"""Inches above and below the dots' middle within which they lie."""


def draw_row(
    axes: Axes, pen: Pen, page: Page, result: Result, row: int, recorded: Result | None = None
) -> None:
    """One setting: what was measured, and below it what was recorded, if anything was."""
    label, top, behind = result.labels[row], page.rows[row], page.behind(row)
    axes.axhspan(top, page.rows[row + 1], color=behind, zorder=0)
    lanes = [_Lane(result, label, top, behind, "" if recorded is None else _whence(result))]
    if recorded is not None and label in recorded.repeats:
        lanes.append(_Lane(recorded, label, page.recorded_top(row), behind, _whence(recorded)))
    for lane in lanes:
        _draw_repeats(axes, pen, page, lane)


def _whence(result: Result) -> str:
    return f"{_WHENCE[result.origin]}: "


@dataclass(frozen=True)
class _Lane:
    """Where the repeats of one setting are drawn."""

    result: Result
    label: str
    top: float  #: in inches below the axes'
    behind: str  #: a colour
    whence: str  #: is written before the median


def _draw_repeats(axes: Axes, pen: Pen, page: Page, lane: _Lane) -> None:
    """Dots, their median and its interval."""
    result, colours, middle = lane.result, page.theme, lane.top + DOTS
    values, median = result.repeats[lane.label], result.median(lane.label)
    if len(values) > 1:
        interval = median_interval(values)
        low, high = middle - _HALF, middle + _HALF
        axes.fill_betweenx([low, high], interval.low, interval.high, color=colours.interval)
        axes.vlines([interval.low, interval.high], low, high, color=colours.data, linewidth=1)
    axes.plot(
        values,
        [middle + 2 * _HALF * _jitter(i) for i in range(len(values))],
        linestyle="none",
        marker=MARKERS[result.origin],
        markersize=6 if len(values) <= 12 else 4.5,
        markerfacecolor=colours.data,
        markeredgecolor=colours.paper,
        markeredgewidth=0.7,
        clip_on=False,
        zorder=3,
        gid=f"{lane.whence}repeats of {lane.label}",
    )
    ends = [middle - _HALF - 0.04, middle + _HALF + 0.04]
    axes.plot([median] * 2, ends, color=colours.ink, linewidth=2.2, clip_on=False, zorder=4)
    words = f"{lane.whence}median {number(median)} {result.unit}"
    at = median, lane.top + 0.03
    _write_at(axes, pen, page, at, words, MEDIAN, colours.ink, lane.behind)


def _jitter(i: int) -> float:
    """Between -0.5 and 0.5, spread evenly for any count: multiples of the golden ratio."""
    return (0.5 + i * 0.6180339887498949) % 1 - 0.5


def draw_prediction(
    axes: Axes, pen: Pen, page: Page, result: Result, prediction: Prediction
) -> None:
    """Which row was thought to be the fastest, and where the slowest would be then."""
    colour, factor = page.theme.prediction, prediction.factor
    least, most = ends(result)
    row = result.labels.index(prediction.fastest)
    if factor != 1:
        at = result.median(prediction.fastest), page.rows[row] + DOTS + _HALF + 0.06
        words = f"◆ you predicted: this is the {least}"
        _write_at(axes, pen, page, at, words, NOTE, colour, page.behind(row))
    slowest = predicted_slowest(result, prediction)
    if factor is None or slowest is None:
        return
    top = page.rows[0] - 0.06
    gap = (page.rows[row], page.rows[row + 1]) if factor != 1 else (page.body, page.body)
    for start, end in ((top, gap[0]), (gap[1], page.body)):
        axes.plot([slowest] * 2, [start, end], color=colour, linestyle="--", zorder=2.5)
    axes.plot([slowest], [top], marker="D", color=colour, markersize=5, clip_on=False)
    words = f"you predicted: the {most} here, {tick(factor)}× the {least}"
    if factor == 1:
        words = "you predicted: all here, no difference"
    _write_at(axes, pen, page, (slowest, 0), words, NOTE, colour, page.theme.paper)


def predicted_slowest(result: Result, prediction: Prediction | None) -> float | None:
    """Where the slowest would be, if the one thought to be the fastest is right where it is."""
    if prediction is None or prediction.factor is None:
        return None
    return prediction.factor * result.median(prediction.fastest)


def _write_at(
    axes: Axes,
    pen: Pen,
    page: Page,
    at: tuple[float, float],
    words: str,
    how: Type,
    colour: str,
    behind: str,
) -> None:
    """Centred on a value of the axis, or as near as the page's edge allows."""
    fraction = axes.transAxes.inverted().transform(axes.transData.transform(at))[0]
    room = page.width + 0.15
    line = shortened(wrapped(words, room, how), 1)[0]
    half = width_inches(line, how) / 2
    middle = min(max(fraction * page.width, half), max(half, room - half))
    x, y = page.left + middle, page.top + at[1]
    pen.write([line], x, y, how, colour, "center", behind)
