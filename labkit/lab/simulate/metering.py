"""Which part of a fetch or a collate a core works, and which it waits: counted in the worker.

    meter = Meter(workers=1)
    loader = DataLoader(meter.dataset(dataset), collate_fn=meter.collate(collate_fn), num_workers=1)

A `Meter` stands around a dataset and a collate function. For each batch it notes how long they took
on the clock, how long the thread was on a core (`time.thread_time`), and how long it could have
been and had to wait for one, because others had them all (Linux tells that in
`/proc/thread-self/schedstat`). What is left is waiting: for a disk, for a network, in a `sleep`.
So a busy machine does not look like a slow disk.

Before it: the user's dataset. After it: `measuring`.
"""

from __future__ import annotations

import os
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset, IterableDataset, get_worker_info

__all__ = ["Meter", "Record"]

_ROWS = 2048  # batches of one worker that are kept: the latest
_FETCH, _COLLATE = 0, 3  # the first column of each: wall, cpu, delay
_THREAD, _PROCESS = 6, 7  # CPU time of this thread, and of all, when the fetch begins
_COLUMNS = 8
_TRIALS = 30


@dataclass(frozen=True)
class Record:
    """What one worker noted, an entry a batch, in seconds.

    Attributes:
        fetch_cpu, fetch_wait, collate_cpu, collate_wait: of the two.
        others_cpu: of the worker's own thread, between one fetch and the next, besides the two.
        threads_cpu: of all its other threads: the feeder's.
    """

    fetch_cpu: list[float]
    fetch_wait: list[float]
    collate_cpu: list[float]
    collate_wait: list[float]
    others_cpu: list[float]
    threads_cpu: list[float]


class Meter:
    """Notes what a dataset and a collate function cost, in as many workers as there are.

    Args:
        workers: whose notes there is room for; 0: the main process loads.
    """

    def __init__(self, workers: int) -> None:
        self._shape = (max(1, workers), 1 + _ROWS, _COLUMNS)
        with tempfile.NamedTemporaryFile(prefix="labkit-meter-", delete=False) as file:
            file.truncate(8 * int(np.prod(self._shape)))
        self._path = file.name
        self._notes = _Notes(file.name, self._shape)  # one for both: they go to a worker together
        self._remove = weakref.finalize(self, _remove, file.name, os.getpid())

    def dataset(self, dataset: Any) -> Any:
        """The dataset, metered: gives what it gives."""
        kind = _MeteredIterable if isinstance(dataset, IterableDataset) else _MeteredMap
        return kind(dataset, self._notes)

    def collate(self, collate_fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The collate function, metered."""
        return _MeteredCollate(collate_fn, self._notes)

    def records(self, warmup: int = 0) -> list[Record]:
        """What each worker has noted, without its first `warmup` batches and the latest one."""
        notes = np.memmap(self._path, dtype=np.float64, mode="r", shape=self._shape)
        return [_record(np.array(worker), warmup) for worker in notes]

    def close(self) -> None:
        """Forget all notes."""
        self._remove()


def _remove(path: str, owner: int) -> None:
    if os.getpid() == owner:
        with suppress(FileNotFoundError):
            os.remove(path)


def _record(notes: NDArray[np.float64], warmup: int) -> Record:
    count, cost = int(notes[0, 0]), notes[0, 1]  # `cost`: CPU time of the metering, a batch
    first = max(warmup, count - _ROWS)
    rows = notes[1 + np.arange(first, max(first, count)) % _ROWS]
    if len(rows) < 2:
        return Record([], [], [], [], [], [])
    used, after = rows[:-1], rows[1:]
    thread, process = (after[:, c] - used[:, c] for c in (_THREAD, _PROCESS))
    of_both = used[:, _FETCH + 1] + used[:, _COLLATE + 1]
    return Record(
        fetch_cpu=used[:, _FETCH + 1].tolist(),
        fetch_wait=_waiting(used, _FETCH),
        collate_cpu=used[:, _COLLATE + 1].tolist(),
        collate_wait=_waiting(used, _COLLATE),
        others_cpu=np.maximum(thread - of_both - cost, 0).tolist(),
        threads_cpu=np.maximum(process - thread, 0).tolist(),
    )


def _waiting(rows: NDArray[np.float64], first: int) -> list[float]:
    wall, cpu, delay = rows[:, first], rows[:, first + 1], rows[:, first + 2]
    left: list[float] = np.maximum(wall - cpu - delay, 0).tolist()
    return left


class _Notes:
    """Where one process writes; opened when it is first written to, by whoever does that."""

    def __init__(self, path: str, shape: tuple[int, ...]) -> None:
        self._path = path
        self._shape = shape
        self._rows: Any = None
        self._delays = -1
        self.is_open = False  # whether a batch has begun that is not collated yet

    def __reduce__(self) -> tuple[Any, ...]:
        return _Notes, (self._path, self._shape)  # what is open here is not another process's

    def begin(self) -> None:
        """A fetch begins: a batch of its own."""
        if self._rows is None:
            self._open()
        self.is_open = True
        self._rows[0, 0] += 1
        row = self._row
        row[_FETCH : _FETCH + 6] = 0
        row[_THREAD], row[_PROCESS] = time.thread_time(), time.process_time()

    def add(self, first: int, do: Callable[[], Any]) -> Any:
        """Do this, and note what it cost, from that column on."""
        delay, cpu, start = self._delay(), time.thread_time(), time.monotonic()
        try:
            return do()
        finally:
            wall, worked = time.monotonic() - start, time.thread_time() - cpu
            self._row[first : first + 3] += (wall, worked, self._delay() - delay)

    @property
    def _row(self) -> Any:
        return self._rows[1 + (int(self._rows[0, 0]) - 1) % _ROWS]

    def _open(self) -> None:
        worker = get_worker_info()
        notes = np.memmap(self._path, dtype=np.float64, mode="r+", shape=self._shape)
        self._rows = notes[0 if worker is None else worker.id]
        with suppress(OSError):  # elsewhere than on Linux nobody tells
            self._delays = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        if not self._rows[0, 1]:
            self._rows[0, 1] = self._cost()
        self._rows[0, 0] = 0

    def _cost(self) -> float:
        """What the metering of a batch costs this thread."""
        start = time.thread_time()
        for _ in range(_TRIALS):
            self._rows[0, 0] = 1
            self._row[_FETCH : _FETCH + 6] = 0
            for first in (_FETCH, _COLLATE):
                self.add(first, int)
        return (time.thread_time() - start) / _TRIALS

    def _delay(self) -> float:
        """Seconds that this thread has waited for a core so far."""
        if self._delays < 0:
            return 0.0
        return int(os.pread(self._delays, 100, 0).split()[1]) / 1e9

    def __del__(self) -> None:
        if self._delays >= 0:
            os.close(self._delays)


class _MeteredMap(Dataset[Any]):
    """A map-style dataset whose fetches are metered."""

    def __init__(self, dataset: Any, notes: _Notes) -> None:
        self._dataset = dataset
        self._notes = notes

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitems__(self, indices: Sequence[Any]) -> Any:
        self._notes.begin()
        many = getattr(self._dataset, "__getitems__", None)
        if many is not None:
            return self._notes.add(_FETCH, lambda: many(indices))
        return self._notes.add(_FETCH, lambda: [self._dataset[i] for i in indices])

    def __getitem__(self, index: Any) -> Any:
        self._notes.begin()
        return self._notes.add(_FETCH, lambda: self._dataset[index])


class _MeteredIterable(IterableDataset[Any]):
    """An iterable dataset whose samples are metered: the first after a collate begins a batch."""

    def __init__(self, dataset: Any, notes: _Notes) -> None:
        self._dataset = dataset
        self._notes = notes

    def __iter__(self) -> Iterator[Any]:
        samples = iter(self._dataset)
        while True:
            if not self._notes.is_open:
                self._notes.begin()
            try:
                sample = self._notes.add(_FETCH, lambda: next(samples))
            except StopIteration:
                return
            yield sample


class _MeteredCollate:
    """A collate function that is metered."""

    def __init__(self, collate_fn: Callable[[Any], Any], notes: _Notes) -> None:
        self._collate_fn = collate_fn
        self._notes = notes

    def __call__(self, samples: Any) -> Any:
        try:
            return self._notes.add(_COLLATE, lambda: self._collate_fn(samples))
        finally:
            self._notes.is_open = False
