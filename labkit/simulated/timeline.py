"""The simulated device's clock: streams hand their work, in order, to engines that take their time.

A stream is a queue of operations, marks (recorded events) and waits. The operation at its head is
given to an engine: one copies to the device, one copies back, one computes. Each engine is a thread
and does one operation at a time, so work of different engines overlaps and work of one does not.

The device keeps a time of its own, on `time.monotonic()`: an operation begins when the engine's
last one ended, or when all that it waits for did, and not when a thread woke up to begin it. So
threads may sleep (nothing spins) and wake late, by a tenth of a millisecond or, on a busy machine,
by ten: the host sees an effect that much later, and nothing that follows is late for it.

Before it: `streams.py`, which issues; `items.py`, what stands in a queue. Reality: the queues and
engines of a GPU and its driver.
"""

from __future__ import annotations

import atexit
import heapq
import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from labkit.simulated.items import Failure, Item, Work

if TYPE_CHECKING:
    from labkit.simulated.streams import SimulatedStream

__all__ = ["COMPUTE", "ENGINES", "TO_DEVICE", "TO_HOST", "Engine", "Operation", "Timeline"]

TO_DEVICE, TO_HOST, COMPUTE = "H2D copy engine", "D2H copy engine", "compute engine"
ENGINES = (TO_DEVICE, TO_HOST, COMPUTE)


@dataclass(frozen=True)
class Operation:
    """What an engine did.

    Attributes:
        engine: one of `ENGINES`.
        kind: "copy" or "step".
        start, end: seconds on `time.monotonic()`, by the device's own time.
        name: what `record_function` or `run` called it.
        nbytes: that were copied.
        stream: its name.
    """

    engine: str
    kind: str
    start: float
    end: float
    name: str
    nbytes: int
    stream: str


class Timeline:
    """Streams, engines and their threads, under one lock.

    The threads know this object and not the device, so that a device can be forgotten.

    Args:
        report: called by the engine's thread with each operation that has ended.

    Attributes:
        lock: guards all. Reentrant: a garbage collection may run a finalizer anywhere.
        changed: notified when work has ended.
        worst_lag: by how many seconds the host at most saw an operation's end too late.
    """

    def __init__(self, report: Callable[[Operation], None]) -> None:
        self.pid = os.getpid()
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.worst_lag = 0.0
        self.closed = False
        self.failures: list[Failure] = []
        self._report = report
        self._numbers = itertools.count()
        self._busy: set[SimulatedStream] = set()
        self.engines = {name: Engine(name, threading.Condition(self.lock)) for name in ENGINES}
        self._threads = [
            threading.Thread(target=self._serve, args=(engine,), name=f"simulated {name}")
            for name, engine in self.engines.items()
        ]
        for thread in self._threads:
            thread.daemon = True  # else the interpreter would wait for them before `atexit`
            thread.start()
        _open_timelines.add(self)

    # What the host's threads ask.

    def issue(self, stream: SimulatedStream, item: Item) -> None:
        """Put an item at the end of a stream's queue."""
        self.check()
        with self.lock:
            self._check_open("issue work")
            item.issued, item.number = time.monotonic(), next(self._numbers)
            try:
                self._busy.add(stream)
                stream.pending.append(item)
                stream.issued += 1
                self._advance(stream)
            except BaseException:  # a Ctrl-C half way: else whoever waits next waits for ever
                self._advance_all()
                raise

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Let the calling thread wait; `what` is for the error if the device is closed."""
        self.check()
        with self.lock:
            while not condition():
                self._check_open(f"wait for {what}")
                self.changed.wait()

    def synchronize(self) -> None:
        """Wait for all work that has been issued, then tell of what failed."""
        self.check()
        with self.lock:
            targets = [(stream, stream.issued) for stream in self._busy]
        self.wait_until(lambda: all(s.completed >= n for s, n in targets), "the device")
        with self.lock:
            unreported = [failure for failure in self.failures if not failure.is_reported]
        for failure in unreported:
            failure.report()

    def check(self) -> None:
        """Refuse a call from where nobody would ever answer it."""
        if os.getpid() != self.pid:
            raise RuntimeError(
                f"This simulated device belongs to process {self.pid}: its engines are threads, "
                f"which a fork does not copy into a child (this is process {os.getpid()}). Make a "
                "device in the process that uses it, and move batches to it there."
            )
        if threading.current_thread() in self._threads:
            raise RuntimeError(
                "A step's function runs on the simulated device itself and cannot use it: it would "
                "wait for itself. Let it compute with the tensors that it is given."
            )

    def _check_open(self, wish: str) -> None:
        if self.closed:
            raise RuntimeError(
                f"Cannot {wish}: the simulated device was closed, or is no longer referred to by "
                "anybody. Keep the device as long as its streams and events are used."
            )

    # What ends it.

    def end(self) -> None:
        """Tell all threads to end; whoever waits gets an error."""
        if os.getpid() == self.pid:  # a forked child has no threads, and perhaps a locked lock
            with self.lock:
                self.closed = True
                for engine in self.engines.values():
                    engine.wake.notify_all()
                self.changed.notify_all()

    def join(self, seconds: float | None = None) -> None:
        """Wait until the threads have ended; for so many seconds each at most."""
        for thread in self._threads:
            if os.getpid() == self.pid and thread is not threading.current_thread():
                thread.join(seconds)

    # What the engines do.

    def _advance(self, stream: SimulatedStream) -> None:
        """Take from the head of the queue all that needs no time, and hand on what does."""
        streams = [stream]
        while streams:
            stream = streams.pop()
            while stream.pending and stream.pending[0].pass_by(stream, self):
                stream.pending.popleft()
            for item in stream.passed_marks:
                streams += item.waiting
            stream.passed_marks.clear()
            if not stream.pending:
                self._busy.discard(stream)
        self.changed.notify_all()

    def _advance_all(self) -> None:
        for stream in list(self._busy):
            self._advance(stream)
        for engine in self.engines.values():
            engine.wake.notify_all()

    def _serve(self, engine: Engine) -> None:
        while (work := self._next(engine)) is not None:
            self._carry_out(engine, work)
            del work  # it holds memory, and the next may be long in coming
        with self.lock:
            engine.ready.clear()
            for stream in self._busy:
                stream.dropped += len(stream.pending)
                stream.pending.clear()

    def _next(self, engine: Engine) -> Work | None:
        with self.lock:
            while not self.closed:
                if engine.ready:
                    return heapq.heappop(engine.ready)[1]
                engine.wake.wait()
        return None

    def _carry_out(self, engine: Engine, work: Work) -> None:
        start = max(work.ready, engine.free_at)
        due = start + work.seconds
        # The effect comes as late as it can, and never in the first half.
        if not self._sleep_until(engine, due - min(engine.expected(work), work.seconds / 2)):
            return
        began = time.monotonic()
        error = _error_of(work.action)
        took = time.monotonic() - began
        engine.remember(work, took)
        end = due if took <= work.seconds else began + took
        if not self._sleep_until(engine, end):
            return
        operation = Operation(
            engine.name, work.kind, start, end, work.name, work.nbytes, work.stream.name
        )
        error = _error_of(lambda: self._report(operation)) or error
        with self.lock:
            self.worst_lag = max(self.worst_lag, time.monotonic() - end)
            engine.free_at = work.stream.clock = end
            if error is not None:
                work.stream.failure = Failure(f"{work.kind} {work.name!r}".strip(), error)
                self.failures = [f for f in self.failures if not f.is_reported]
                self.failures.append(work.stream.failure)
            work.is_done = True
            self._advance(work.stream)

    def _sleep_until(self, engine: Engine, moment: float) -> bool:
        """Sleep; whether the device is still open."""
        with self.lock:
            while not self.closed and (left := moment - time.monotonic()) > 0:
                engine.wake.wait(min(left, threading.TIMEOUT_MAX))
            return not self.closed


@dataclass
class Engine:
    """What does one operation at a time."""

    name: str
    wake: threading.Condition
    ready: list[tuple[int, Work]] = field(default_factory=list)  #: a heap, by order of issue
    free_at: float = 0.0  #: when its last operation ended
    _pace: dict[int, float] = field(default_factory=dict, init=False)

    def expected(self, work: Work) -> float:
        """How many seconds the work's effect will take on this host, judged by one of its size."""
        return self._pace.get(work.size.bit_length(), 0.0) * work.size

    def remember(self, work: Work, took: float) -> None:
        """Judge the next ones by this."""
        self._pace[work.size.bit_length()] = took / max(work.size, 1)


def _error_of(action: Callable[[], object]) -> BaseException | None:
    try:
        action()
    except BaseException as error:  # the engine itself must go on
        return error
    return None


_open_timelines: weakref.WeakSet[Timeline] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    for timeline in list(_open_timelines):
        timeline.end()
        timeline.join(seconds=2)  # a step's function may wait for ever
