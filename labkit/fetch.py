"""Indices → batch: ask the dataset for the samples, hand them to the collate function.

The same code runs in a worker and, with `num_workers=0`, in the main process.
Before it: `worker.py` or `iteration.py`. After it: `collate.py`.
Mirrors: torch/utils/data/_utils/fetch.py. Does better: a `StopIteration` that is not the end of an
iterable dataset is an error and not a short epoch; what the collate function complains of is told
in the dataset's indices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils.data import IterableDataset

from labkit.collate import default_collate
from labkit.errors import CollateError
from labkit.spans import span

__all__ = ["Fetched", "Fetcher", "IterableFetcher", "MapFetcher", "make_fetcher"]


@dataclass
class Fetched:
    """A batch, and how many samples of an iterable dataset it is made of."""

    batch: Any
    n_samples: int = 0


def make_fetcher(
    dataset: Any, auto_collation: bool, collate_fn: Callable[[Any], Any], drop_last: bool
) -> Fetcher:
    """The fetcher for this kind of dataset. Takes the iterator of an iterable one.

    Args:
        auto_collation: whether samples are batched (`batch_size` or `batch_sampler` is set).
        drop_last: leave out an iterable dataset's last samples if they fill no batch.
    """
    if isinstance(dataset, IterableDataset):
        return IterableFetcher(dataset, auto_collation, collate_fn, drop_last)
    return MapFetcher(dataset, auto_collation, collate_fn)


class MapFetcher:
    """Fetches from a dataset with `__getitem__`, or `__getitems__` where it has that."""

    dropped_samples = 0

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable[[Any], Any]):
        self._dataset = dataset
        self.auto_collation = auto_collation
        self.collate_fn = collate_fn

    def fetch(self, index: Any) -> Fetched:
        """The batch of these indices, or the sample of this index."""
        try:
            with span("fetch"):
                data = self._samples(index)
        except StopIteration as error:
            raise RuntimeError(
                f"the dataset raised StopIteration for index {index!r}. A map-style dataset ends "
                "by its length; raise an IndexError for an index that is out of range."
            ) from error
        return Fetched(_collated(self, data, index))

    def _samples(self, index: Any) -> Any:
        if not self.auto_collation:
            return self._dataset[index]
        if getattr(self._dataset, "__getitems__", None):
            return self._dataset.__getitems__(index)
        return [self._dataset[i] for i in index]


class IterableFetcher:
    """Fetches from an iterator over an `IterableDataset`; asks it once past its end, not more.

    Attributes:
        dropped_samples: how many samples `drop_last` left out.
    """

    def __init__(
        self,
        dataset: Any,
        auto_collation: bool,
        collate_fn: Callable[[Any], Any],
        drop_last: bool,
    ):
        self._samples = iter(dataset)
        self.auto_collation = auto_collation
        self.collate_fn = collate_fn
        self._drop_last = drop_last
        self._ended = False
        self._given = 0
        self.dropped_samples = 0

    def fetch(self, index: Sequence[None]) -> Fetched:
        """The next batch of as many samples as `index` has entries, or the next sample.

        Raises:
            StopIteration: the dataset has ended.
        """
        wanted = len(index) if self.auto_collation else 1
        with span("fetch"):
            samples = self._take(wanted)
        if len(samples) < wanted and self._drop_last:
            self.dropped_samples += len(samples)
            samples = []
        if not samples:
            raise StopIteration
        positions = range(self._given, self._given + len(samples))
        self._given += len(samples)
        data = samples if self.auto_collation else samples[0]
        return Fetched(_collated(self, data, positions), len(samples))

    def _take(self, wanted: int) -> list[Any]:
        samples: list[Any] = []
        while len(samples) < wanted and not self._ended:
            try:
                samples.append(next(self._samples))
            except StopIteration:
                self._ended = True
        return samples


Fetcher = MapFetcher | IterableFetcher


def _collated(fetcher: Fetcher, data: Any, indices: Any) -> Any:
    try:
        with span("collate"):
            return fetcher.collate_fn(data)
    except CollateError as error:
        # A collate function of the user's may have left samples out: what it calls the first need
        # not be the first of the indices.
        if fetcher.collate_fn is not default_collate or not fetcher.auto_collation:
            raise
        raise error.with_indices(indices) from error.__cause__
    except StopIteration as error:
        raise RuntimeError("the collate function raised StopIteration") from error
