"""Datasets for notebooks and experiments, in a module that spawned workers can import.

`Indices`, `Payload`, `LoadedBy` and `Stream` say what a sample is; `Waiting` and `Working` go
around one of them and say what it costs. Every sample is made in memory: what a loader does with
it is seen, and not a disk.

After it: `experiments`, which loads them. Mirrors: torch.utils.data.Dataset, IterableDataset.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

__all__ = ["Indices", "LoadedBy", "Payload", "Stream", "Waiting", "Working"]


class Indices(Dataset[int]):
    """Samples whose value is their index, so that the order can be read off a batch."""

    def __init__(self, length: int) -> None:
        self.length = _checked_length(length)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return _checked_index(index, self.length)


class Payload(Dataset[torch.Tensor]):
    """Samples of so many bytes: uint8 (sample_bytes,), made beforehand and given round and round.

    Args:
        length: samples.
        sample_bytes: of each.
        distinct: how many are made and held; sample i is filled with i % distinct % 256.
    """

    def __init__(self, length: int, sample_bytes: int, distinct: int = 8) -> None:
        self.length = _checked_length(length)
        if sample_bytes < 1 or distinct < 1:
            raise ValueError(
                f"a payload is at least one sample of one byte, but got "
                f"sample_bytes={sample_bytes!r}, distinct={distinct!r}: write numbers of 1 or more"
            )
        count = max(1, min(distinct, length))
        self.samples = [
            torch.full((sample_bytes,), i % 256, dtype=torch.uint8) for i in range(count)
        ]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.samples[_checked_index(index, self.length) % len(self.samples)]


class LoadedBy(Dataset[int]):
    """Samples whose value is the id of the worker that loaded them, −1 in the main process."""

    def __init__(self, length: int) -> None:
        self.length = _checked_length(length)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        _checked_index(index, self.length)
        worker = get_worker_info()
        return -1 if worker is None else worker.id


class Stream(IterableDataset[int]):
    """The numbers 0 to length − 1 as they come. Each worker's copy gives all of them, as any does
    that is not sharded.
    """

    def __init__(self, length: int) -> None:
        self.length = _checked_length(length)

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.length))


class Waiting(Dataset[Any]):
    """Another dataset's samples, each after a wait that takes no core: for a disk, for a network.

    Args:
        dataset: whose samples are given.
        seconds: of waiting, a sample.
        every: only samples whose index it divides are waited for: 1 for all, 8 for one in eight.
    """

    def __init__(self, dataset: Dataset[Any], seconds: float, every: int = 1) -> None:
        self.dataset = dataset
        self.seconds, self.every = _checked_cost(seconds, every)

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> Any:
        if index % self.every == 0:
            time.sleep(self.seconds)
        return self.dataset[index]


class Working(Dataset[Any]):
    """Another dataset's samples, each after Python code that takes so much of a core's time, and
    the interpreter's lock with it: as decoding and augmenting in Python do.

    Args:
        dataset: whose samples are given.
        seconds: of a core, a sample: more of the clock's where others want the core, too.
        every: only samples whose index it divides are worked for: 1 for all, 8 for one in eight.
    """

    def __init__(self, dataset: Dataset[Any], seconds: float, every: int = 1) -> None:
        self.dataset = dataset
        self.seconds, self.every = _checked_cost(seconds, every)

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> Any:
        if index % self.every == 0:
            end = time.thread_time() + self.seconds
            while time.thread_time() < end:
                pass
        return self.dataset[index]


def _checked_length(length: int) -> int:
    if length < 0:
        raise ValueError(f"a dataset has 0 samples or more, but got length={length!r}")
    return length


def _checked_index(index: int, length: int) -> int:
    if not 0 <= index < length:
        raise IndexError(f"there is no sample {index}: there are {length}, from 0 on")
    return index


def _checked_cost(seconds: float, every: int) -> tuple[float, int]:
    if seconds < 0 or every < 1:
        raise ValueError(
            f"a sample costs 0 seconds or more, and every first or later one does, but got "
            f"seconds={seconds!r}, every={every!r}: write for instance seconds=0.002, every=1"
        )
    return seconds, every
