"""One put() as a timeline: a lane for each thread, one for `is_shared()`, one for the receiver.

Before it: `watching`. After it: `plots.pictures`, which brings the figure into a notebook.
"""

from __future__ import annotations

from dataclasses import dataclass

from labkit.lab import need
from labkit.lab.explain.wording import duration
from labkit.lab.plots.axis import keep_back
from labkit.lab.plots.lettering import DPI, Pen, Type, width_inches
from labkit.lab.plots.palette import Style, layer_style, theme
from labkit.lab.plots.pictures import Picture
from labkit.lab.put_timeline.watching import Put

need("matplotlib")

from matplotlib.axes import Axes  # noqa: E402 (what is missing is named first)
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.ticker import MaxNLocator  # noqa: E402

__all__ = ["show"]

_WIDTH, _MARGIN, _LANE = 8.2, 0.15, 0.42
_AXIS = 0.62
_TITLE = Type(13, 0.3, "bold")
_TEXT = Type(9, 0.2)
_UNSEEN = Style("#bbbbbb", "..")  # nobody had a turn to look
_LANES = ("main thread", "feeder thread", "tensor.is_shared()", "another process")


def show(put: Put) -> Picture:
    """The timeline with a sentence under it, for a notebook cell to end in."""
    return Picture(
        draw=lambda dark: _figure(put, dark),
        alt=f"Timeline of one put() of {put.nbytes:,} bytes, from its call on. {put.sentence}",
        title="Figure: what happens around a put()",
        sentence=put.sentence,
    )


@dataclass(frozen=True)
class _Bar:
    """Something that went on, in seconds; without a name of a style it is a state."""

    lane: int
    start: float
    end: float
    words: str
    layer: str = ""
    beside: bool = False  # the words stand right of it, however long it is


def _bars(put: Put) -> list[_Bar]:
    end = _last(put)
    return [
        _Bar(0, 0.0, put.returned, f"put(), {duration(put.returned)}", "dispatch", beside=True),
        _Bar(1, put.pickling, put.pickled, "pickle", "pickle"),
        _Bar(2, 0.0, put.last_private, "False"),
        *_unseen(put),
        _Bar(2, put.first_shared, end, "True", "rebuild"),
        _Bar(3, put.received, end, "has the tensor", "receive"),
    ]


def _unseen(put: Put) -> list[_Bar]:
    """The time between two looks in which it turned, where that is long enough to be seen."""
    if put.first_shared - put.last_private < 0.03 * _last(put):
        return []
    return [_Bar(2, put.last_private, put.first_shared, "?", "unseen")]


def _last(put: Put) -> float:
    return 1.25 * max(put.returned, put.pickled, put.first_shared, put.received)


def _figure(put: Put, dark: bool) -> Figure:
    colours = theme(dark)
    left = max(width_inches(lane, _TEXT) for lane in _LANES) + _MARGIN + 0.12
    top = _MARGIN + _TITLE.line + 0.1
    height = top + _LANE * len(_LANES) + _AXIS
    drawn = Figure(figsize=(_WIDTH, height), dpi=DPI, facecolor=colours.paper)
    wide = _WIDTH - left - 0.25
    place = (left / _WIDTH, _AXIS / height, wide / _WIDTH, _LANE * len(_LANES) / height)
    axes, pen = drawn.add_axes(place, facecolor="none"), Pen(drawn)
    unit, scale = ("ms", 1e3) if _last(put) >= 2e-3 else ("µs", 1e6)
    end = _last(put) * scale
    axes.set(xlim=(0, end), ylim=(len(_LANES), 0), yticks=[])
    axes.set_xticks([tick for tick in MaxNLocator(6).tick_values(0, end) if tick <= end])
    axes.grid(axis="x", color=colours.grid, linewidth=0.8)
    keep_back(axes, colours, ["bottom"])
    pen.write([f"One put() of {put.nbytes:,} bytes"], _MARGIN, _MARGIN, _TITLE, colours.ink)
    for lane, name in enumerate(_LANES):
        y = top + lane * _LANE + (_LANE - _TEXT.line) / 2
        pen.write([name], left - 0.12, y, _TEXT, colours.ink, "right")
        axes.axhspan(lane, lane + 1, color=colours.paper if lane % 2 else colours.band, zorder=0)
    for bar in _bars(put):
        _draw_bar(axes, pen, bar, (left, top, wide), _last(put), dark)
    words = f"{unit} since put() was called"
    pen.write([words], left + wide / 2, height - 0.32, _TEXT, colours.ink, "center")
    return drawn


def _draw_bar(
    axes: Axes,
    pen: Pen,
    bar: _Bar,
    place: tuple[float, float, float],
    seconds: float,
    dark: bool,
) -> None:
    colours, style = theme(dark), _UNSEEN if bar.layer == "unseen" else layer_style(bar.layer)
    left, top, wide = place
    scale = axes.get_xlim()[1] / seconds
    length = max(bar.end - bar.start, 0.004 * seconds)  # to be seen, however short
    axes.broken_barh(
        [(bar.start * scale, length * scale)],
        (bar.lane + 0.16, 0.68),
        facecolor=style.colour if bar.layer else colours.paper,
        edgecolor=colours.ink,
        hatch=style.hatch if bar.layer else "",
        linewidth=0.8,
    )
    across = width_inches(bar.words, _TEXT)
    x, y = left + bar.start / seconds * wide, top + bar.lane * _LANE + (_LANE - _TEXT.line) / 2
    inches = length / seconds * wide
    if bar.beside or across + 0.1 > inches:
        behind = colours.paper if bar.lane % 2 else colours.band
        pen.write([bar.words], x + inches + 0.06, y, _TEXT, colours.ink, behind=behind)
    elif not bar.layer:
        pen.write([bar.words], x + inches / 2, y, _TEXT, colours.ink, "center")
    else:
        ink, paper = style.ink, style.colour
        pen.write([bar.words], x + inches / 2, y, _TEXT, ink, "center", behind=paper)
