"""A loader whose workers are threads of this process.

Nothing is pickled, sent or copied: a batch that a thread has made is handed over as it is. What the
threads do at the same time is another matter, see `experiments.beside`.

After it: `experiments.threads_or_processes`, which compares it with a loader on processes. Mirrors:
torch.utils.data.DataLoader, with threads; it leaves out samplers, seeds and timeouts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar, cast

import torch
from torch.utils.data import Dataset

from labkit.collate import default_collate

__all__ = ["ThreadLoader", "in_threads"]

Task = TypeVar("Task")
Batch = TypeVar("Batch")


class ThreadLoader:
    """Batches of a dataset in the order of its indices.

    Args:
        dataset: with `__len__` and `__getitem__`; the threads share this one object.
        batch_size: samples a batch; the last one may have fewer.
        num_threads: that fetch and collate.
        prefetch_factor: batches asked for in advance, a thread.
        collate_fn: makes a batch of a list of samples.

    Raises:
        ValueError: a number is below 1.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        batch_size: int = 1,
        num_threads: int = 2,
        prefetch_factor: int = 2,
        collate_fn: Callable[[list[Any]], Any] = default_collate,
    ) -> None:
        numbers = {"batch_size": batch_size, "num_threads": num_threads}
        for name, number in {**numbers, "prefetch_factor": prefetch_factor}.items():
            if number < 1:
                raise ValueError(f"{name} is a whole number of 1 or more, but got {number!r}")
        self.dataset, self.batch_size = dataset, batch_size
        self.num_threads, self.prefetch_factor = num_threads, prefetch_factor
        self.collate_fn = collate_fn

    def __iter__(self) -> Iterator[Any]:
        length = len(cast(Sized, self.dataset))
        starts = range(0, length, self.batch_size)
        tasks = (range(start, min(start + self.batch_size, length)) for start in starts)
        return in_threads(
            self._fetch, tasks, self.num_threads, self.num_threads * self.prefetch_factor
        )

    def __len__(self) -> int:
        return -(-len(cast(Sized, self.dataset)) // self.batch_size)

    def _fetch(self, indices: range) -> Any:
        return self.collate_fn([self.dataset[index] for index in indices])


def in_threads(
    fetch: Callable[[Task], Batch], tasks: Iterable[Task], threads: int, ahead: int
) -> Iterator[Batch]:
    """`fetch(task)` of each task, in the order of the tasks.

    At most `ahead` tasks are handed out and not yet given. An exception of `fetch` is raised where
    its batch would have come. When the iterator ends or is closed, no thread is left. As in a
    worker process, torch uses one thread for a call.
    """
    handed_out: deque[Future[Batch]] = deque()
    pool = ThreadPoolExecutor(threads, "loads", torch.set_num_threads, (1,))
    try:
        for task in tasks:
            handed_out.append(pool.submit(fetch, task))
            if len(handed_out) == ahead:
                yield handed_out.popleft().result()
        while handed_out:
            yield handed_out.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
