"""A slow dataset with items of a class of its own, and with all that goes with it.

Its samples are slow, its items are no tensors, its collate takes a batch of one apart, and each
worker seeds its own random numbers. The line below is printed by every process that imports this
module. Before it: notebook 02, which counts that line.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.queues import SimpleQueue

import numpy as np
from torch.utils.data import Dataset, get_worker_info

__all__ = ["LINE", "Item", "SlowItems", "load", "seed_worker", "unwrap"]

LINE = "importing slow_items"
print(LINE, flush=True)


@dataclass(frozen=True)
class Item:
    """One sample: its index, who loaded it (−1: the main process), and a random number."""

    index: int
    worker: int
    noise: float


class SlowItems(Dataset[Item]):
    """Items that take `seconds` each, without a core: as from a disk or a network."""

    def __init__(self, length: int, seconds: float = 0.001) -> None:
        self.length = length
        self.seconds = seconds

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Item:
        time.sleep(self.seconds)
        worker = get_worker_info()
        return Item(index, -1 if worker is None else worker.id, float(np.random.random()))


def unwrap(samples: Sequence[Item]) -> Item:
    """A collate function: the item of a batch of one."""
    (item,) = samples
    return item


def seed_worker(worker_id: int) -> None:
    """A worker_init_fn: each worker has random numbers of its own, the same in every run."""
    np.random.seed(worker_id)


def load(items: SlowItems, results: SimpleQueue[Item]) -> None:
    """The program of a worker that is started by hand: all items, one after the other."""
    seed_worker(0)
    for index in range(len(items)):
        results.put(replace(items[index], worker=0))
