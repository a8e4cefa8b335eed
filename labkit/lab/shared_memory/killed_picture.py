"""What was left of killed main processes, drawn over the time since the kill.

Before it: `killed`. After it: `plots.bars`, which draws the times, and `plots.pictures`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from labkit.lab.explain.wording import number
from labkit.lab.plots import bars
from labkit.lab.plots.pictures import Picture

if TYPE_CHECKING:
    from labkit.lab.shared_memory.killed import Left

__all__ = ["alt", "sentence", "show"]

_KINDS = {"its worker lives": bars.PLAIN, "names in /dev/shm": bars.HATCHED}


def show(left: Sequence[Left]) -> Picture:
    """The picture, with a sentence under it, for a notebook cell to end in."""
    return Picture(
        draw=partial(
            bars.draw,
            "What kill -9 of the main process leaves",
            {one.way.label: _bars(one) for one in left},
            _KINDS,
            "s since the kill",
        ),
        alt=alt(left),
        title="Figure: what kill -9 of the main process leaves, over time",
        sentence=sentence(left),
    )


def alt(left: Sequence[Left]) -> str:
    """What each way leaves, and for how long; and then the sentence."""
    parts = ["Bars over the seconds since a kill -9 of the main process, by way."]
    for one in left:
        worker = f"worker gone after {_seconds(one.worker_s, one.watched_s)}"
        names = "no names"
        if one.names:
            count = "1 name" if one.names == 1 else f"{one.names} names"
            names = f"{count}, gone after {_seconds(one.names_s, one.watched_s)}"
        parts.append(f"{one.way.label}: {worker}; {names}.")
    return " ".join([*parts, sentence(left)])


def sentence(left: Sequence[Left]) -> str:
    """Which way's worker lived longest, and which ways left names."""
    longest = max(left, key=lambda one: one.watched_s if one.worker_s is None else one.worker_s)
    shortest = min(left, key=lambda one: one.watched_s if one.worker_s is None else one.worker_s)
    named = ", ".join(
        f"{one.way.label} (for {_seconds(one.names_s, one.watched_s)})" for one in left if one.names
    )
    return (
        "One kill each, on this machine. The first worker was gone after "
        f"{_seconds(shortest.worker_s, shortest.watched_s)} ({shortest.way.label}), the last after "
        f"{_seconds(longest.worker_s, longest.watched_s)} ({longest.way.label}). "
        f"Names were left by {named or 'none'}."
    )


def _seconds(seconds: float | None, watched_s: float) -> str:
    if seconds is None:
        return f"more than the {number(watched_s)} s for which it was watched"
    return f"{seconds:.2f} s"


def _bars(one: Left) -> list[bars.Bar | None]:
    return [
        _bar(one.worker_s, one.watched_s),
        _bar(one.names_s, one.watched_s) if one.names else None,
    ]


def _bar(seconds: float | None, watched_s: float) -> bars.Bar:
    if seconds is None:
        return bars.Bar(watched_s, "still there")
    return bars.Bar(seconds, f"{seconds:.2f}")
