"""What the loader's spans cost: on, by tracing a loader in the bench; off, by counting.

Off, a span takes so little that no run of a loader would show it. So its time is measured by
itself, many at once, and multiplied by how many a batch has.

Before it: `sides` and `bench`.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import labkit
from labkit.lab.resources import running
from labkit.spans import span

__all__ = ["SpanCost", "Traced", "span_cost"]

_SPANS = 20_000
_REPEATS = 5


@dataclass(frozen=True)
class SpanCost:
    """What spans take while nothing is traced."""

    spans_a_batch: float  #: in all processes
    seconds_a_span: float  #: the least of some repeats

    @property
    def seconds_a_batch(self) -> float:
        """In all processes together."""
        return self.spans_a_batch * self.seconds_a_span


class Traced:
    """A loader that is traced while it is iterated over."""

    def __init__(self, loader: Iterable[Any]) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        with labkit.trace(), running(self._loader) as batches:
            yield from batches


def span_cost(make_loader: Callable[[], Iterable[Any]], batches: int) -> SpanCost:
    """Count the spans of so many batches of a loader, and time a span that nobody wants."""
    with labkit.trace() as trace, running(make_loader()) as iterator:
        for _ in islice(iterator, batches):
            pass
    taken = sum(span.layer == "take" for span in trace.spans)
    seconds = min(timeit.repeat(_enter_one, number=_SPANS, repeat=_REPEATS)) / _SPANS
    return SpanCost(len(trace.spans) / taken, seconds)


def _enter_one() -> None:
    with span("fetch"):
        pass
