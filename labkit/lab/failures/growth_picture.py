"""A worker's private memory by how much of the dataset it has read, drawn.

Before it: `growth`. After it: `plots.pictures`, which brings it into the notebook.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from labkit.lab import need
from labkit.lab.explain.wording import number
from labkit.lab.plots.axis import axis_for, keep_back, tick
from labkit.lab.plots.lettering import DPI, Pen, Type
from labkit.lab.plots.palette import theme
from labkit.lab.plots.pictures import Picture

need("matplotlib")

from matplotlib.figure import Figure  # noqa: E402 (what is missing is named first)

if TYPE_CHECKING:
    from labkit.lab.failures.growth import Growth

__all__ = ["show"]

_WIDTH, _HEIGHT = 8.2, 3.6
_LEFT, _RIGHT, _TOP, _BOTTOM = 0.75, 2.25, 0.85, 0.75
_TITLE, _TEXT = Type(13, 0.27, "bold"), Type(9.5, 0.2)
_COLOURS = {"list": "#d55e00", "array": "#0072b2"}
_MARKERS = {"PyTorch": ("o", 10.0), "labkit": ("s", 4.0)}  # one fits into the other


def show(growths: Sequence[Growth]) -> Picture:
    """The picture, with a sentence under it, for a notebook cell to end in."""
    said = sentence(growths)
    return Picture(
        draw=partial(_figure, growths),
        alt=f"Four curves: a worker's private memory by tenths of 400,000 strings read. {said}",
        title="Figure: memory that a worker takes by reading strings",
        sentence=said,
    )


def sentence(growths: Sequence[Growth]) -> str:
    """By how much each of them grew."""
    parts = [f"{one.package}, {one.kind}: {number(one.megabytes[-1])} MB more" for one in growths]
    return f"When all strings were read once, on this machine: {'; '.join(parts)}."


def _figure(growths: Sequence[Growth], dark: bool) -> Figure:
    colours = theme(dark)
    drawn = Figure(figsize=(_WIDTH, _HEIGHT), dpi=DPI, facecolor=colours.paper)
    pen = Pen(drawn)
    pen.write(["A worker that only reads"], 0.15, 0.12, _TITLE, colours.ink)
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    place = _LEFT / _WIDTH, _BOTTOM / _HEIGHT, wide / _WIDTH, high / _HEIGHT
    axes = drawn.add_axes(place, facecolor="none")
    axis = axis_for([0.0, *(value for one in growths for value in one.megabytes)])
    tenths = len(growths[0].megabytes)
    axes.set(xlim=(0, tenths), ylim=(axis.low, axis.high), yticks=axis.ticks)
    axes.set_yticklabels([tick(value) for value in axis.ticks])
    axes.grid(axis="y", color=colours.grid, linewidth=0.8)
    keep_back(axes, colours, ["left", "bottom"])
    for one in growths:
        marker, size = _MARKERS[one.package]
        axes.plot(
            range(tenths + 1), (0.0, *one.megabytes), marker=marker, markersize=size,
            color=_COLOURS[one.kind], linewidth=1.2, clip_on=False,
            markerfacecolor="none" if size > 5 else None,
        )  # fmt: skip
    for one, y in zip(growths, _apart(growths, axis.high - axis.low, high), strict=True):
        above = _TOP + high * (1 - (y - axis.low) / (axis.high - axis.low)) - 0.1
        shape = "circles" if one.package == "PyTorch" else "squares"
        pen.write(
            [f"{one.kind}, {one.package} ({shape})"],
            _WIDTH - _RIGHT + 0.15,
            above,
            _TEXT,
            colours.ink,
        )
    pen.write(["MB more"], 0.15, _TOP - 0.25, _TEXT, colours.ink)
    middle = _LEFT + wide / 2
    pen.write(["tenths of the strings read"], middle, _HEIGHT - 0.35, _TEXT, colours.ink, "center")
    return drawn


def _apart(growths: Sequence[Growth], span: float, inches: float) -> list[float]:
    """Where to write each label: at its curve's end, but not on another one."""
    step = _TEXT.line * span / inches
    places: dict[int, float] = {}
    last = float("-inf")
    for index in sorted(range(len(growths)), key=lambda i: growths[i].megabytes[-1]):
        last = max(growths[index].megabytes[-1], last + step)
        places[index] = last
    return [places[index] for index in range(len(growths))]
