"""The main process's spans, and whose they are: what lets a trace read every process's.

An iterator says `with step(source):` around what it does until it returns to its consumer; while a
trace is on, that gives the thread its lane. The workers that there are make themselves known here,
so that a trace finds those that began before it.

Before it: `spans.py`. After it: `iteration.py`, whose steps these are, and `pool.py`, which has the
workers; `tracing.py` is the recorder.
"""

from __future__ import annotations

import itertools
import os
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from labkit.logbook import Logbook
from labkit.spans import OFF, Lane, NoSpan, OpenSpan, Span, here

__all__ = [
    "MainLane",
    "Recorder",
    "Source",
    "TracedWorker",
    "end_of",
    "make_traceable",
    "step",
    "traceable",
]

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

    def defer(self, spans: Callable[[], list[Span]]) -> None:
        """Ask for these spans when the trace ends."""


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


def step(source: Source) -> MainLane | _Unseen | NoSpan:
    """Around all that an iterator does in this process until it returns to its consumer."""
    if here.lane is not None:
        return _Unseen()
    running = recorder  # another thread may end it
    return OFF if running is None else running.lane(source)


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

    def write(self, done: OpenSpan, end: float, faults: int) -> None:
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
