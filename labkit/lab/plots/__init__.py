"""Results as figures: a row for each setting, a dot for each repeat, the prediction drawn in.

Before it: `experiments`, which measured, and `predictions`, what was expected. After it:
`pictures`, which brings a figure into a notebook. Traces are drawn by `timeline`, the map of the
layers by `layer_map`.

`page` lays it out in inches, around the text as measured, so that no text runs into another or off
the page, whatever the settings are called.
"""

from __future__ import annotations

from labkit.lab import need
from labkit.lab.explain import sentence
from labkit.lab.explain.wording import (
    amount,
    ends,
    machine_words,
    median_interval,
    number,
    origin_words,
)
from labkit.lab.plots.axis import axis_for, keep_back, tick
from labkit.lab.plots.lettering import DPI, Pen, Type, shortened, width_inches, wrapped
from labkit.lab.plots.page import AXIS_NAME, DOTS, MARGIN, MEDIAN, NOTE, WIDTH, Page
from labkit.lab.plots.palette import theme
from labkit.lab.plots.pictures import Picture, img, png, themed
from labkit.lab.predictions import Prediction
from labkit.lab.results import Result

need("matplotlib")

from matplotlib.axes import Axes  # noqa: E402 (what is missing is named first)
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.ticker import FixedLocator, FuncFormatter  # noqa: E402

__all__ = ["alt_text", "figure", "img", "png", "show", "themed"]

MARKERS = {"live": "o", "recorded": "s", "simulated": "^"}
"""The shape of a dot says where it comes from."""

_HALF = 0.18
"""Inches above and below a row's middle within which its dots lie."""


def show(result: Result, prediction: Prediction | None = None) -> Picture:
    """The figure with the sentence under it, for a notebook cell to end in.

    Raises:
        ValueError: as `figure`.
    """
    _check(result, prediction)
    return Picture(
        draw=lambda dark: figure(result, prediction, dark),
        alt=alt_text(result, prediction),
        title=f"Figure: {result.question} ({', '.join(result.labels)})",
        sentence=sentence(result, prediction),
    )


def figure(result: Result, prediction: Prediction | None = None, dark: bool = False) -> Figure:
    """Draw every repeat, the medians with their intervals, and what was predicted.

    The axis starts at 0. Where the values lie too far apart for that, it is logarithmic and says
    so.

    Args:
        result: one row is drawn for each of its settings, in its order.
        prediction: drawn in and named.
        dark: for a dark page.

    Raises:
        ValueError: a setting has no repeats, or the predicted one is not in the result.
    """
    _check(result, prediction)
    page = Page.of(result, prediction, theme(dark))
    drawn = Figure(figsize=(WIDTH, page.height), dpi=DPI, facecolor=page.theme.paper)
    axes, pen = _axes(drawn, page, result, prediction), Pen(drawn)
    for row in range(len(result.labels)):
        _draw_row(axes, pen, page, result, row)
    if prediction is not None:
        _draw_prediction(axes, pen, page, result, prediction)
    page.write_margins(pen)
    return drawn


def alt_text(result: Result, prediction: Prediction | None = None) -> str:
    """What the figure shows, in words: each setting with its median and its repeats' range."""
    _check(result, prediction)
    axis = axis_for(_values(result, prediction))
    parts = [
        f"{result.question} Dot plot of {amount(result)}, less is better, "
        f"{'logarithmic axis' if axis.is_log else 'axis'} from {tick(axis.low)} to "
        f"{tick(axis.high)}, a row for each setting."
    ]
    for label, values in result.repeats.items():
        found = f"{label}: median {number(result.median(label))} {result.unit}, "
        if len(values) > 1:
            found += f"{len(values)} repeats from {number(min(values))} to {number(max(values))}."
        else:
            found += "one repeat."
        parts.append(found)
    if prediction is not None:
        parts.append(_in_words(result, prediction))
    parts.append(f"{origin_words(result)}: {machine_words(result.machine)}.")
    return " ".join(parts)


def _in_words(result: Result, prediction: Prediction) -> str:
    fastest, factor = prediction.fastest, prediction.factor
    least, most = ends(result)
    if factor is None:
        return f"You predicted: {fastest} is the {least}."
    if factor == 1:
        return "You predicted: no difference."
    return f"You predicted: {fastest} is the {least}, and the {most} {tick(factor)} times that."


def _check(result: Result, prediction: Prediction | None) -> None:
    if not result.repeats:
        raise ValueError("the result has no settings, so there is nothing to draw")
    for label, values in result.repeats.items():
        if not values:
            raise ValueError(f"setting {label!r} has no repeats: leave it out of the result")
    if prediction is not None and prediction.fastest not in result.repeats:
        raise ValueError(
            f"{prediction.fastest!r} was predicted to be the fastest, but the result has only "
            f"{', '.join(map(repr, result.labels))}: write one of these"
        )


def _predicted_slowest(result: Result, prediction: Prediction | None) -> float | None:
    """Where the slowest would be, if the one thought to be the fastest is right where it is."""
    if prediction is None or prediction.factor is None:
        return None
    return prediction.factor * result.median(prediction.fastest)


def _values(result: Result, prediction: Prediction | None) -> list[float]:
    predicted = _predicted_slowest(result, prediction)
    found = [value for values in result.repeats.values() for value in values]
    return found if predicted is None else [*found, predicted]


def _axes(drawn: Figure, page: Page, result: Result, prediction: Prediction | None) -> Axes:
    """Axes as large as the rows; across, the quantity; down, inches from the first row's top."""
    axis, colours = axis_for(_values(result, prediction)), page.theme
    axes = drawn.add_axes(page.axes_place, facecolor="none")
    axes.set_xscale("log" if axis.is_log else "linear")
    axes.set(xlim=(axis.low, axis.high), ylim=(page.body, 0), yticks=[])
    axes.xaxis.set_major_locator(FixedLocator(axis.ticks))
    axes.xaxis.set_minor_locator(FixedLocator([]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))
    axes.grid(axis="x", color=colours.grid, linewidth=0.8)
    keep_back(axes, colours, ["bottom"])
    name = f"{amount(result)}, less is better"
    name += " (logarithmic: equal steps are equal factors)" if axis.is_log else ""
    line = shortened(wrapped(name, WIDTH - 2 * MARGIN, AXIS_NAME), 1)[0]
    left = min(page.left, WIDTH - MARGIN - width_inches(line, AXIS_NAME))
    Pen(drawn).write([line], left, page.top + page.body + 0.26, AXIS_NAME, colours.ink)
    return axes


def _draw_row(axes: Axes, pen: Pen, page: Page, result: Result, row: int) -> None:
    """The repeats of one setting, their median and its interval."""
    label, colours = result.labels[row], page.theme
    values, top = result.repeats[label], page.rows[row]
    middle = top + DOTS
    axes.axhspan(top, page.rows[row + 1], color=page.behind(row), zorder=0)
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
        gid=f"repeats of {label}",
    )
    median = result.median(label)
    ends = [middle - _HALF - 0.04, middle + _HALF + 0.04]
    axes.plot([median] * 2, ends, color=colours.ink, linewidth=2.2, clip_on=False, zorder=4)
    words = f"median {number(median)} {result.unit}"
    _write_at(axes, pen, page, (median, top + 0.03), words, MEDIAN, colours.ink, page.behind(row))


def _jitter(i: int) -> float:
    """Between -0.5 and 0.5, spread evenly for any count: multiples of the golden ratio."""
    return (0.5 + i * 0.6180339887498949) % 1 - 0.5


def _draw_prediction(
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
    slowest = _predicted_slowest(result, prediction)
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
