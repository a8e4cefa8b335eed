"""The axes of a figure: from 0, or logarithmic where values lie too far apart; and their looks.

After it: `plots`, `timeline`, `curve`, and the bar charts.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from labkit.lab import need
from labkit.lab.explain.wording import number
from labkit.lab.plots.lettering import FONT
from labkit.lab.plots.palette import Theme

need("matplotlib")

from matplotlib.axes import Axes  # noqa: E402 (what is missing is named first)
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.ticker import MaxNLocator  # noqa: E402

__all__ = ["Axis", "axis_for", "keep_back", "lying_bars", "tick"]

_FAR_APART = 20
"""With the greatest value so many times the least, the least is lost beside 0."""


@dataclass(frozen=True)
class Axis:
    """From where to where, and what is written at it."""

    low: float
    high: float
    ticks: tuple[float, ...]
    is_log: bool = False


def axis_for(values: Sequence[float]) -> Axis:
    """An axis on which all these values have their place."""
    low, high = min(values), max(values)
    if low > 0 and high / low > _FAR_APART:
        return _logarithmic(low, high)
    low, high = min(low, 0.0) * 1.06, max(high, 0.0) * 1.06
    if low == high:
        high = 1.0
    ticks = MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    return Axis(low, high, tuple(float(t) for t in ticks if low <= t <= high))


def _logarithmic(low: float, high: float) -> Axis:
    low, high = low / 1.6, high * 1.6
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    apart = math.ceil((last - first) / 6)  # decades
    steps = (1, 3) if last - first <= 3 else (1,)
    ticks = [step * 10.0**power for power in range(first, last + 1, apart) for step in steps]
    return Axis(low, high, tuple(t for t in ticks if low <= t <= high), is_log=True)


def tick(value: float) -> str:
    """A number as it stands at an axis: without the zeros that say nothing."""
    digits, times, power = number(value).partition("×")
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    return digits + times + power


def keep_back(axes: Axes, colours: Theme, sides: Collection[str], size: float = 9) -> None:
    """Keep what is no data in the background: the ticks, the grid, and a line on these sides."""
    axes.tick_params(colors=colours.muted, labelsize=size, labelfontfamily=FONT)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in sides)
        spine.set_color(colours.muted)


def lying_bars(
    figure: Figure,
    margins: tuple[float, float, float, float],
    values: Sequence[float],
    rows: int,
    colours: Theme,
) -> Axes:
    """Axes for bars that lie, from 0.

    Args:
        figure: in which they are made.
        margins: inches at the left, above, at the right, and below.
        values: that have their place on it.
        rows: from the top down; row 0 has its middle at 0, the next one at 1.
        colours: of the page.
    """
    width, height = figure.get_size_inches()
    left, above, right, below = margins
    place = (left / width, below / height, 1 - (left + right) / width, 1 - (above + below) / height)
    axes = figure.add_axes(place, facecolor="none")
    axis = axis_for([0.0, *values])
    axes.set(xlim=(0, axis.high), ylim=(rows - 0.5, -0.5), yticks=[], xticks=axis.ticks)
    axes.set_xticklabels([tick(value) for value in axis.ticks])
    axes.grid(axis="x", color=colours.grid, linewidth=0.8)
    keep_back(axes, colours, ["left", "bottom"])
    return axes
