"""A picture of who has which object in which memory, for a thread and for two start methods.

Before it: `handed_over`, which finds it out. After it: `plots.pictures`, and notebook 07.
"""

from __future__ import annotations

from collections.abc import Sequence

from labkit.lab import need
from labkit.lab.handed_over import Way
from labkit.lab.plots.lettering import DPI, Pen, Type
from labkit.lab.plots.palette import Theme, theme
from labkit.lab.plots.pictures import Picture

need("matplotlib")

from matplotlib.figure import Figure  # noqa: E402 (what is missing is named first)
from matplotlib.patches import FancyBboxPatch, Rectangle  # noqa: E402

__all__ = ["show"]

_WIDTH, _HEIGHT = 8.2, 3.3
_MARGIN, _GAP = 0.2, 0.2
_TOP, _BOX, _BETWEEN = 0.95, 1.0, 0.2  # of the processes' boxes
_TITLE = Type(13, 0.27, "bold")
_HEAD = Type(10.5, 0.22, "bold")
_TEXT = Type(9.5, 0.2)


def show(ways: Sequence[Way]) -> Picture:
    """The address spaces in which counters lie, for a notebook cell to end in.

    Args:
        ways: one column each; two to four of them.
    """
    words = " ".join(_in_words(way) for way in ways)
    return Picture(
        draw=lambda dark: _draw(ways, theme(dark)),
        alt=f"Boxes for address spaces, with a counter in each. {words}",
        title="Figure: who has which object",
        sentence=words,
    )


def _in_words(way: Way) -> str:
    if way.name == "thread":
        return f"thread: one object, the value is {way.here} for both."
    address = "the same address, in other memory" if way.same_ids else "another address"
    return f"{way.name}: two objects, the child's at {address}; {way.here} here, {way.there} there."


def _draw(ways: Sequence[Way], colours: Theme) -> Figure:
    drawn = Figure(figsize=(_WIDTH, _HEIGHT), dpi=DPI, facecolor=colours.paper)
    axes = drawn.add_axes((0, 0, 1, 1), facecolor="none")
    axes.set(xlim=(0, _WIDTH), ylim=(_HEIGHT, 0))
    axes.set_axis_off()
    pen = Pen(drawn)
    pen.write(["Who has which object"], _MARGIN, 0.12, _TITLE, colours.ink)
    wide = (_WIDTH - 2 * _MARGIN - _GAP * (len(ways) - 1)) / len(ways)
    for column, way in enumerate(ways):
        left = _MARGIN + column * (wide + _GAP)
        pen.write([way.name], left + wide / 2, 0.6, _HEAD, colours.ink, "center")
        for top, high, name, address, value in _boxes(way):
            _draw_process(axes, colours, left, top, wide, high)
            pen.write([name], left + wide / 2, top + 0.08, _TEXT, colours.ink, "center")
            _draw_object(axes, pen, colours, left + wide / 2, top + high / 2 + 0.12, address, value)
    return drawn


def _boxes(way: Way) -> list[tuple[float, float, str, str, int]]:
    """Of each process: top, height, name, its counter's address and value."""
    if way.name == "thread":
        return [(_TOP, 2 * _BOX + _BETWEEN, "one process, two threads", "A", way.here)]
    there = "A" if way.same_ids else "B"
    return [
        (_TOP, _BOX, "main process", "A", way.here),
        (_TOP + _BOX + _BETWEEN, _BOX, "child process", there, way.there),
    ]


def _draw_process(
    axes: object, colours: Theme, left: float, top: float, wide: float, high: float
) -> None:
    box = FancyBboxPatch(
        (left, top),
        wide,
        high,
        boxstyle="round,pad=0,rounding_size=0.08",
        facecolor=colours.band,
        edgecolor=colours.muted,
    )
    axes.add_patch(box)  # type: ignore[attr-defined]


def _draw_object(
    axes: object, pen: Pen, colours: Theme, x: float, y: float, address: str, value: int
) -> None:
    wide, high = 1.6, 0.5
    box = Rectangle(
        (x - wide / 2, y - high / 2), wide, high, facecolor=colours.paper, edgecolor=colours.data
    )
    box.set_linewidth(2)
    axes.add_patch(box)  # type: ignore[attr-defined]
    lines = [f"counter at {address}", f"value {value}"]
    pen.write(lines, x, y - 0.2, _TEXT, colours.ink, "center")
