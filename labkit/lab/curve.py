"""A curve over epochs: one value for each, and a value to compare them with.

Before it: a notebook that trained with a loader. After it: `plots.pictures`, which brings it into
the notebook. Repeats and medians are drawn by `plots`; a curve is of one run and claims no more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from labkit.lab import need
from labkit.lab.explain.wording import number
from labkit.lab.plots.axis import keep_back
from labkit.lab.plots.lettering import DPI, Pen, Type, width_inches
from labkit.lab.plots.palette import theme
from labkit.lab.plots.pictures import Picture

need("matplotlib")

from matplotlib.axes import Axes  # noqa: E402 (what is missing is named first)
from matplotlib.figure import Figure  # noqa: E402

__all__ = ["Curve", "show"]

_WIDTH, _HEIGHT = 8.2, 3.6
_LEFT, _RIGHT, _TOP, _BOTTOM = 0.75, 0.3, 0.6, 0.75  # of the axes, from the figure's edges
_TITLE = Type(13, 0.27, "bold")
_TEXT = Type(9.5, 0.2)


def show(values: Sequence[float], quantity: str, level: float, what: str) -> Picture:
    """The curve with a sentence under it, for a notebook cell to end in.

    Args:
        values: one for each epoch, from the first one on.
        quantity: what they are, such as "mean training loss".
        level: a value to compare them with; drawn dashed,
        what: and what that is, in a few words.

    Raises:
        ValueError: fewer than two values, or one that is no finite number.
    """
    curve = Curve(tuple(map(float, values)), quantity, float(level), what)
    return Picture(
        draw=curve.figure,
        alt=f"Curve of {quantity} over {len(curve.values)} epochs. {curve.sentence}",
        title=f"Figure: {quantity} by epoch",
        sentence=curve.sentence,
    )


@dataclass(frozen=True)
class Curve:
    """What is drawn; the arguments are those of `show`."""

    values: tuple[float, ...]
    quantity: str
    level: float
    what: str

    def __post_init__(self) -> None:
        if len(self.values) < 2:
            raise ValueError(f"a curve has two values or more, but got {len(self.values)}")
        named = {f"value {place}": value for place, value in enumerate(self.values, 1)}
        for name, value in {**named, "the level": self.level}.items():
            if not math.isfinite(value):
                raise ValueError(f"{name} of the curve is {value!r}: give finite numbers")

    @property
    def sentence(self) -> str:
        """What the curve shows, from its numbers."""
        first, last = number(self.values[0]), number(self.values[-1])
        below = [epoch for epoch, value in enumerate(self.values, 1) if value < self.level]
        since = f"below it first in epoch {below[0]}" if below else "never below it"
        return (
            f"{self.quantity.capitalize()}: {first} in epoch 1, {last} in epoch "
            f"{len(self.values)}. Dashed, at {number(self.level)}: {self.what}; {since}."
        )

    def figure(self, dark: bool = False) -> Figure:
        """Draw it; the axis starts at 0 unless a value is below."""
        colours = theme(dark)
        drawn = Figure(figsize=(_WIDTH, _HEIGHT), dpi=DPI, facecolor=colours.paper)
        axes, pen = _axes(drawn, dark), Pen(drawn)
        axes.plot(range(1, len(self.values) + 1), self.values, color=colours.data, linewidth=2)
        axes.axhline(self.level, color=colours.muted, linestyle="--", linewidth=1.5)
        low, high = min(0.0, self.level, *self.values), max(self.level, *self.values)
        axes.set(xlim=(1, len(self.values)), ylim=(low, high + 0.15 * (high - low or 1)))
        pen.write([f"{self.quantity.capitalize()}, by epoch"], 0.15, 0.15, _TITLE, colours.ink)
        middle = _LEFT + (_WIDTH - _LEFT - _RIGHT) / 2
        pen.write(["epoch"], middle, _HEIGHT - 0.4, _TEXT, colours.ink, "center")
        words = f"dashed: {self.what}"
        left = _WIDTH - _RIGHT - width_inches(words, _TEXT)
        above = _HEIGHT - axes.transData.transform((1, self.level))[1] / DPI - 0.22
        pen.write([words], left, above, _TEXT, colours.muted, behind=colours.paper)
        return drawn


def _axes(drawn: Figure, dark: bool) -> Axes:
    colours = theme(dark)
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    place = _LEFT / _WIDTH, _BOTTOM / _HEIGHT, wide / _WIDTH, high / _HEIGHT
    axes = drawn.add_axes(place, facecolor="none")
    axes.grid(color=colours.grid, linewidth=0.8)
    keep_back(axes, colours, ["left", "bottom"])
    return axes
