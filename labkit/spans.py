"""What each layer does when: spans, written by every process on one clock.

A layer says `with span("fetch"):` around its work. While nothing is traced that does next to
nothing; while a trace is on, it notes the beginning and the end on the monotonic clock, which all
processes of a machine share. Each thread has a *lane* of its own to write on, so the spans of a
lane never overlap.

A worker's lanes lie in its `Logbook`, shared memory that the main process maps too: nothing has to
be sent, and what a killed worker wrote is still there. `tracing.py` reads it all.
PyTorch has nothing like it: its profiler sees one process.
"""

from __future__ import annotations

import ctypes
import importlib
import itertools
import os
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from labkit.sharing import Segment

__all__ = [
    "LAYERS",
    "Logbook",
    "MainLane",
    "Recorder",
    "Source",
    "Span",
    "TracedWorker",
    "WorkerLane",
    "here",
    "make_traceable",
    "span",
    "step",
    "traceable",
]

LAYERS = (
    "start",
    "sampler",
    "dispatch",
    "wait",
    "receive",
    "rebuild",
    "take",
    "void",
    "consumer",
    "resume",
    "fetch",
    "collate",
    "pickle",
    "send",
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


def span(layer: str, batch: int | None = None) -> _Open | _Off:
    """A span of this thread, to be entered with `with`.

    Args:
        layer: one of `LAYERS`.
        batch: its number; None for that of the span before. It can be set as an attribute until
            the span ends, and so can `message_bytes` and `shared_bytes`.
    """
    lane = here.lane
    return _OFF if lane is None else lane.span(layer, batch)


class _Open:
    """A span that has begun."""

    __slots__ = ("_faults", "_lane", "batch", "layer", "message_bytes", "shared_bytes", "start")

    def __init__(self, lane: Lane, layer: str, batch: int) -> None:
        self._lane = lane
        self.layer = layer
        self.batch = batch
        self.message_bytes = self.shared_bytes = 0

    def __enter__(self) -> _Open:
        self._faults = _minor_faults()
        self.start = time.monotonic()
        return self

    def __exit__(self, *exc_info: object) -> None:
        end = time.monotonic()
        self._lane.batch = self.batch
        self._lane.write(self, end, _minor_faults() - self._faults)


class _Off:
    """What stands for a span while nothing is traced."""

    __slots__ = ("batch", "message_bytes", "shared_bytes")
    batch: int
    message_bytes: int
    shared_bytes: int

    def __enter__(self) -> _Off:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass


_OFF = _Off()


class Lane:
    """Where one thread writes its spans.

    Attributes:
        batch: of the span before; a span that names none has the same.
    """

    batch = -1

    def span(self, layer: str, batch: int | None = None) -> _Open | _Off:
        """See the function `span`."""
        return _Open(self, layer, self.batch if batch is None else batch)

    def write(self, done: _Open, end: float, faults: int) -> None:
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


# The main process

_serials = itertools.count()


@dataclass
class Source:
    """Which iterator spans come from."""

    max_depth: int  #: batches that may be under way at once
    serial: int = field(default_factory=lambda: next(_serials))
    epoch: int = 0


class TracedWorker(Protocol):
    """A worker as a trace knows it."""

    @property
    def id(self) -> int: ...
    @property
    def pid(self) -> int: ...
    @property
    def logbook(self) -> Logbook: ...
    @property
    def source(self) -> Source: ...


class Recorder(Protocol):
    """A running trace as the loader knows it."""

    def lane(self, source: Source) -> MainLane:
        """The lane of this thread, which iterates over `source`."""

    def follow(self, worker: TracedWorker) -> None:
        """Read this worker's spans too."""

    def leave(self, worker: TracedWorker) -> None:
        """Read what is left of this worker's spans: it has ended."""


recorder: Recorder | None = None
"""The running trace."""

_workers: weakref.WeakSet[TracedWorker] = weakref.WeakSet()


def make_traceable(worker: TracedWorker) -> None:
    """Let the trace that runs read a new worker's spans, and those that begin later."""
    _workers.add(worker)
    if recorder is not None:
        recorder.follow(worker)


def end_of(worker: TracedWorker) -> None:
    """Let the trace that runs read a worker's last spans."""
    _workers.discard(worker)
    if recorder is not None:
        recorder.leave(worker)


def traceable() -> list[TracedWorker]:
    """The workers that this process has now."""
    return list(_workers)


def step(source: Source) -> MainLane | _Unseen | _Off:
    """Around all that an iterator does in this process until it returns to its consumer."""
    if here.lane is not None:
        return _Unseen()
    running = recorder  # another thread may end it
    return _OFF if running is None else running.lane(source)


class _Unseen:
    """Stands for a step within a step: of a loader that a dataset uses. It is part of a "fetch"."""

    def __enter__(self) -> None:
        self._lane, here.lane = here.lane, None

    def __exit__(self, *exc_info: object) -> None:
        here.lane = self._lane


class MainLane(Lane):
    """A lane of the main process, entered around each step of an iterator.

    Args:
        name: of the thread.

    Attributes:
        spans: what it wrote.
        next_source: what is iterated over from the next step on.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.spans: list[Span] = []
        self._pid = os.getpid()
        self._taken: int | None = None  # the batch that this step gives
        self._given_at: float | None = None  # since when the consumer has it
        self.next_source = self._source = Source(0, serial=-1)

    def write(self, done: _Open, end: float, faults: int) -> None:
        if done.layer == "take":
            self._taken = done.batch
        sizes = done.message_bytes, done.shared_bytes, faults
        self._append(done.layer, done.start, end, done.batch, sizes)

    def _append(
        self, layer: str, start: float, end: float, batch: int, sizes: tuple[int, int, int]
    ) -> None:
        source = self._source
        span = Span(
            self._name,
            layer,
            start,
            end,
            batch,
            source.epoch,
            *sizes,
            loader=source.serial,
            pid=self._pid,
        )
        self.spans.append(span)

    def __enter__(self) -> MainLane:
        self.end_consumer()
        self._source, self._taken = self.next_source, None
        here.lane = self
        return self

    def __exit__(self, *exc_info: object) -> None:
        here.lane = None
        if self._taken is not None:
            self._given_at = time.monotonic()

    def end_consumer(self) -> None:
        """Write what the consumer did since it was given a batch, if it was."""
        if self._given_at is not None and self._taken is not None:
            self._append("consumer", self._given_at, time.monotonic(), self._taken, (0, 0, 0))
            self._given_at = None


# A worker

_HEAD_BYTES = 64
_CAPACITY = 1 << 14  # spans a lane: 1 MiB, of which only what is written takes memory
_LANES = ("worker", "feeder")
_RECORD = np.dtype(  # the fields of `Span` in their order, but for what the worker need not say
    [
        ("layer", "i8"),
        ("start", "f8"),
        ("end", "f8"),
        ("batch", "i8"),
        ("epoch", "i8"),
        ("message_bytes", "i8"),
        ("shared_bytes", "i8"),
        ("minor_faults", "i8"),
    ]
)


class _Head(ctypes.Structure):
    batch: int
    is_traced: int
    written: Any
    _fields_ = (
        ("batch", ctypes.c_int64),
        ("is_traced", ctypes.c_int64),
        ("written", ctypes.c_int64 * len(_LANES)),
    )


class Logbook:
    """What a worker notes for the main process: the batch that it has begun, and its spans.

    Args:
        memory: shared, of `Logbook.NBYTES` bytes, all zero at first.

    Attributes:
        head: batch, the number of the one begun last; is_traced, whether spans are wanted; written,
            for each lane how many spans it ever had.
        records: the latest spans, (lanes, capacity).
    """

    NBYTES = _HEAD_BYTES + len(_LANES) * _CAPACITY * _RECORD.itemsize

    def __init__(self, memory: Segment) -> None:
        whole = memory.exporter(0, self.NBYTES)
        self.head = _Head.from_buffer(whole)
        records = np.frombuffer(whole, dtype=_RECORD, offset=_HEAD_BYTES)
        self.records = records.reshape(len(_LANES), -1)

    def lane(self, name: str) -> WorkerLane:
        """The lane of the thread of that name: "worker" or "feeder"."""
        return WorkerLane(self, _LANES.index(name))

    def records_from(self, first: list[int]) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """(lane, record) of all spans from number `first` of each lane on that are still there;
        `first` is set to the number of the next one.
        """
        capacity = self.records.shape[1]
        for number, lane in enumerate(_LANES):
            written = self.head.written[number]
            for i in range(max(first[number], written - capacity), written):
                yield lane, self.records[number, i % capacity].tolist()
            first[number] = written


class WorkerLane(Lane):
    """A lane of a worker: records in its logbook, the oldest overwritten.

    Attributes:
        epoch: of the spans to come.
    """

    def __init__(self, logbook: Logbook, number: int) -> None:
        self._head = logbook.head
        self._records = logbook.records[number]
        self._number = number
        self._written = 0
        self.epoch = 0

    def span(self, layer: str, batch: int | None = None) -> _Open | _Off:
        return super().span(layer, batch) if self._head.is_traced else _OFF

    def write(self, done: _Open, end: float, faults: int) -> None:
        layer, sizes = LAYERS.index(done.layer), (done.message_bytes, done.shared_bytes, faults)
        record = (layer, done.start, end, done.batch, self.epoch, *sizes)
        self._records[self._written % len(self._records)] = record
        self._written += 1
        self._head.written[self._number] = self._written  # last: who reads it finds a whole record
