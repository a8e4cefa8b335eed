"""One epoch in the main process: sample indices, get their batches, count, pin.

This is what iterating has in common, and the iterator without workers, which fetches itself.

Before it: `loader.py`. After it: `multiprocess.py`, or with `num_workers=0` straight `fetch.py`.
Mirrors: torch/utils/data/dataloader.py (`_BaseDataLoaderIter`, `_SingleProcessDataLoaderIter`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch.utils.data import IterableDataset

from labkit.fetch import make_fetcher
from labkit.pinning import pin_batch, warn_of_unpinned
from labkit.recording import Source, step
from labkit.sharing import Arena, PageLocker, building_in
from labkit.spans import span

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["BaseIterator", "EpochReport", "Settings", "SingleProcessIterator"]


@dataclass(frozen=True)
class Settings:
    """A DataLoader's arguments as its iterators need them; the names are DataLoader's own."""

    dataset: Any
    auto_collation: bool
    collate_fn: Any
    drop_last: bool
    index_sampler: Iterable[Any]
    num_workers: int
    generator: torch.Generator | None
    pin_memory: bool
    timeout: float
    worker_init_fn: Any
    multiprocessing_context: Any
    prefetch_factor: int | None
    persistent_workers: bool
    in_order: bool
    sharing_strategy: str
    arena_limit_bytes: int | None
    page_locker: PageLocker | None


@dataclass
class EpochReport:
    """What an epoch left to be known: filled by the iterator, read through the loader."""

    announced_samples: int | None = None  #: what `len(loader)` was told by an iterable dataset
    epoch: int | None = None  #: what `loader.set_epoch` was told
    dropped_samples: int = 0  #: by `drop_last`, of an iterable dataset
    yielded_samples: int = field(default=0, repr=False)


class BaseIterator:
    """What both iterators do: sample indices, count."""

    def __init__(self, settings: Settings, report: EpochReport) -> None:
        self._settings = settings
        self._report = report
        self._is_iterable = isinstance(settings.dataset, IterableDataset)
        self._sampler_iter = iter(settings.index_sampler)
        # Drawn also where no worker will need it: the generator moves on as PyTorch's does.
        draw = torch.empty((), dtype=torch.int64).random_(generator=settings.generator)
        self._base_seed = int(draw.item())
        self._source = Source(max_depth=(settings.prefetch_factor or 0) * settings.num_workers)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        with step(self._source):
            return self._next()

    @property
    def source(self) -> Source:
        """The iterator, in a trace."""
        return self._source

    def _next(self) -> Any:
        """The next batch, or StopIteration."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._settings.index_sampler)  # type: ignore[arg-type]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """End here: `next` raises StopIteration from now on, or once more the error that ended it.
        Safe to repeat.
        """
        raise NotImplementedError

    def interrupt(self) -> None:
        """End the `next` that waits in another thread, with StopIteration, as soon as may be."""
        raise NotImplementedError

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} cannot be pickled: pickle the DataLoader instead")

    def _give(self, batch: Any, n_samples: int) -> Any:
        if self._is_iterable:
            self._count(n_samples)
        return batch

    def _count(self, n_samples: int) -> None:
        report, announced = self._report, self._report.announced_samples
        report.yielded_samples += n_samples
        if announced is not None and report.yielded_samples > announced:
            many = self._settings.num_workers > 1
            warnings.warn(
                f"Length of IterableDataset {self._settings.dataset} was reported to be "
                f"{announced} (when accessing len(dataloader)), but {report.yielded_samples} "
                "samples have been fetched." + (f" {HOW_TO_SHARD}" if many else ""),
                stacklevel=5,
            )


HOW_TO_SHARD = (
    "Each worker has its own copy of the dataset; to give each its own part, let `__iter__` read "
    "`labkit.get_worker_info()` (or torch's) and yield every `num_workers`-th sample from `id` on."
)


class SingleProcessIterator(BaseIterator):
    """Iterates once, with the dataset in this process (`num_workers=0`).

    Batches are built in the loader's arena, so that their memory is warm from the second or third
    one on.
    """

    def __init__(self, settings: Settings, report: EpochReport, arena: Arena) -> None:
        super().__init__(settings, report)
        self._arena = arena
        self._closed = False
        self._batch = 0  # number of the next one
        self._fetcher = make_fetcher(
            settings.dataset, settings.auto_collation, settings.collate_fn, settings.drop_last
        )

    def _next(self) -> Any:
        if self._closed:
            raise StopIteration
        with span("sampler", self._batch):
            index = next(self._sampler_iter)
        try:
            with building_in(self._arena.allocate):
                fetched = self._fetcher.fetch(index)
        except StopIteration:
            self._report.dropped_samples = self._fetcher.dropped_samples
            raise
        batch = fetched.batch
        if self._settings.pin_memory:
            with span("pin"):
                batch = pin_batch(batch)
            if self._batch == 0:
                warn_of_unpinned(batch)
        with span("take"):
            self._batch += 1
        return self._give(batch, fetched.n_samples)

    def close(self) -> None:
        self._closed = True

    def interrupt(self) -> None:
        self._closed = True  # a sample that is being made cannot be given up
