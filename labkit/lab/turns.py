"""When the main thread got to run Python code while another thread worked: a picture of the turns.

The main thread reads the clock over and over, and notes where it was kept from doing so. Before it:
`experiments.beside`, whose works the other thread repeats. After it: `plots.pictures`, notebook 07.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from labkit.lab import need
from labkit.lab.experiments.beside import several_threads
from labkit.lab.experiments.works import make
from labkit.lab.explain.wording import number
from labkit.lab.plots.axis import keep_back
from labkit.lab.plots.lettering import DPI, Pen, Type
from labkit.lab.plots.palette import Theme, theme
from labkit.lab.plots.pictures import Picture

need("matplotlib")

from matplotlib.axes import Axes  # noqa: E402 (what is missing is named first)
from matplotlib.figure import Figure  # noqa: E402

__all__ = ["Turns", "beside", "show", "stretches"]

Bars = list[tuple[float, float]]

_GAP_SECONDS = 0.5e-3  # shorter ones are not seen
_PYTHON = "Python loop"

_WIDTH, _MARGIN = 8.2, 0.15
_LEFT, _RIGHT = 1.55, 0.25
_TITLE = Type(13, 0.27, "bold")
_HEAD = Type(10, 0.22, "bold")
_TEXT = Type(9.5, 0.2)
_TOP, _LANE, _GROUP, _BELOW = 0.75, 0.26, 0.92, 0.42


@dataclass(frozen=True)
class Turns:
    """What two threads did within `seconds`.

    Attributes:
        work: what the other thread repeated.
        seconds: how long it was watched.
        main: when the main thread ran Python code: (start, end), in seconds.
        other: the other thread's calls; of a Python loop, when it ran.
    """

    work: str
    seconds: float
    main: tuple[tuple[float, float], ...]
    other: tuple[tuple[float, float], ...]

    @property
    def share(self) -> float:
        """Of the time, what the main thread ran."""
        return sum(end - start for start, end in self.main) / self.seconds

    @property
    def longest_gap(self) -> float:
        """Seconds that the main thread was kept from running, at most."""
        edges = [0.0, *(edge for bar in self.main for edge in bar), self.seconds]
        return max(edges[i + 1] - edges[i] for i in range(0, len(edges), 2))

    def __str__(self) -> str:
        gap = "no gap"
        if self.longest_gap > _GAP_SECONDS:
            gap = f"the longest gap took {number(self.longest_gap * 1e3)} ms"
        return f"Beside {self.work}, the main thread ran for {self.share:.0%} of the time; {gap}."


def beside(works: Sequence[str], seconds: float = 0.08) -> list[Turns]:
    """Watch the main thread beside each of these works, which get one thread of BLAS and torch.

    Args:
        works: of `labkit.lab.experiments.works.WORKS`.
        seconds: for each.

    Raises:
        ValueError: there is no such work.
    """
    return [_watched(work, seconds) for work in works]


def _watched(name: str, seconds: float) -> Turns:
    work, calls = make(name), Bars()
    begun, done = threading.Event(), threading.Event()

    def repeat() -> None:
        try:
            work()
        finally:
            begun.set()  # also where the work fails, or it would be waited for without end
        if name == _PYTHON:
            calls.extend(stretches(seconds))
        while not done.is_set() and name != _PYTHON:
            started = time.perf_counter()
            work()
            calls.append((started, time.perf_counter()))

    with several_threads(1), ThreadPoolExecutor(1, "works") as pool:
        repeated = pool.submit(repeat)
        try:
            begun.wait()
            began = time.perf_counter()
            ran = stretches(seconds)
        finally:  # also after a Ctrl-C
            done.set()
        repeated.result()
    return Turns(name, seconds, _within(ran, began, seconds), _within(calls, began, seconds))


def stretches(seconds: float) -> Bars:
    """Read the clock for so long; returns when that went on without a gap: (start, end)."""
    bars: Bars = []
    began = last = time.perf_counter()
    end = began + seconds
    while last < end:
        now = time.perf_counter()
        if now - last > _GAP_SECONDS:
            bars.append((began, last))
            began = now
        last = now
    return [*bars, (began, last)]


def _within(bars: Bars, began: float, seconds: float) -> tuple[tuple[float, float], ...]:
    """The bars on a clock that begins there, cut to what was watched."""
    moved = ((max(0.0, start - began), min(seconds, end - began)) for start, end in bars)
    return tuple((start, end) for start, end in moved if start < end)


def show(found: Sequence[Turns]) -> Picture:
    """The turns as bars, for a notebook cell to end in: two lanes for each work.

    Args:
        found: by `beside`; one or more.
    """
    words = " ".join(map(str, found))
    return Picture(
        draw=lambda dark: _draw(found, theme(dark)),
        alt=f"Bars over time, for the main thread and for another one. {words}",
        title=f"Figure: turns beside {', '.join(turns.work for turns in found)}",
        sentence=words,
    )


def _draw(found: Sequence[Turns], colours: Theme) -> Figure:
    height = _TOP + _GROUP * len(found) + _BELOW
    drawn = Figure(figsize=(_WIDTH, height), dpi=DPI, facecolor=colours.paper)
    pen = Pen(drawn)
    pen.write(["Who has a turn"], _MARGIN, 0.12, _TITLE, colours.ink)
    note = "Plain: the main thread runs Python code. Hatched: the other one is in a call, or waits."
    pen.write([note], _MARGIN, 0.42, _TEXT, colours.muted)
    for place, turns in enumerate(found):
        top = _TOP + _GROUP * place
        pen.write([f"beside {turns.work}"], _LEFT, top, _HEAD, colours.ink)
        lanes_top = top + 0.26
        for lane, name in enumerate(("main thread", "other thread")):
            y = lanes_top + _LANE * lane + 0.03
            pen.write([name], _LEFT - 0.12, y, _TEXT, colours.ink, "right")
        axes = _axes(drawn, height, lanes_top, turns, colours)
        axes.tick_params(labelbottom=turns is found[-1])
        _draw_lanes(axes, turns, colours)
    middle = _LEFT + (_WIDTH - _LEFT - _RIGHT) / 2
    pen.write(["milliseconds"], middle, height - 0.26, _TEXT, colours.ink, "center")
    return drawn


def _axes(drawn: Figure, height: float, top: float, turns: Turns, colours: Theme) -> Axes:
    wide, high = _WIDTH - _LEFT - _RIGHT, 2 * _LANE
    place = _LEFT / _WIDTH, 1 - (top + high) / height, wide / _WIDTH, high / height
    axes = drawn.add_axes(place, facecolor="none")
    axes.set(xlim=(0, turns.seconds * 1e3), ylim=(2, 0), yticks=[])
    axes.grid(axis="x", color=colours.grid, linewidth=0.8)
    keep_back(axes, colours, ["bottom"], size=8.5)
    return axes


def _draw_lanes(axes: Axes, turns: Turns, colours: Theme) -> None:
    lanes = ((turns.main, colours.data, ""), (turns.other, colours.interval, "///"))
    for lane, (bars, colour, hatch) in enumerate(lanes):
        in_ms = [(start * 1e3, (end - start) * 1e3) for start, end in bars]
        axes.broken_barh(
            in_ms,
            (lane + 0.12, 0.76),
            facecolor=colour,
            hatch=hatch,
            edgecolor=colours.ink,
            linewidth=0.6,
        )
