"""What ranks read: samples that tell who loaded them, and with which random numbers.

After it: notebook 12, whose ranks load them with both loaders.
"""

from __future__ import annotations

import torch
from torch.utils.data import Dataset, get_worker_info

from labkit.lab.datasets import Indices

__all__ = ["Augmented", "Told"]


class Told(Dataset[tuple[int, int]]):
    """Samples that are pairs: their index, and the id of the worker that loaded them."""

    def __init__(self, length: int) -> None:
        self._indices = Indices(length)

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> tuple[int, int]:
        worker = get_worker_info()
        return self._indices[index], -1 if worker is None else worker.id


class Augmented(Dataset[float]):
    """Samples that are the random number with which an augmentation would turn or cut them."""

    def __init__(self, length: int) -> None:
        self._indices = Indices(length)

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> float:
        self._indices[index]
        return torch.rand((), dtype=torch.float64).item()
