"""A worker's logbook: which batch it has begun, and its spans, in memory that it shares with the
main process.

Nothing has to be sent, and what a killed worker wrote is still there: so the error that tells of
its death can say which batch it worked on, and a trace what it did last.

Before it: `spans.py`. After it: `worker.py` and `feeder.py`, which write; `pool.py` and
`tracing.py`, which read.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np

from labkit.sharing import Segment
from labkit.spans import LAYERS, OFF, Lane, NoSpan, OpenSpan

__all__ = ["Logbook", "WorkerLane"]

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

    def span(self, layer: str, batch: int | None = None) -> OpenSpan | NoSpan:
        return super().span(layer, batch) if self._head.is_traced else OFF

    def write(self, done: OpenSpan, end: float, faults: int) -> None:
        layer, sizes = LAYERS.index(done.layer), (done.message_bytes, done.shared_bytes, faults)
        record = (layer, done.start, end, done.batch, self.epoch, *sizes)
        self._records[self._written % len(self._records)] = record
        self._written += 1
        self._head.written[self._number] = self._written  # last: who reads it finds a whole record
