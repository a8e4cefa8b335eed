"""One loader of those that are compared, and what it loads.

After it: `quantities`, what can be measured of one; `comparisons`, in what they differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch.utils.data
from torch.utils.data import Dataset

import labkit
from labkit.lab.datasets import Payload, Waiting, Working
from labkit.lab.stacking import COLLATES

__all__ = ["LOADERS", "Setting"]

LOADERS: dict[str, Callable[..., Iterable[Any]]] = {
    "labkit": labkit.DataLoader,
    "PyTorch": torch.utils.data.DataLoader,
}
_DISTINCT = 8  # samples, where a dataset's memory is not to be measured


@dataclass(frozen=True)
class Setting:
    """A loader, and what it loads. The names are DataLoader's where it has one.

    Attributes:
        loader: "labkit" or "PyTorch".
        start_method: how workers are started (`multiprocessing_context`).
        sharing_strategy: labkit's; None for its default.
        num_workers: 0 loads in the process itself.
        prefetch_factor: batches asked for in advance, a worker; without workers it means nothing.
        persistent_workers: they stay for the next epoch; without workers it means nothing.
        batch_size: samples a batch.
        sample_bytes: of each sample.
        batches: an epoch, where whole epochs are timed.
        wait_ms: that a sample takes without a core, as from a disk.
        work_ms: of a core, that a sample takes in Python.
        every: only one sample in so many waits and works.
        step_ms: that the consumer takes for a batch, without a core, as for a step on a device.
        dataset_bytes: that the dataset holds in memory; None for those of a few samples.
        collate: one of `labkit.lab.stacking.COLLATES`.
    """

    loader: str = "labkit"
    start_method: str = "fork"
    sharing_strategy: str | None = None
    num_workers: int = 2
    prefetch_factor: int = 2
    persistent_workers: bool = False
    batch_size: int = 8
    sample_bytes: int = 4096
    batches: int = 20
    wait_ms: float = 0.0
    work_ms: float = 0.0
    every: int = 1
    step_ms: float = 0.0
    dataset_bytes: int | None = None
    collate: str = "default"

    def make_loader(self, samples: int) -> Iterable[Any]:
        """A fresh loader of so many samples."""
        options: dict[str, Any] = {}
        if self.num_workers:
            options = {
                "multiprocessing_context": self.start_method,
                "prefetch_factor": self.prefetch_factor,
                "persistent_workers": self.persistent_workers,
            }
        if self.sharing_strategy is not None and self.num_workers:
            options["sharing_strategy"] = self.sharing_strategy
        return LOADERS[self.loader](
            self.make_dataset(samples),
            batch_size=self.batch_size,
            num_workers=self.num_workers,
            collate_fn=COLLATES[self.collate],
            **options,
        )

    def make_dataset(self, samples: int) -> Dataset[Any]:
        """A dataset of so many samples, with what they cost."""
        distinct = _DISTINCT
        if self.dataset_bytes is not None:
            distinct = max(1, self.dataset_bytes // self.sample_bytes)
        dataset: Dataset[Any] = Payload(samples, self.sample_bytes, distinct)
        if self.wait_ms:
            dataset = Waiting(dataset, self.wait_ms / 1e3, self.every)
        if self.work_ms:
            dataset = Working(dataset, self.work_ms / 1e3, self.every)
        return dataset
