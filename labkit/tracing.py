"""A trace: the spans of all processes, gathered on one clock.

    with labkit.trace() as t:
        for batch in labkit.DataLoader(dataset, num_workers=2):
            train(batch)
    print(t.summary())

While it is on, the loader's layers write spans (`spans.py`). What they say of each batch's way,
and of what it waited for, is worked out by `journeys.py`.
Mirrors nothing in PyTorch. `save` writes the Trace Event Format (Google, "Trace Event Format",
2016), which Perfetto and chrome://tracing open.
"""

from __future__ import annotations

import importlib
import json
import os
import threading
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit import recording
from labkit.journeys import Journey, journeys, summary
from labkit.recording import MainLane, Source, TracedWorker
from labkit.spans import LAYERS, Span

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Steps", "Trace", "trace"]

_COLLECT_EVERY = 256  # steps: long before a worker's lane is full

Steps = list[tuple[float, int]]
"""(time, value from then on) of something that is counted, by time."""


def trace() -> Trace:
    """A trace of what happens inside of its `with` block, in this process and in all workers.

    It costs some microseconds a layer and batch while it is on, and next to nothing else.
    """
    return Trace()


class Trace:
    """Records what the loader does while it is entered, in this process and in all workers.

    One at a time. Workers that run already are traced too, from then on.

    Attributes:
        spans: what was recorded, by start; complete once the trace is left.
        lost: how many spans of workers were overwritten before they were read.
        max_depth: how many batches may be under way at once: prefetch_factor × num_workers.
    """

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.lost = 0
        self.max_depth = 0
        self._owner_pid = -1  # not entered yet
        self._lanes = threading.local()
        self._main_lanes: list[MainLane] = []
        self._readers: dict[TracedWorker, _Reader] = {}
        self._workers_spans: list[Span] = []
        self._deferred: list[Callable[[], list[Span]]] = []
        self._steps = 0
        self._lock = threading.RLock()  # workers may also end in a garbage collection

    def __enter__(self) -> Self:
        if recording.recorder is not None:
            raise RuntimeError("a trace is running already: leave it before you begin another one")
        if self._owner_pid >= 0:
            raise RuntimeError("this trace has been recorded: make a new one with labkit.trace()")
        self._owner_pid = os.getpid()
        recording.recorder = self
        for worker in recording.traceable():
            self.follow(worker)
        return self

    def __exit__(self, *exc_info: object) -> None:
        recording.recorder = None
        if os.getpid() != self._owner_pid:
            return  # a forked child leaves the block, too: its parent's trace goes on
        with self._lock:
            for worker in list(self._readers):
                self.leave(worker)
            found = self._workers_spans
            for lane in self._main_lanes:  # whose threads may still be at work, with the old list
                lane.end_consumer()
                found = found + lane.spans
            self._main_lanes.clear()
            self._workers_spans = []
        for spans in self._deferred:  # they wait for a device
            found = found + spans()
        self._deferred.clear()
        self.spans = sorted(found, key=lambda span: span.start)
        if self.lost:
            warnings.warn(
                f"The trace lacks {self.lost:,} spans: workers wrote more between two batches than "
                "their memory for spans holds. Trace fewer batches.",
                stacklevel=2,
            )

    # What the loader calls while the trace is on

    def lane(self, source: Source) -> MainLane:
        """The lane of this thread, which iterates over `source`."""
        lane: MainLane | None = getattr(self._lanes, "lane", None)
        if lane is None:
            thread = threading.current_thread()
            is_main = thread is threading.main_thread()
            lane = MainLane("main" if is_main else thread.name)
            self._lanes.lane = lane
            self._main_lanes.append(lane)
        lane.next_source = source
        self.max_depth = max(self.max_depth, source.max_depth)
        self._steps += 1
        if self._steps % _COLLECT_EVERY == 0:
            self._collect()
        return lane

    def follow(self, worker: TracedWorker) -> None:
        """Read this worker's spans too."""
        with self._lock:
            self._readers[worker] = _Reader(worker)

    def leave(self, worker: TracedWorker) -> None:
        """Read what is left of this worker's spans, and let its memory go."""
        with self._lock:
            reader = self._readers.pop(worker, None)
            if reader is not None:
                reader.stop()
                self._collect_from(reader)

    def defer(self, spans: Callable[[], list[Span]]) -> None:
        """Ask for these spans when the trace ends: of a device, which is still at work."""
        self._deferred.append(spans)

    def _collect(self) -> None:
        with self._lock:
            for reader in self._readers.values():
                self._collect_from(reader)

    def _collect_from(self, reader: _Reader) -> None:
        found, lost = reader.unread()
        self._workers_spans += found
        self.lost += lost

    # What it says

    def depth(self, loader: int | None = None) -> Steps:
        """How many batches were under way, over time: handed out, and not yet taken to be given.

        Args:
            loader: count those of this one (`Span.loader`); None for all loaders together.
        """
        return self._counted({"dispatch": 1, "take": -1, "void": -1}, loader)

    def reorder_buffer(self, loader: int | None = None) -> Steps:
        """How many batches had come and waited for their turn, over time; see `depth`."""
        # A stream's end comes as a result, too; its task is void then.
        return self._counted({"rebuild": 1, "take": -1, "void": -1}, loader)

    def _counted(self, change: dict[str, int], loader: int | None) -> Steps:
        return _running_count([s for s in self.spans if loader in (None, s.loader)], change)

    def journeys(self) -> list[Journey]:
        """The way of each batch that was given, in the order in which they were handed out."""
        return journeys(self.spans)

    def summary(self) -> str:
        """A table of what a batch went through and how long that took, and what it waits for."""
        return summary(self.spans)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as a JSON file for https://ui.perfetto.dev (which keeps it on your machine)."""
        tids = _thread_numbers(self.spans)
        events = [*_names(tids), *(_event(span, tids) for span in self.spans)]
        for name, steps in [("under way", self.depth()), ("reorder buffer", self.reorder_buffer())]:
            events += [_counter(name, at, value) for at, value in steps]
        Path(path).write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))

    def figure(self, dark: bool = False) -> Any:
        """The timeline as a matplotlib figure. It is drawn by the lab, which needs matplotlib."""
        return importlib.import_module("labkit.lab.timeline").timeline(self, dark=dark)


class _Reader:
    """Reads what one worker writes."""

    def __init__(self, worker: TracedWorker) -> None:
        self._logbook = worker.logbook
        self._worker = worker.id
        self._loader = worker.source.serial
        self._pid = worker.pid
        self._first = list(self._logbook.head.written)  # in each lane, what is not read yet
        self._logbook.head.is_traced = True

    def stop(self) -> None:
        self._logbook.head.is_traced = False

    def unread(self) -> tuple[list[Span], int]:
        """What was written since the last time, and how much of it was overwritten."""
        found = []
        before = sum(self._first)
        for lane, record in self._logbook.records_from(self._first):
            layer, *rest = record
            name = f"{lane} {self._worker}"
            span = Span(name, LAYERS[layer], *rest)
            found.append(replace(span, worker=self._worker, loader=self._loader, pid=self._pid))
        return found, sum(self._first) - before - len(found)


def _running_count(spans: Iterable[Span], change: dict[str, int]) -> Steps:
    """How many batches are there, when the ends of spans of some layers add or remove one.

    Nothing is left of an epoch after its last span: what was under way then was given up.
    """
    changes: list[tuple[float, tuple[int, int], int, int]] = []  # (time, epoch, batch, by how many)
    ends: dict[tuple[int, int], float] = {}
    for span in spans:
        epoch = span.loader, span.epoch
        ends[epoch] = max(span.end, ends.get(epoch, span.end))
        if span.layer in change and span.batch >= 0:
            changes.append((span.end, epoch, span.batch, change[span.layer]))
    changes += [(end, epoch, -1, 0) for epoch, end in ends.items()]  # 0: whatever is left
    there: dict[tuple[int, int], set[int]] = defaultdict(set)  # by epoch, its batches
    steps: Steps = []
    for at, epoch, batch, by in sorted(changes, key=lambda one: one[0]):
        if by > 0:
            there[epoch].add(batch)
        elif by < 0:
            there[epoch].discard(batch)
        else:
            there[epoch].clear()
        steps.append((at, sum(map(len, there.values()))))
    return steps


# The Trace Event Format: one JSON object an event, times in microseconds.


_Tids = dict[tuple[int, str], int]


def _thread_numbers(spans: Iterable[Span]) -> _Tids:
    """A number for each lane of each process, by (pid, lane)."""
    lanes = dict.fromkeys((span.pid, span.lane) for span in spans)
    return {lane: number for number, lane in enumerate(lanes, 1)}


def _names(tids: _Tids) -> Iterator[dict[str, Any]]:
    for (pid, lane), tid in tids.items():
        common = {"ph": "M", "pid": pid, "tid": tid}
        process = lane.replace("feeder", "worker") if pid != os.getpid() else "main process"
        yield {**common, "name": "process_name", "args": {"name": f"{process} (pid {pid})"}}
        yield {**common, "name": "thread_name", "args": {"name": lane}}


def _event(span: Span, tids: _Tids) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": span.layer if span.batch < 0 else f"{span.layer} {span.batch}",
        "cat": span.layer,
        "ts": span.start * 1e6,
        "dur": (span.end - span.start) * 1e6,
        "pid": span.pid,
        "tid": tids[span.pid, span.lane],
        "args": {
            "batch": span.batch,
            "epoch": span.epoch,
            "loader": span.loader,
            "message_bytes": span.message_bytes,
            "shared_bytes": span.shared_bytes,
            "minor_faults": span.minor_faults,
        },
    }


def _counter(name: str, at: float, value: int) -> dict[str, Any]:
    return {"ph": "C", "name": name, "ts": at * 1e6, "pid": os.getpid(), "args": {"batches": value}}
