"""What each layer does when: spans, written by every process on one clock.

A layer says `with span("fetch"):` around its work. While nothing is traced that does next to
nothing; while a trace is on, it notes the beginning and the end on the monotonic clock, which all
processes of a machine share. Each thread has a *lane* of its own to write on, so the spans of a
lane never overlap.

After it: `recording.py`, the main process's lanes, and `logbook.py`, a worker's. `tracing.py` reads
it all. PyTorch has nothing like it: its profiler sees one process.
"""

from __future__ import annotations

import importlib
import threading
import time
from dataclasses import dataclass
from typing import Any

__all__ = ["LAYERS", "OFF", "Lane", "NoSpan", "OpenSpan", "Span", "here", "span"]

LAYERS = (
    "start",
    "sampler",
    "dispatch",
    "wait",
    "receive",
    "rebuild",
    "pin",
    "copy",
    "take",
    "void",
    "consumer",
    "resume",
    "fetch",
    "collate",
    "pickle",
    "send",
    "step",
)
"""The layers that write spans: up to "consumer" the main process's, from "resume" on a worker's,
which has a "wait" too. Without workers, "fetch" and "collate" are the main process's.

Two are moments: "take", a batch leaves the reorder buffer to be given to the consumer, and "void",
a task will have no result, for its iterable dataset has ended.
"""

try:
    _resource: Any = importlib.import_module("resource")
except ImportError:  # Windows counts no page faults for us
    _resource = None


@dataclass(frozen=True)
class Span:
    """What one thread did for one layer, from `start` to `end`.

    Attributes:
        lane: "main", "worker 0", "feeder 0", …: the thread that did it.
        layer: one of `LAYERS`.
        start, end: seconds on `time.monotonic()`.
        batch: its number in the epoch; -1 for none.
        epoch: of its iterator, from 0.
        message_bytes: what goes from a worker to the main process through the channel.
        shared_bytes: what lies in shared memory instead.
        minor_faults: page faults of this thread that needed no disk (getrusage(2)).
        worker: its number; -1 in the main process.
        loader: the number of the iterator among all that this process made.
        pid: the process.
    """

    lane: str
    layer: str
    start: float
    end: float
    batch: int = -1
    epoch: int = 0
    message_bytes: int = 0
    shared_bytes: int = 0
    minor_faults: int = 0
    worker: int = -1
    loader: int = 0
    pid: int = 0


def span(layer: str, batch: int | None = None) -> OpenSpan | NoSpan:
    """A span of this thread, to be entered with `with`.

    Args:
        layer: one of `LAYERS`.
        batch: its number; None for that of the span before. It can be set as an attribute until
            the span ends, and so can `message_bytes` and `shared_bytes`.
    """
    lane = here.lane
    return OFF if lane is None else lane.span(layer, batch)


class OpenSpan:
    """A span that has begun."""

    __slots__ = ("_faults", "_lane", "batch", "layer", "message_bytes", "shared_bytes", "start")

    def __init__(self, lane: Lane, layer: str, batch: int) -> None:
        self._lane = lane
        self.layer = layer
        self.batch = batch
        self.message_bytes = self.shared_bytes = 0

    def __enter__(self) -> OpenSpan:
        self._faults = _minor_faults()
        self.start = time.monotonic()
        return self

    def __exit__(self, *exc_info: object) -> None:
        end = time.monotonic()
        self._lane.batch = self.batch
        self._lane.write(self, end, _minor_faults() - self._faults)


class NoSpan:
    """What stands for a span, and for a step, while nothing is traced."""

    __slots__ = ("batch", "message_bytes", "shared_bytes")
    batch: int
    message_bytes: int
    shared_bytes: int

    def __enter__(self) -> NoSpan:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass


OFF = NoSpan()


class Lane:
    """Where one thread writes its spans.

    Attributes:
        batch: of the span before; a span that names none has the same.
    """

    batch = -1

    def span(self, layer: str, batch: int | None = None) -> OpenSpan | NoSpan:
        """See the function `span`."""
        return OpenSpan(self, layer, self.batch if batch is None else batch)

    def write(self, done: OpenSpan, end: float, faults: int) -> None:
        """Keep a span that has ended."""
        raise NotImplementedError


class _Here(threading.local):
    lane: Lane | None = None


here = _Here()
"""Each thread's lane, if it has one: in a worker for good, elsewhere while a trace is on."""


def _minor_faults() -> int:
    if _resource is None:
        return 0
    who = getattr(_resource, "RUSAGE_THREAD", _resource.RUSAGE_SELF)
    faults: int = _resource.getrusage(who).ru_minflt
    return faults
