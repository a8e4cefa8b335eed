"""The timeline of a loader and of the Preloader around it, in one picture.

A trace keeps their spans apart, since each gives batches. Batch k of one is batch k of the other,
so they can stand above each other: workers, preloader, copies, steps.

Before it: `labkit.tracing`. After it: `timeline`, which draws.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from labkit.lab import timeline
from labkit.lab.plots.pictures import Picture
from labkit.spans import Span
from labkit.tracing import Steps, Trace

__all__ = ["Together", "show"]


def show(trace: Trace, batches: range | None = None) -> Picture:
    """The timeline for a notebook cell to end in.

    Args:
        trace: of one epoch of a `labkit.Preloader` over a labkit loader with workers.
        batches: their numbers; None for the first dozen.

    Raises:
        ValueError: the trace has no batch, or none of these.
    """
    return timeline.show(Together(trace), batches)


class Together:
    """A trace in which the Preloader's spans are among those of its loader.

    Attributes:
        spans: by start. That the thread of the Preloader is the loader's consumer is left out: what
            it does as such stands there.
        max_depth: the loader's.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.spans = list(_joined(trace.spans))
        self.max_depth = trace.max_depth

    def depth(self, loader: int) -> Steps:
        """The loader's tasks under way."""
        return self._trace.depth(loader)

    def reorder_buffer(self, loader: int) -> Steps:
        """The loader's batches that wait for their turn."""
        return self._trace.reorder_buffer(loader)


def _joined(spans: list[Span]) -> Iterator[Span]:
    of_workers = [span for span in spans if span.worker >= 0]
    if not of_workers:
        yield from spans
        return
    loader, epoch = of_workers[0].loader, of_workers[0].epoch
    for span in spans:
        if not (span.lane == "preloader" and span.layer == "consumer"):
            yield replace(span, loader=loader, epoch=epoch)
