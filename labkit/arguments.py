"""The checks of DataLoader's arguments: which exclude each other, and what to write instead.

They are made when the loader is made. PyTorch makes some of them only when it is iterated, and some
not at all.
"""

from __future__ import annotations

import multiprocessing
import os
import warnings
from typing import Any, SupportsIndex

from torch.utils.data import IterableDataset

from labkit.errors import NestedWorkers
from labkit.sharing import check_sharing_strategy, get_sharing_strategy
from labkit.worker import get_worker_info

__all__ = [
    "check_batching",
    "check_not_nested",
    "check_sharing",
    "check_workers",
    "warn_of_too_many",
]


def check_workers(
    num_workers: int, prefetch_factor: int | None, persistent_workers: bool, timeout: float
) -> None:
    """What has to do with processes."""
    if not isinstance(num_workers, SupportsIndex):
        raise TypeError(
            f"num_workers option should be an int, but got {num_workers!r}: write for instance "
            "num_workers=2, or 0 to load in this process"
        )
    if num_workers < 0:
        raise ValueError(
            "num_workers option should be non-negative; use num_workers=0 to load in this process"
        )
    if timeout < 0:
        raise ValueError("timeout option should be non-negative: write 0 to wait without limit")
    if prefetch_factor is not None and not isinstance(prefetch_factor, SupportsIndex):
        raise TypeError(f"prefetch_factor option should be an int, but got {prefetch_factor!r}")
    if prefetch_factor is not None and prefetch_factor < 1:
        raise ValueError(
            f"prefetch_factor option should be at least 1, but got {prefetch_factor}: a worker "
            "that is asked for nothing in advance never starts; leave it out for 2"
        )
    if num_workers > 0:
        return
    for given, name in (
        (prefetch_factor is not None, "prefetch_factor"),
        (persistent_workers, "persistent_workers"),
        (timeout > 0, "timeout"),
    ):
        if given:
            raise ValueError(
                f"{name} option could only be specified in multiprocessing: let num_workers > 0, "
                f"or leave {name} out"
            )


def check_sharing(
    sharing_strategy: str | None, arena_limit_bytes: int | None, num_workers: int
) -> None:
    """What decides how batches get from the workers to the main process."""
    if sharing_strategy is not None:
        check_sharing_strategy(sharing_strategy)
    if arena_limit_bytes is None:
        return
    if not isinstance(arena_limit_bytes, SupportsIndex):
        raise TypeError(
            f"arena_limit_bytes option should be an int, but got {arena_limit_bytes!r}: write a "
            "number of bytes, such as 2 * 1024**3"
        )
    if arena_limit_bytes < 1:
        raise ValueError(
            f"arena_limit_bytes option should be at least 1, but got {arena_limit_bytes}: leave it "
            "out for no limit"
        )
    if num_workers == 0 or (sharing_strategy or get_sharing_strategy()) != "arena":
        raise ValueError(
            "arena_limit_bytes option needs num_workers > 0 and the sharing strategy 'arena': "
            "leave it out with another one"
        )


def check_batching(
    dataset: Any,
    batch_size: int | None,
    shuffle: bool | None,
    sampler: Any,
    batch_sampler: Any,
    drop_last: bool,
) -> None:
    """What decides which samples make a batch."""
    if isinstance(dataset, IterableDataset):
        for given, name in (
            (bool(shuffle), "shuffle"),
            (sampler is not None, "sampler"),
            (batch_sampler is not None, "batch_sampler"),
        ):
            if given:
                raise ValueError(
                    f"DataLoader with IterableDataset: expected unspecified {name} option. Such a "
                    f"dataset decides on its order itself: leave {name} out and do it in __iter__"
                )
    if sampler is not None and shuffle:
        raise ValueError(
            "sampler option is mutually exclusive with shuffle: leave shuffle out and let the "
            "sampler give a random order, such as torch.utils.data.RandomSampler"
        )
    if batch_sampler is not None:
        if batch_size != 1 or shuffle or sampler is not None or drop_last:
            raise ValueError(
                "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and "
                "drop_last: leave those out and let the batch sampler decide"
            )
    elif batch_size is None and drop_last:
        raise ValueError(
            "batch_size=None option disables auto-batching and is mutually exclusive with "
            "drop_last: set a batch_size, or leave drop_last out"
        )
    if shuffle and not isinstance(dataset, IterableDataset) and len(dataset) == 0:
        raise ValueError(
            "the dataset is empty (its length is 0), so there is nothing to shuffle: check where "
            "it looks for its data, or write shuffle=False for a loader that yields nothing"
        )


def check_not_nested() -> None:
    """Raise a `NestedWorkers` error where this process may not start workers."""
    if get_worker_info() is not None or multiprocessing.current_process().daemon:
        raise NestedWorkers(
            "A worker may not start workers: this DataLoader with num_workers > 0 is iterated "
            "inside a worker of another one (or another daemonic process). Write num_workers=0 for "
            "the inner loader."
        )


def warn_of_too_many(num_workers: int) -> None:
    """Warn, as PyTorch does, of more workers than cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if cores is not None and num_workers > cores:
        warnings.warn(
            f"This DataLoader will create {num_workers} worker processes in total. Our suggested "
            f"max number of worker in current system is {cores}, the cores that this process may "
            "use; more pays only where the workers wait (for files, for the network).",
            stacklevel=3,
        )
