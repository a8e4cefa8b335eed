"""Copies of many sizes in one figure: when the call returns and when the copy is done.

Before it: `copies_to_device`, whose `swept` measures. After it: `plots.pictures`, which brings the
figure into a notebook; notebook 08.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from labkit.lab import need
from labkit.lab.experiments.comparisons import bytes_words
from labkit.lab.explain.wording import duration
from labkit.lab.on_device.copies_to_device import Copied
from labkit.lab.plots.axis import keep_back, tick
from labkit.lab.plots.lettering import DPI, Pen, Type
from labkit.lab.plots.palette import Theme, theme
from labkit.lab.plots.pictures import Picture

need("matplotlib")

from matplotlib.axes import Axes  # noqa: E402 (what is missing is named first)
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator  # noqa: E402

__all__ = ["show"]

_WIDTH, _HEIGHT = 8.2, 4.3
_LEFT, _RIGHT, _TOP, _BOTTOM = 0.75, 2.55, 0.75, 0.75  # of the axes, from the figure's edges
_TITLE = Type(13, 0.27, "bold")
_TEXT = Type(9, 0.2)

_SERIES = {
    ("pageable", "done"): ("pageable: the copy is done", "s", "-"),
    ("pageable", "returned"): ("pageable: the call returns", "x", ":"),
    ("pinned", "done"): ("pinned: the copy is done", "o", "-"),
    ("pinned", "returned"): ("pinned: the call returns", "+", ":"),
}
"""By memory and moment: words, marker, line."""

Sizes = Mapping[int, Mapping[str, Copied]]


def show(machine: Mapping[str, Any], found: Sizes) -> Picture:
    """The figure with a sentence under it, for a notebook cell to end in.

    Args:
        machine: with its device (`labkit.lab.on_device.here`).
        found: by bytes, by "pageable" and "pinned".

    Raises:
        ValueError: fewer than two sizes.
    """
    if len(found) < 2:
        raise ValueError(f"two sizes or more make a curve, but got {len(found)}")
    said = _sentence(machine, found)
    return Picture(
        draw=lambda dark: _figure(machine, found, dark),
        alt=f"Curves of time by bytes copied with non_blocking=True, of {machine['device']}; both "
        f"axes logarithmic. {_in_words(found)} {said}",
        title="Figure: when a call returns and when its copy is done, by size",
        sentence=said,
    )


def _in_words(found: Sizes) -> str:
    parts = []
    for (memory, moment), (words, _, _) in _SERIES.items():
        times = [duration(getattr(copies[memory], moment)) for copies in found.values()]
        parts.append(f"{words} after {', '.join(times)}.")
    return f"For {', '.join(map(bytes_words, found))}: {' '.join(parts)}"


def _sentence(machine: Mapping[str, Any], found: Sizes) -> str:
    small, large = min(found), max(found)
    simulated = "Simulated: " if machine.get("simulated") else ""

    def grew(memory: str) -> str:
        times = [found[nbytes][memory].returned for nbytes in (small, large)]
        return f"from {duration(times[0])} to {duration(times[1])}"

    kept = {memory: found[large][memory].returned_early for memory in ("pageable", "pinned")}
    before = [memory for memory, early in kept.items() if early]
    early = f"from {' and '.join(before)} memory" if before else "from neither memory"
    return (
        f"{simulated}from {bytes_words(small)} to {bytes_words(large)}, the time until the call "
        f"returned went {grew('pageable')} for pageable memory, and {grew('pinned')} for pinned. "
        f"At {bytes_words(large)}, the call returned before the copy was done {early}."
    )


def _figure(machine: Mapping[str, Any], found: Sizes, dark: bool) -> Figure:
    colours = theme(dark)
    drawn = Figure(figsize=(_WIDTH, _HEIGHT), dpi=DPI, facecolor=colours.paper)
    pen, middle = Pen(drawn), _LEFT + (_WIDTH - _LEFT - _RIGHT) / 2
    pen.write(["When the call returns, when the copy is done"], 0.15, 0.15, _TITLE, colours.ink)
    device = f"Host to device, non_blocking=True. Times of: {machine['device']}."
    pen.write([device], 0.15, 0.15 + _TITLE.line, _TEXT, colours.muted)
    pen.write(["ms"], 0.15, _TOP - 0.1, _TEXT, colours.ink)
    name = "bytes; both axes logarithmic"
    pen.write([name], middle, _HEIGHT - 0.4, _TEXT, colours.ink, "center")
    sizes = sorted(found)
    lines = {
        (memory, moment): [getattr(found[nbytes][memory], moment) * 1e3 for nbytes in sizes]
        for memory, moment in _SERIES
    }
    axes = _axes(drawn, colours, sizes, [value for values in lines.values() for value in values])
    below = 0.0
    for series in sorted(lines, key=lambda series: -lines[series][-1]):
        marker = _draw_series(axes, series, sizes, lines[series], colours)
        place = axes.transAxes.inverted().transform(
            axes.transData.transform((sizes[-1], lines[series][-1]))
        )
        y = _TOP + (1 - float(place[1])) * (_HEIGHT - _TOP - _BOTTOM) - _TEXT.line / 2
        below = max(y, below)  # names that would lie on each other stand apart
        pen.write([marker], _WIDTH - _RIGHT + 0.17, below, _TEXT, _colour(series, colours))
        pen.write([_SERIES[series][0]], _WIDTH - _RIGHT + 0.37, below, _TEXT, colours.ink)
        below += _TEXT.line
    return drawn


def _axes(drawn: Figure, colours: Theme, sizes: list[int], values: list[float]) -> Axes:
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    place = _LEFT / _WIDTH, _BOTTOM / _HEIGHT, wide / _WIDTH, high / _HEIGHT
    axes = drawn.add_axes(place, facecolor="none")
    low, high_value = min(values) / 1.6, max(values) * 1.6
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high_value)) + 1)
    ticks = [step * 10.0**power for power in decades for step in (1, 3)]
    axes.set(xscale="log", yscale="log", ylim=(low, high_value))
    axes.xaxis.set_major_locator(FixedLocator(sizes))
    axes.yaxis.set_major_locator(FixedLocator([t for t in ticks if low <= t <= high_value]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: bytes_words(round(value))))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))
    for one in (axes.xaxis, axes.yaxis):
        one.set_minor_locator(NullLocator())
    axes.grid(color=colours.grid, linewidth=0.8)
    keep_back(axes, colours, ["left", "bottom"], size=8.5)
    return axes


def _draw_series(
    axes: Axes, series: tuple[str, str], sizes: list[int], values: list[float], colours: Theme
) -> str:
    """Draw it; gives the sign that stands for its marker in a text."""
    _, marker, line = _SERIES[series]
    axes.plot(
        sizes,
        values,
        color=_colour(series, colours),
        marker=marker,
        linestyle=line,
        markersize=9 if marker in "x+" else 6,
        markeredgewidth=2 if marker in "x+" else 1,
        clip_on=False,
        gid=" ".join(series),
    )
    return {"s": "■", "x": "×", "o": "●", "+": "+"}[marker]


def _colour(series: tuple[str, str], colours: Theme) -> str:
    return colours.prediction if series[0] == "pageable" else colours.data
