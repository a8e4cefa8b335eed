"""What the checks of a recording load, and how much of it suits a device.

Before it: nothing. After it: `self_check`, `correctness`, `jobs`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.utils.data import Dataset

from labkit.device import Device
from labkit.lab.machine import cores

__all__ = ["Amounts", "Numbered", "amounts_for"]


class Numbered(Dataset[torch.Tensor]):
    """Samples of float32, each full of the number of its batch.

    Args:
        batches: of which the numbers run from 0.
        batch_size: samples a batch.
        shape: of a sample.
    """

    def __init__(self, batches: int, batch_size: int, shape: tuple[int, ...]) -> None:
        self.batches, self.batch_size, self.shape = batches, batch_size, shape

    def __len__(self) -> int:
        return self.batches * self.batch_size

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full(self.shape, float(index // self.batch_size))


@dataclass(frozen=True)
class Amounts:
    """How much is loaded.

    Attributes:
        large: shape of a batch as in training.
        small: shape of one of many.
        many: so many of the small ones are checked, if time allows.
        step_s: seconds of a step of a slowed consumer.
        workers, most_workers: as usual, and where the link is to be filled.
        epochs: over which device memory is watched.
        rate_s: seconds over which a rate is taken.
    """

    large: tuple[int, ...]
    small: tuple[int, ...]
    many: int
    step_s: float
    workers: int
    most_workers: int
    epochs: int
    rate_s: float

    @property
    def large_bytes(self) -> int:
        """Of a large batch."""
        return math.prod(self.large) * 4


def amounts_for(device: Device) -> Amounts:
    """Full amounts on an accelerator; a try's on a simulated device."""
    if device.is_simulated:
        return Amounts((4, 3, 224, 224), (8, 512), 60, 1e-5, 2, 2, 6, 0.2)
    workers = max(2, min(8, cores()))
    most = max(2, min(16, cores()))
    return Amounts((128, 3, 224, 224), (64, 4096), 10_000, 4e-4, workers, most, 40, 2.0)
