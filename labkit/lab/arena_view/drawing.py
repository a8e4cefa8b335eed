"""Arenas as a figure: a row of boxes for each segment, a box for each slot, who has it written in.

Before it: `slots`. After it: the package.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from labkit.lab import need
from labkit.lab.arena_view.slots import STATES, Segment, Slot, State, Worker
from labkit.lab.experiments.comparisons import bytes_words
from labkit.lab.plots.lettering import DPI, Pen, Type
from labkit.lab.plots.palette import Theme, theme
from labkit.lab.plots.pictures import Picture

need("matplotlib")

from matplotlib.figure import Figure  # noqa: E402 (what is missing is named first)
from matplotlib.patches import Rectangle  # noqa: E402

__all__ = ["in_words", "show"]

_WIDTH, _MARGIN = 8.2, 0.15
_BOX_WIDTH, _BOX_HEIGHT, _GAP = 0.92, 0.52, 0.06
_A_ROW = 8  # boxes
_MOST_UNSEEN = 3  # at a segment's end; of the others only the count is drawn
_TITLE = Type(13, 0.27, "bold")
_TEXT = Type(9, 0.2)
_BOX = Type(8, 0.17)
_BOLD = Type(8, 0.17, "bold")


@dataclass(frozen=True)
class _Look:
    """How a slot's box looks: filled or not, its hatching, its edge."""

    colour: str | None
    hatch: str = ""
    line: str = "-"
    width: float = 1.0


# Each differs in its hatching or its edge as well as in colour, and has its word in it.
_LOOKS: dict[State, _Look] = {
    "in hand": _Look("#e69f00", width=2.6),
    "kept": _Look("#56b4e9"),
    "arrived": _Look("#cc79a7", hatch="..."),
    "going back": _Look(None, hatch="////", line="--"),
    "given back": _Look(None),
    "never seen": _Look(None, line=":"),
}


def show(workers: Sequence[Worker], said: str = "") -> Picture:
    """The slots, with what is held under them.

    Args:
        workers: each one's arena.
        said: what was done last.
    """
    words = in_words(workers)
    return Picture(
        draw=lambda dark: _figure(workers, said, theme(dark)),
        alt=f"The arena, drawn. {said} {words}",
        title="Figure: the slots of the arena, and who has them",
        sentence=_counts(workers),
    )


def in_words(workers: Sequence[Worker]) -> str:
    """Every segment with its slots, as text."""
    if not any(worker.segments for worker in workers):
        return "No slot was seen yet."
    parts = []
    for worker in workers:
        for segment in worker.segments:
            slots = "; ".join(
                f"{_which(first, last)} {words}" for first, last, words in _runs(segment)
            )
            parts.append(f"Worker {worker.number}, {_heading(segment)}: {slots}.")
    return " ".join(parts)


def _runs(segment: Segment) -> list[tuple[int, int, str]]:
    """Slots beside each other of which the same is to be said: (first, last, what)."""
    numbered = enumerate(segment.slots)
    runs = []
    for words, group in groupby(numbered, key=lambda pair: _slot_words(pair[1])):
        places = [place for place, _ in group]
        runs.append((places[0], places[-1], words))
    return runs


def _which(first: int, last: int) -> str:
    return f"slot {first}" if first == last else f"slots {first} to {last}"


def _slot_words(slot: Slot) -> str:
    batches = " and ".join(map(str, slot.batches))
    return f"{slot.state}, batch {batches}" if slot.batches else slot.state


def _heading(segment: Segment) -> str:
    count = len(segment.slots)
    return (
        f"segment {segment.number} with {count} slot{'' if count == 1 else 's'} of "
        f"{bytes_words(segment.slot_bytes)}"
    )


def _counts(workers: Sequence[Worker]) -> str:
    parts = []
    for state, meaning in STATES.items():
        count = sum(worker.count(state) for worker in workers)
        if count:
            parts.append(f"{count} {state} ({meaning})")
    return f"Slots: {'; '.join(parts)}." if parts else "No slot was seen yet."


# Drawn


@dataclass(frozen=True)
class _Drawn:
    """A figure under way."""

    figure: Figure
    pen: Pen
    colours: Theme
    height: float


def _figure(workers: Sequence[Worker], said: str, colours: Theme) -> Figure:
    lines = [
        (f"worker {worker.number}, {_heading(segment)}", _boxes(segment))
        for worker in workers
        for segment in worker.segments
    ]
    rows = sum(-(-len(boxes) // _A_ROW) for _, boxes in lines)
    height = 0.75 + len(lines) * (_TEXT.line + 0.08) + rows * (_BOX_HEIGHT + _GAP)
    figure = Figure(figsize=(_WIDTH, height), dpi=DPI, facecolor=colours.paper)
    drawn = _Drawn(figure, Pen(figure), colours, height)
    drawn.pen.write(["The arena's slots, and who has them"], _MARGIN, 0.12, _TITLE, colours.ink)
    y = drawn.pen.write([said or "No slot was seen yet."], _MARGIN, 0.41, _TEXT, colours.muted)
    for heading, boxes in lines:
        y = drawn.pen.write([heading], _MARGIN, y + 0.08, _TEXT, colours.ink)
        for place, box in enumerate(boxes):
            if place and place % _A_ROW == 0:
                y += _BOX_HEIGHT + _GAP
            left = _MARGIN + place % _A_ROW * (_BOX_WIDTH + _GAP)
            _draw_box(drawn, box, left, y)
        y += _BOX_HEIGHT + _GAP
    return figure


_Box = tuple[State, str, str]
"""(state, first line, second line)."""


def _boxes(segment: Segment) -> list[_Box]:
    """One a slot, but for those at the end that were never seen, if they are many."""
    slots = list(segment.slots)
    unseen = 0
    while unseen < len(slots) and slots[-1 - unseen].state == "never seen":
        unseen += 1
    left_out = unseen - _MOST_UNSEEN if unseen > _MOST_UNSEEN + 1 else 0
    shown = slots[: len(slots) - left_out]
    boxes: list[_Box] = [
        (slot.state, f"batch {', '.join(map(str, slot.batches))}" if slot.batches else "",
         slot.state)
        for slot in shown
    ]  # fmt: skip
    return [*boxes, ("never seen", f"{left_out} more", "never seen")] if left_out else boxes


def _draw_box(drawn: _Drawn, box: _Box, left: float, top: float) -> None:
    state, first, second = box
    look, colours = _LOOKS[state], drawn.colours
    drawn.figure.add_artist(
        Rectangle(
            (left / _WIDTH, 1 - (top + _BOX_HEIGHT) / drawn.height),
            _BOX_WIDTH / _WIDTH,
            _BOX_HEIGHT / drawn.height,
            facecolor=look.colour or colours.paper,
            edgecolor=colours.muted if state in ("going back", "never seen") else colours.ink,
            hatch=look.hatch,
            linestyle=look.line,
            linewidth=look.width,
            transform=drawn.figure.transFigure,
        )
    )
    ink = "#000000" if look.colour else colours.ink if state != "never seen" else colours.muted
    behind = look.colour or colours.paper if look.hatch else None
    middle = left + _BOX_WIDTH / 2
    y = top + (_BOX_HEIGHT - _BOX.line * (2 if first else 1)) / 2
    if first:
        y = drawn.pen.write([first], middle, y, _BOLD, ink, "center", behind)
    drawn.pen.write([second], middle, y, _BOX, ink, "center", behind)
