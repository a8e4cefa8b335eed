"""The part of a trace that fits on a page: some batches of one epoch, and what went on meanwhile.

Before it: `labkit.tracing`. After it: `timeline`, which draws it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from labkit.lab.explain.wording import duration
from labkit.spans import LAYERS, Span
from labkit.tracing import Steps

__all__ = ["Traced", "Window", "kind"]

_MOMENTS = ("take", "void")  # they take no time, so there is nothing to draw
_FEWEST, _MOST = 12, 100  # batches; of more the bars are too narrow to be told apart


class Traced(Protocol):
    """What is drawn of a `labkit.tracing.Trace`."""

    spans: list[Span]
    max_depth: int

    def depth(self, loader: int) -> Steps:
        """A loader's tasks under way."""

    def reorder_buffer(self, loader: int) -> Steps:
        """A loader's batches that wait for their turn."""


@dataclass(frozen=True)
class Window:
    """What is drawn.

    Attributes:
        spans: those of one loader and epoch, cut off at `start` and `end`.
        batches: the first and the last of those asked for.
        epoch: whose they are.
        start, end: seconds on `time.monotonic()`.
        began: when the trace began, on the same clock.
        left_out: seconds at the beginning, in which the workers started, that are not drawn.
    """

    spans: list[Span]
    batches: tuple[int, int]
    epoch: int
    start: float
    end: float
    began: float
    left_out: float = 0.0

    @property
    def loader(self) -> int:
        """Whose spans they are."""
        return self.spans[0].loader

    @classmethod
    def of(cls, trace: Traced, batches: range | None = None) -> Window:
        """The window in which these batches were made and used, in the trace's first epoch.

        Args:
            trace: what was recorded.
            batches: their numbers; None for the first dozen, or more where more are under way.

        Raises:
            ValueError: the trace has no batch, none of these, or too many of them.
        """
        first = next((span for span in trace.spans if _is_of_a_batch(span)), None)
        if first is None:
            raise ValueError(
                "the trace has no batch: iterate over a labkit.DataLoader inside of its with block"
            )
        whose = first.loader, first.epoch
        spans = [span for span in trace.spans if (span.loader, span.epoch) == whose]
        there = sorted({span.batch for span in spans if _is_of_a_batch(span)})
        if batches is None:
            batches = range(min(max(_FEWEST, 2 * trace.max_depth), _MOST))
        wanted = [number for number in there if number in batches]
        if not wanted:
            raise ValueError(
                f"the trace has no batch in {batches}: it has {there[0]} to {there[-1]}, "
                f"so write, say, batches=range({there[0]}, {there[-1] + 1})"
            )
        if len(wanted) > _MOST:
            raise ValueError(
                f"{len(wanted)} batches are too many to be seen on a page: ask for {_MOST} at "
                f"most, say, batches=range({wanted[0]}, {wanted[0] + _FEWEST})"
            )
        chosen = set(wanted)
        # What a worker that stayed does before the epoch's first batch belongs to that.
        asked = [
            span
            for span in spans
            if span.batch in chosen or (span.layer == "resume" and 0 in chosen)
        ]
        start, end = min(span.start for span in asked), max(span.end for span in asked)
        begins = _without_start_up(asked, start, end)
        return cls(
            spans=list(_cut(spans, begins, end)),
            batches=(wanted[0], wanted[-1]),
            epoch=first.epoch,
            start=begins,
            end=end,
            began=trace.spans[0].start,
            left_out=begins - start,
        )

    @property
    def seconds(self) -> float:
        """How long it is, at least a nanosecond."""
        return max(self.end - self.start, 1e-9)

    @property
    def title(self) -> str:
        """Which batches these are."""
        first, last = self.batches
        which = f"batch {first}" if first == last else f"batches {first} to {last}"
        return f"Timeline of {which} of epoch {self.epoch}"

    @property
    def before(self) -> str:
        """What was left out, in words; empty if nothing was."""
        if not self.left_out:
            return ""
        return f"Before it, the workers started for {duration(self.left_out)}; that is not drawn."

    @cached_property
    def lanes(self) -> list[str]:
        """Main first, then each worker with its feeder."""
        return sorted({span.lane for span in self.spans}, key=_lane_order)

    @cached_property
    def layers(self) -> dict[str, list[str]]:
        """By kind of lane (the name without its number): the layers, as `LAYERS` orders them."""
        found = {kind(lane): set[str]() for lane in self.lanes}
        for span in self.spans:
            found[kind(span.lane)].add(span.layer)
        order = {layer: place for place, layer in enumerate(LAYERS)}
        return {
            name: sorted(layers, key=lambda layer: (order.get(layer, len(order)), layer))
            for name, layers in found.items()
        }

    def shares(self) -> dict[str, dict[str, float]]:
        """By lane, by layer: its part of the window's time."""
        found: dict[str, dict[str, float]] = {lane: defaultdict(float) for lane in self.lanes}
        for span in self.spans:
            found[span.lane][span.layer] += (span.end - span.start) / self.seconds
        return found

    def steps(self, steps: Steps) -> Steps:
        """The part of them in the window, from its start to its end."""
        before = bisect_right(steps, self.start, key=lambda step: step[0])
        at_start = steps[before - 1][1] if before else 0
        inside = [(at, value) for at, value in steps[before:] if at <= self.end]
        return [(self.start, at_start), *inside, (self.end, inside[-1][1] if inside else at_start)]


def _is_of_a_batch(span: Span) -> bool:
    # The sampler is also asked for the one after the last.
    return span.batch >= 0 and span.layer != "sampler"


def kind(lane: str) -> str:
    """The lane's name without its number: "main", "worker", "feeder"."""
    return re.sub(r"\s*\d+$", "", lane)


def _lane_order(lane: str) -> tuple[bool, int, bool, str]:
    number = re.search(r"\d+$", lane)
    in_worker = kind(lane) in ("worker", "feeder")
    return (
        in_worker,
        int(number[0]) if number else -1,
        lane != "main" and kind(lane) != "worker",
        lane,
    )


def _without_start_up(asked: list[Span], start: float, end: float) -> float:
    """Where to begin: not at `start` if most of the page would show workers that start."""
    fetches = [span.start for span in asked if span.layer == "fetch" and span.worker >= 0]
    if not fetches or min(fetches) - start < (end - start) / 3:
        return start
    return min(fetches) - 0.03 * (end - min(fetches))


def _cut(spans: Iterable[Span], start: float, end: float) -> Iterable[Span]:
    for span in spans:
        if span.layer not in _MOMENTS and span.start < end and span.end > start:
            yield replace(span, start=max(span.start, start), end=min(span.end, end))
