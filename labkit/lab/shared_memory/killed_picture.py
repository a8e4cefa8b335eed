"""What was left of killed main processes, drawn over the time since the kill.

Before it: `killed`. After it: `plots.pictures`, which brings it into the notebook.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from labkit.lab import need
from labkit.lab.explain.wording import number
from labkit.lab.plots.axis import axis_for, keep_back, tick
from labkit.lab.plots.lettering import DPI, Pen, Type, width_inches
from labkit.lab.plots.palette import Theme, theme
from labkit.lab.plots.pictures import Picture

need("matplotlib")

from matplotlib.axes import Axes  # noqa: E402 (what is missing is named first)
from matplotlib.figure import Figure  # noqa: E402

if TYPE_CHECKING:
    from labkit.lab.shared_memory.killed import Left

__all__ = ["show"]

_WIDTH, _ROW = 8.2, 0.52
_TOP, _BOTTOM, _RIGHT = 0.72, 0.62, 0.3
_TITLE, _TEXT = Type(13, 0.27, "bold"), Type(9.5, 0.2)
_BARS = {"worker": ("#0072b2", ""), "names": ("#e69f00", "///")}


def show(left: Sequence[Left]) -> Picture:
    """The picture, with a sentence under it, for a notebook cell to end in."""
    said = sentence(left)
    return Picture(
        draw=partial(_figure, left),
        alt=f"Bars over the seconds since a kill -9 of the main process, by way. {said}",
        title="Figure: what kill -9 of the main process leaves, over time",
        sentence=said,
    )


def sentence(left: Sequence[Left]) -> str:
    """What each way leaves, and for how long."""
    parts = ["One kill each, on this machine."]
    for one in left:
        worker = f"worker gone after {_seconds(one.worker_s, one.watched_s)}"
        names = "no names"
        if one.names:
            count = "1 name" if one.names == 1 else f"{one.names} names"
            names = f"{count}, gone after {_seconds(one.names_s, one.watched_s)}"
        parts.append(f"{one.way.label}: {worker}; {names}.")
    return " ".join(parts)


def _seconds(seconds: float | None, watched_s: float) -> str:
    if seconds is None:
        return f"more than the {number(watched_s)} s for which it was watched"
    return f"{seconds:.2f} s"


def _figure(left: Sequence[Left], dark: bool) -> Figure:
    colours = theme(dark)
    height = _TOP + _ROW * len(left) + _BOTTOM
    drawn = Figure(figsize=(_WIDTH, height), dpi=DPI, facecolor=colours.paper)
    pen = Pen(drawn)
    margin = max(width_inches(one.way.label, _TEXT) for one in left) + 0.3
    axes = _axes(drawn, left, margin, colours)
    pen.write(["What kill -9 of the main process leaves"], 0.15, 0.12, _TITLE, colours.ink)
    _legend(pen, drawn, margin, colours)
    for row, one in enumerate(left):
        pen.write([one.way.label], margin - 0.12, _TOP + _ROW * (row + 0.3), _TEXT, colours.ink,
                  "right")  # fmt: skip
        _bar(axes, row - 0.19, "worker", one.worker_s, one.watched_s, colours)
        if one.names:
            _bar(axes, row + 0.19, "names", one.names_s, one.watched_s, colours)
    middle = margin + (_WIDTH - margin - _RIGHT) / 2
    pen.write(["s since the kill"], middle, height - 0.32, _TEXT, colours.ink, "center")
    return drawn


def _axes(drawn: Figure, left: Sequence[Left], margin: float, colours: Theme) -> Axes:
    height = drawn.get_figheight()
    wide, high = _WIDTH - margin - _RIGHT, _ROW * len(left)
    place = margin / _WIDTH, _BOTTOM / height, wide / _WIDTH, high / height
    axes = drawn.add_axes(place, facecolor="none")
    ends = [end or one.watched_s for one in left for end in (one.worker_s, one.names_s)]
    axis = axis_for([0.0, *ends, max(ends) * 1.12])
    axes.set(xlim=(0, axis.high), ylim=(len(left) - 0.5, -0.5), yticks=[], xticks=axis.ticks)
    axes.set_xticklabels([tick(value) for value in axis.ticks])
    axes.grid(axis="x", color=colours.grid, linewidth=0.8)
    keep_back(axes, colours, ["left", "bottom"])
    return axes


def _bar(
    axes: Axes, y: float, kind: str, seconds: float | None, watched_s: float, colours: Theme
) -> None:
    colour, hatch = _BARS[kind]
    end = watched_s if seconds is None else seconds
    axes.barh(y, end, height=0.3, color=colour, edgecolor=colours.ink, hatch=hatch, linewidth=0.6)
    said = " still there" if seconds is None else f" {end:.2f}"
    axes.text(end, y, said, va="center", fontsize=8.5, color=colours.ink, parse_math=False)


def _legend(pen: Pen, drawn: Figure, margin: float, colours: Theme) -> None:
    from matplotlib.patches import Rectangle

    x, height = margin, drawn.get_figheight()
    for words, kind in (("its worker lives", "worker"), ("names in /dev/shm", "names")):
        colour, hatch = _BARS[kind]
        sample = Rectangle(
            (x / _WIDTH, 1 - 0.62 / height), 0.3 / _WIDTH, 0.14 / height,
            transform=drawn.transFigure, facecolor=colour, edgecolor=colours.ink, hatch=hatch,
            linewidth=0.6,
        )  # fmt: skip
        drawn.add_artist(sample)
        pen.write([words], x + 0.37, 0.44, _TEXT, colours.ink)
        x += 0.37 + width_inches(words, _TEXT) + 0.3
