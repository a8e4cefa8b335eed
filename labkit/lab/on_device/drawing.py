"""What a device did, drawn: a lane for each stream, and one for the calls of the main thread.

Before it: `labkit.simulated.Operation`, of the simulated device's `on_operation` or of `work_log`.
After it: `plots.pictures`, which brings the figure into a notebook.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from labkit.lab import need
from labkit.lab.explain.wording import duration
from labkit.lab.on_device.work_log import Call
from labkit.lab.plots.axis import keep_back
from labkit.lab.plots.lettering import DPI, Pen, Type, width_inches, wrapped
from labkit.lab.plots.palette import Style, Theme, layer_style, theme
from labkit.lab.plots.pictures import Picture
from labkit.simulated import Operation

need("matplotlib")

from matplotlib.axes import Axes  # noqa: E402 (what is missing is named first)
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.patches import Rectangle  # noqa: E402
from matplotlib.ticker import MaxNLocator  # noqa: E402

__all__ = ["draw"]

_WIDTH, _MARGIN, _LANE, _AXIS = 8.2, 0.15, 0.38, 0.62
_TITLE = Type(13, 0.3, "bold")
_TEXT = Type(9, 0.2)
_NUMBER = Type(8, 0.18)
_CALLS = "main thread's calls"
_LEGEND = {
    "copy": "copy",
    "step": "step",
    "wrong": "step that read a wrong value",
    "wait": "the thread waits",
}
_SAMPLE = 0.3


def draw(
    operations: Sequence[Operation],
    calls: Sequence[Call] = (),
    *,
    title: str,
    device: str,
    wrong: Collection[str] = (),
    sentence: str = "",
) -> Picture:
    """The timeline with a sentence under it, for a notebook cell to end in.

    Args:
        operations: of the device; a lane for each stream, in the order in which they come.
        calls: of the main thread, for a lane above the others.
        title: of the figure.
        device: its name, and that it is simulated if it is: `here(device)["device"]`.
        wrong: names of the operations that read a wrong value; they are marked.
        sentence: what stands under it; "" for none.

    Raises:
        ValueError: there is no operation.
    """
    if not operations:
        raise ValueError("there is no operation to draw: run something on the device first")
    sheet = _Sheet(tuple(operations), tuple(calls), title, device, frozenset(wrong))
    return Picture(
        draw=sheet.figure,
        alt=sheet.alt_text(),
        title=f"Figure: {title}, a timeline",
        sentence=sentence,
    )


@dataclass(frozen=True)
class _Bar:
    """What went on in a lane, in seconds since the beginning."""

    lane: str
    kind: str  # of `_LEGEND`
    start: float
    end: float
    words: str


@dataclass(frozen=True)
class _Sheet:
    """Where things stand, in inches from the top left corner."""

    operations: tuple[Operation, ...]
    calls: tuple[Call, ...]
    title: str
    device: str
    wrong: frozenset[str]

    @cached_property
    def lanes(self) -> list[str]:
        first = [_CALLS] if self.calls else []
        return first + list(dict.fromkeys(o.stream for o in self.operations))

    @cached_property
    def began(self) -> float:
        return min([o.start for o in self.operations] + [c.start for c in self.calls])

    @cached_property
    def seconds(self) -> float:
        ends = [o.end for o in self.operations] + [c.end for c in self.calls]
        return max(max(ends) - self.began, 1e-9)

    @cached_property
    def bars(self) -> list[_Bar]:
        began = self.began
        calls = [
            _Bar(_CALLS, _kind(c.kind), c.start - began, c.end - began, _number(c.name))
            for c in self.calls
        ]
        return calls + [
            _Bar(o.stream, self._kind(o), o.start - began, o.end - began, _number(o.name))
            for o in self.operations
        ]

    def _kind(self, operation: Operation) -> str:
        if operation.name in self.wrong:
            return "wrong"
        return _kind(operation.kind)

    @property
    def left(self) -> float:
        return max(width_inches(lane, _TEXT) for lane in self.lanes) + _MARGIN + 0.12

    @property
    def notes(self) -> list[str]:
        text = f"A number: which batch. Times of: {self.device}."
        return wrapped(text, _WIDTH - 2 * _MARGIN, _TEXT)

    @property
    def top(self) -> float:
        return _MARGIN + _TITLE.line + _TEXT.line * len(self.notes) + 0.08

    @property
    def bottom(self) -> float:
        return self.top + _LANE * len(self.lanes)

    @property
    def height(self) -> float:
        return self.bottom + _AXIS + 0.26 + _MARGIN

    def figure(self, dark: bool) -> Figure:
        colours = theme(dark)
        drawn = Figure(figsize=(_WIDTH, self.height), dpi=DPI, facecolor=colours.paper)
        pen = Pen(drawn)
        pen.write([self.title], _MARGIN, _MARGIN, _TITLE, colours.ink)
        pen.write(self.notes, _MARGIN, _MARGIN + _TITLE.line, _TEXT, colours.muted)
        axes = self._axes(drawn, dark)
        for i, lane in enumerate(self.lanes):
            y = self.top + i * _LANE + (_LANE - _TEXT.line) / 2
            pen.write([lane], self.left - 0.12, y, _TEXT, colours.ink, "right")
            axes.axhspan(i, i + 1, color=colours.paper if i % 2 else colours.band, zorder=0)
        for bar in self.bars:
            self._draw_bar(axes, pen, bar, dark)
        words = f"{self._unit[0]} since the first call" if self.calls else self._unit[0]
        middle = self.left + self._wide / 2
        pen.write([words], middle, self.bottom + 0.28, _TEXT, colours.ink, "center")
        self._draw_legend(drawn, pen, dark)
        return drawn

    @property
    def _wide(self) -> float:
        return _WIDTH - self.left - 0.25

    @property
    def _unit(self) -> tuple[str, float]:
        return ("ms", 1e3) if self.seconds >= 2e-3 else ("µs", 1e6)

    def _axes(self, drawn: Figure, dark: bool) -> Axes:
        place = (
            self.left / _WIDTH,
            1 - self.bottom / self.height,
            self._wide / _WIDTH,
            _LANE * len(self.lanes) / self.height,
        )
        axes, colours = drawn.add_axes(place, facecolor="none"), theme(dark)
        end = self.seconds * self._unit[1] * 1.02
        axes.set(xlim=(0, end), ylim=(len(self.lanes), 0), yticks=[])
        axes.set_xticks([tick for tick in MaxNLocator(7).tick_values(0, end) if tick <= end])
        axes.grid(axis="x", color=colours.grid, linewidth=0.8)
        keep_back(axes, colours, ["bottom"])
        return axes

    def _draw_bar(self, axes: Axes, pen: Pen, bar: _Bar, dark: bool) -> None:
        style, lane = _style(bar.kind), self.lanes.index(bar.lane)
        scale = self._unit[1]
        length = max(bar.end - bar.start, 0.003 * self.seconds)  # to be seen, however short
        axes.broken_barh(
            [(bar.start * scale, length * scale)],
            (lane + 0.12, 0.76),
            **_looks(bar.kind, theme(dark)),
        )
        if self._goes_on(bar):
            ends = lane + 0.12, lane + 0.88
            axes.plot([bar.start * scale] * 2, ends, color="white", linewidth=1.5)
        inches = length / (self.seconds * 1.02) * self._wide
        words = f"{bar.words} wrong" if bar.kind == "wrong" else bar.words
        if width_inches(words, _NUMBER) + 0.06 > inches:
            words = f"{bar.words}!" if bar.kind == "wrong" else bar.words
        if words and width_inches(words, _NUMBER) + 0.02 <= inches:
            x = self.left + (bar.start + length / 2) / (self.seconds * 1.02) * self._wide
            y = self.top + lane * _LANE + (_LANE - _NUMBER.line) / 2
            ink = style.ink if style.colour else theme(dark).ink
            pen.write([words], x, y, _NUMBER, ink, "center", behind=style.colour)

    def _goes_on(self, bar: _Bar) -> bool:
        """Whether it would look like one with the bar before it: both have the same hatch."""
        like = [other for other in self.bars if (other.lane, other.kind) == (bar.lane, bar.kind)]
        return any(
            other is not bar and abs(other.end - bar.start) < 0.005 * self.seconds for other in like
        )

    def _draw_legend(self, drawn: Figure, pen: Pen, dark: bool) -> None:
        x, y = _MARGIN, self.bottom + _AXIS
        there = {bar.kind for bar in self.bars}
        for kind in (kind for kind in _LEGEND if kind in there):
            sample = Rectangle(
                (x / _WIDTH, 1 - (y + 0.175) / self.height),
                _SAMPLE / _WIDTH,
                0.15 / self.height,
                transform=drawn.transFigure,
                **_looks(kind, theme(dark)),
            )
            drawn.add_artist(sample)
            words = _LEGEND[kind]
            pen.write([words], x + _SAMPLE + 0.06, y, _TEXT, theme(dark).ink)
            x += _SAMPLE + 0.06 + width_inches(words, _TEXT) + 0.25

    def alt_text(self) -> str:
        """What is drawn, in words: by lane, when each piece of work began and ended."""
        parts = [f"Timeline, {self.title}: {duration(self.seconds)} long, of {self.device}."]
        for lane in self.lanes:
            bars = [bar for bar in self.bars if bar.lane == lane]
            said = ", ".join(
                f"{bar.kind if bar.kind != 'wrong' else 'step (wrong value)'} {bar.words} from "
                f"{duration(bar.start)} to {duration(bar.end)}"
                for bar in bars
            )
            parts.append(f"{lane}: {said}.")
        return " ".join(parts)


def _number(name: str) -> str:
    """The batch's number, out of "copy 3" or "batch 3"; else the name."""
    found = re.search(r"\d+", name)
    return found[0] if found else name


def _kind(work: str) -> str:
    return work if work in _LEGEND else "copy"


def _style(kind: str) -> Style:
    return Style("#d55e00", "xxx") if kind == "wrong" else layer_style(kind)


def _looks(kind: str, colours: Theme) -> dict[str, Any]:
    """In matplotlib's words."""
    style = _style(kind)
    return {
        "facecolor": style.colour or "none",
        "edgecolor": "#1a1a1a" if style.colour else colours.muted,
        "linestyle": "-" if style.colour else ":",
        "hatch": style.hatch,
        "linewidth": 1.8 if kind == "wrong" else 0.7,
    }
