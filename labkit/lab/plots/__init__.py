"""Results as figures: a row for each setting, a dot for each repeat, the prediction drawn in.

Before it: `experiments`, which measured, and `predictions`, what was expected. After it:
`pictures`, which brings a figure into a notebook. Traces are drawn by `timeline`, the map of the
layers by `layer_map`.

`page` lays it out in inches, around the text as measured, so that no text runs into another or off
the page, whatever the settings are called; `rows` draws what stands in a row.
"""

from __future__ import annotations

from labkit.lab import need
from labkit.lab.explain import sentence
from labkit.lab.explain.wording import amount, ends, machine_words, number, origin_words
from labkit.lab.plots.axis import axis_for, keep_back, tick
from labkit.lab.plots.lettering import DPI, Pen, shortened, width_inches, wrapped
from labkit.lab.plots.page import AXIS_NAME, MARGIN, WIDTH, Page
from labkit.lab.plots.palette import theme
from labkit.lab.plots.pictures import Picture, img, png, themed
from labkit.lab.plots.rows import MARKERS, draw_prediction, draw_row, predicted_slowest
from labkit.lab.predictions import Prediction
from labkit.lab.results import Result

need("matplotlib")

from matplotlib.axes import Axes  # noqa: E402 (what is missing is named first)
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.ticker import FixedLocator, FuncFormatter  # noqa: E402

__all__ = ["MARKERS", "alt_text", "figure", "img", "png", "show", "themed"]


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


def figure(
    result: Result,
    prediction: Prediction | None = None,
    dark: bool = False,
    recorded: Result | None = None,
) -> Figure:
    """Draw every repeat, the medians with their intervals, and what was predicted.

    The axis starts at 0. Where the values lie too far apart for that, it is logarithmic and says
    so.

    Args:
        result: one row is drawn for each of its settings, in its order.
        prediction: drawn in and named.
        dark: for a dark page.
        recorded: what another machine gave for the same question, drawn below in each row. Settings
            that only this one has are left out.

    Raises:
        ValueError: a setting has no repeats, or the predicted one is not in the result.
    """
    _check(result, prediction)
    page = Page.of(result, prediction, theme(dark), recorded)
    drawn = Figure(figsize=(WIDTH, page.height), dpi=DPI, facecolor=page.theme.paper)
    axes, pen = _axes(drawn, page, result, prediction, recorded), Pen(drawn)
    for row in range(len(result.labels)):
        draw_row(axes, pen, page, result, row, recorded)
    if prediction is not None:
        draw_prediction(axes, pen, page, result, prediction)
    page.write_margins(pen)
    return drawn


def alt_text(
    result: Result, prediction: Prediction | None = None, recorded: Result | None = None
) -> str:
    """What the figure shows, in words: each setting with its median and its repeats' range."""
    _check(result, prediction)
    axis = axis_for(_values(result, prediction, recorded))
    parts = [
        f"{result.question} Dot plot of {amount(result)}, less is better, "
        f"{'logarithmic axis' if axis.is_log else 'axis'} from {tick(axis.low)} to "
        f"{tick(axis.high)}, a row for each setting.",
        *_medians_in_words(result, result.labels),
    ]
    if prediction is not None:
        parts.append(_in_words(result, prediction))
    parts.append(f"{origin_words(result)}: {machine_words(result.machine)}.")
    if recorded is not None:
        there = [label for label in result.labels if label in recorded.repeats]
        parts.append(f"Drawn below, {origin_words(recorded).lower()}:")
        parts += _medians_in_words(recorded, there)
        parts.append(f"That machine: {machine_words(recorded.machine)}.")
    return " ".join(parts)


def _medians_in_words(result: Result, labels: list[str]) -> list[str]:
    parts = []
    for label in labels:
        values = result.repeats[label]
        found = f"{label}: median {number(result.median(label))} {result.unit}, "
        if len(values) > 1:
            found += f"{len(values)} repeats from {number(min(values))} to {number(max(values))}."
        else:
            found += "one repeat."
        parts.append(found)
    return parts


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


def _values(result: Result, prediction: Prediction | None, recorded: Result | None) -> list[float]:
    """All that has a place on the axis."""
    predicted = predicted_slowest(result, prediction)
    found = [value for values in result.repeats.values() for value in values]
    if recorded is not None:
        found += [v for label in result.labels for v in recorded.repeats.get(label, ())]
    return found if predicted is None else [*found, predicted]


def _axes(
    drawn: Figure,
    page: Page,
    result: Result,
    prediction: Prediction | None,
    recorded: Result | None,
) -> Axes:
    """Axes as large as the rows; across, the quantity; down, inches from the first row's top."""
    axis, colours = axis_for(_values(result, prediction, recorded)), page.theme
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
