"""DataLoader: checks the arguments, picks sampler, collate function and iterator.

This is where a batch's way begins; next is `iteration.py`.
Mirrors: `DataLoader` of torch/utils/data/dataloader.py. Leaves out: DataPipes (an `IterDataPipe` is
taken as the iterable dataset that it is). Does better: arguments that exclude each other are
refused here, with what to write instead; see `errors.py` for the rest.
"""

from __future__ import annotations

import math
import multiprocessing
import operator
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.context import BaseContext
from typing import Any, Generic, TypeVar

import torch
from torch.utils.data import (
    BatchSampler,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
)
from torch.utils.data import default_collate as torch_default_collate
from torch.utils.data import default_convert as torch_default_convert

from labkit.arguments import (
    check_batching,
    check_not_nested,
    check_sharing,
    check_workers,
    warn_of_too_many,
)
from labkit.collate import default_collate, default_convert
from labkit.device import find_device
from labkit.iteration import BaseIterator, EpochReport, Settings, SingleProcessIterator
from labkit.multiprocess import MultiProcessIterator
from labkit.pinning import can_pin
from labkit.sharing import PageLocker, get_sharing_strategy, private_arena
from labkit.worker import set_epoch

__all__ = ["DataLoader"]

T_co = TypeVar("T_co", covariant=True)


class DataLoader(Generic[T_co]):
    """Loads batches from a dataset, in this process or in workers.

    Same arguments, order, defaults and meaning as `torch.utils.data.DataLoader`; for the same seed
    the same batches in the same order, random numbers in the workers included.

    Args:
        dataset: map-style (`__getitem__`, `__len__`) or an `IterableDataset`.
        batch_size: samples a batch; None gives samples as they are, one by one.
        shuffle: new random order each epoch.
        sampler: yields indices; excludes `shuffle`.
        batch_sampler: yields lists of indices; excludes `batch_size`, `shuffle`, `sampler`,
            `drop_last`.
        num_workers: processes that load; 0 loads in this process.
        collate_fn: list of samples → batch, or with `batch_size=None` sample → sample; None for
            `default_collate` or `default_convert`.
        pin_memory: give batches in page-locked memory, if there is an accelerator.
        drop_last: leave out a last batch that is not full.
        timeout: seconds to wait for a batch from the workers; 0 waits as long as it takes.
        worker_init_fn: called in each worker with its id, after seeding, before loading.
        multiprocessing_context: "fork", "spawn", "forkserver", or a multiprocessing context; None
            for the process's default.
        generator: draws the order and the workers' base seed; None for torch's global one.
        prefetch_factor: batches asked for in advance, a worker; 2 if there are workers.
        persistent_workers: keep the workers, and their copies of the dataset, between epochs.
        pin_memory_device: deprecated and without effect, as in PyTorch.
        in_order: give batches in the sampler's order; False gives them as they come.
        sharing_strategy: how batches come from the workers, one of
            `labkit.get_all_sharing_strategies()`; None for `labkit.get_sharing_strategy()`.
        arena_limit_bytes: with the strategy "arena", how much memory the batches of one worker
            may take at once; more is a `SharedMemoryFull` error. It wants room for those in advance
            and two or three more; None for no limit.

    Raises:
        ValueError, TypeError: arguments that are wrong or exclude each other.

    Iterating raises what dataset and collate function raise, and of `labkit.errors`:
    `NestedWorkers`, `StartupNotPicklable`, `WorkerDied`, `LoaderTimeout`, `CollateError`,
    `BatchNotShareable`, `TooManyOpenFiles`, `SharedMemoryFull`.

    Where it differs from PyTorch's, on purpose:

    - A worker's death is noticed at once and names the worker, the signal and the batch.
    - Classes from a notebook's cells work under every start method.
    - A `StopIteration` from a map-style dataset is an error and not a short epoch.
    - The warning about an iterable dataset's length counts samples.
    - With persistent workers a dataset's attributes that change between epochs are not seen by the
      workers' copies, as in PyTorch; `set_epoch` is the way to send an epoch number there.
    - With persistent workers there is one iterator: a second `iter(loader)` begins the epoch anew,
      for whoever holds the first one too (so `zip(loader, loader)` gives pairs of neighbours).
    """

    dataset: Dataset[T_co]
    batch_size: int | None
    num_workers: int
    pin_memory: bool
    drop_last: bool
    timeout: float
    sampler: Sampler[Any] | Iterable[Any]
    batch_sampler: Sampler[Any] | Iterable[Any] | None
    prefetch_factor: int | None
    _iterator: MultiProcessIterator | None = None
    _initialized = False

    def __init__(
        self,
        dataset: Dataset[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: BaseContext | str | None = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        sharing_strategy: str | None = None,
        arena_limit_bytes: int | None = None,
    ) -> None:
        check_workers(num_workers, prefetch_factor, persistent_workers, timeout)
        check_batching(dataset, batch_size, shuffle, sampler, batch_sampler, drop_last)
        check_sharing(sharing_strategy, arena_limit_bytes, num_workers)

        self.dataset = dataset
        self.num_workers = operator.index(num_workers)
        self.multiprocessing_context = multiprocessing_context
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.persistent_workers = persistent_workers
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.in_order = in_order
        self.generator = generator
        self.sharing_strategy = sharing_strategy
        self.arena_limit_bytes = arena_limit_bytes

        if sampler is None:
            sampler = _default_sampler(dataset, bool(shuffle), generator)
        if batch_sampler is not None:
            batch_size = None
        elif batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.collate_fn = _collate_function(collate_fn, auto_collation=batch_sampler is not None)

        self._arena = private_arena()
        self._report = EpochReport()
        self._announced_samples: int | None = None
        self._epoch: int | None = None
        self._initialized = True
        warn_of_too_many(num_workers)

    def __iter__(self) -> Iterator[Any]:
        return self.iterate()

    def iterate(self, page_locker: PageLocker | None = None) -> BaseIterator:
        """As `iter(loader)`.

        Args:
            page_locker: page-locks what it can of the memory in which the batches come, such as
                the device of a `Preloader`. None: with `pin_memory` on CUDA, that device.
        """
        self._report = EpochReport(announced_samples=self._announced_samples, epoch=self._epoch)
        settings = self._settings(page_locker)
        if self.num_workers == 0:
            return SingleProcessIterator(settings, self._report, self._arena)
        check_not_nested()
        if not self.persistent_workers:
            return MultiProcessIterator(settings, self._report)
        running = self._iterator
        if running is not None and running.usable and running.takes(settings.page_locker):
            running.restart(self._report)
            return running
        self.close()
        self._iterator = MultiProcessIterator(settings, self._report)
        return self._iterator

    def __len__(self) -> int:
        if not isinstance(self.dataset, IterableDataset):
            return len(self.batch_sampler if self.batch_sampler is not None else self.sampler)  # type: ignore[arg-type]
        # A guess: nobody knows what the workers' copies will yield. More than this is warned of.
        length = self._announced_samples = len(self.dataset)  # type: ignore[arg-type]
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else math.ceil(length / self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch comes next: to the sampler, to the dataset, and to every worker's copy.

        The sampler's and the batch sampler's `set_epoch` are called, as
        `DistributedSampler` needs it; of the dataset its `set_epoch`, or its attribute `epoch` is
        set, here at once and in persistent workers when the next epoch begins.
        """
        for sampler in (self.sampler, self.batch_sampler):
            tell = getattr(sampler, "set_epoch", None)
            if tell is not None:
                tell(epoch)
        set_epoch(self.dataset, epoch)
        self._epoch = epoch

    @property
    def dropped_samples(self) -> int:
        """How many samples of an iterable dataset `drop_last` left out in the latest epoch.

        Each worker drops its own incomplete batch, so it can be more than one batch's worth.
        """
        return self._report.dropped_samples

    def close(self) -> None:
        """End persistent workers now; the next epoch starts new ones. Nothing else to close."""
        if self._iterator is not None:
            self._iterator.close()
            self._iterator = None

    @property
    def multiprocessing_context(self) -> BaseContext | None:
        """The context in which workers are started; None for the process's default."""
        return self._multiprocessing_context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: BaseContext | str | None) -> None:
        if context is not None and self.num_workers == 0:
            raise ValueError(
                "multiprocessing_context can only be used with multi-process loading: set "
                "num_workers > 0, or leave it out"
            )
        if isinstance(context, str):
            methods = multiprocessing.get_all_start_methods()
            if context not in methods:
                raise ValueError(
                    f"multiprocessing_context option should specify a valid start method in "
                    f"{methods!r}, but got multiprocessing_context={context!r}"
                )
            context = multiprocessing.get_context(context)
        if context is not None and not isinstance(context, BaseContext):
            raise TypeError(
                "multiprocessing_context option should be a valid context object or a string "
                f"specifying the start method, but got multiprocessing_context={context!r}"
            )
        self._multiprocessing_context = context

    def __setattr__(self, name: str, value: Any) -> None:
        if self._initialized and name in _FIXED:
            raise ValueError(
                f"{name} attribute should not be set after {type(self).__name__} is initialized: "
                "make a new loader"
            )
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        own = ("_iterator", "_arena")  # of this process
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _arena=private_arena())

    def _settings(self, page_locker: PageLocker | None) -> Settings:
        pin_memory = self.pin_memory and can_pin()
        if pin_memory and page_locker is None:
            page_locker = find_device()
        batched = self.batch_sampler is not None
        return Settings(
            dataset=self.dataset,
            auto_collation=batched,
            collate_fn=self.collate_fn,
            drop_last=self.drop_last,
            index_sampler=self.batch_sampler if self.batch_sampler is not None else self.sampler,
            num_workers=self.num_workers,
            generator=self.generator,
            pin_memory=pin_memory,
            timeout=self.timeout,
            worker_init_fn=self.worker_init_fn,
            multiprocessing_context=self.multiprocessing_context,
            prefetch_factor=self.prefetch_factor,
            persistent_workers=self.persistent_workers,
            in_order=self.in_order,
            sharing_strategy=self.sharing_strategy or get_sharing_strategy(),
            arena_limit_bytes=self.arena_limit_bytes,
            page_locker=page_locker,
        )


_FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


class _InfiniteConstantSampler(Sampler[None]):
    """What an iterable dataset is asked with: it takes no indices, and it alone knows its end."""

    def __iter__(self) -> Iterator[None]:
        while True:
            yield None


def _default_sampler(
    dataset: Any, shuffle: bool, generator: torch.Generator | None
) -> Sampler[Any]:
    if isinstance(dataset, IterableDataset):
        return _InfiniteConstantSampler()
    return RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)


def _collate_function(
    collate_fn: Callable[[Any], Any] | None, auto_collation: bool
) -> Callable[[Any], Any]:
    """The collate function; PyTorch's defaults are replaced by ours, which do the same."""
    if collate_fn is None:
        return default_collate if auto_collation else default_convert
    if collate_fn is torch_default_collate:
        return default_collate
    return default_convert if collate_fn is torch_default_convert else collate_fn
