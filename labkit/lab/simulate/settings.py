"""The machine and the loader that a simulation is of.

After it: `pipeline`, which runs with them, `bounds`, `predicting`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Settings"]

_MOST_UNDER_WAY = 50_000
"""Batches, of all loaders together: more would take a minute to simulate."""


@dataclass(frozen=True)
class Settings:
    """What a simulation is of.

    Attributes:
        cores: of the machine.
        num_workers: of each loader; 0: the main process loads.
        prefetch_factor: batches under way for each worker.
        batch_size: samples.
        link_bytes_per_second: from host to device, for each device; None: nothing is copied.
        step_seconds: that a device is busy with a batch.
        gpus: devices, each with a main process and a loader of its own, on the same cores.
        memory_bytes_per_second: what the host's memory moves, for all together; None: no limit.
        preloader: copy ahead of time, beside the step (`labkit.Preloader`); else the loop takes,
            copies and steps in turn.

    Raises:
        ValueError: a number is out of its range, or so many batches would be under way that the
            simulation would take minutes.
    """

    cores: float
    num_workers: int
    prefetch_factor: int = 2
    batch_size: int = 1
    link_bytes_per_second: float | None = None
    step_seconds: float = 0.0
    gpus: int = 1
    memory_bytes_per_second: float | None = None
    preloader: bool = False

    def __post_init__(self) -> None:
        least = {"num_workers": 0, "prefetch_factor": 1, "batch_size": 1, "gpus": 1}
        for name, smallest in least.items():
            value = getattr(self, name)
            if not isinstance(value, int) or value < smallest:
                raise ValueError(f"{name} is a whole number of {smallest} or more, got {value!r}")
        above_zero = ("cores", "link_bytes_per_second", "memory_bytes_per_second")
        for name in above_zero:
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} is a number above 0, but got {value!r}")
        if not (math.isfinite(self.step_seconds) and self.step_seconds >= 0):
            raise ValueError(f"step_seconds is a number of 0 or more, but got {self.step_seconds}")
        if (under_way := self.gpus * max(1, self.max_depth)) > _MOST_UNDER_WAY:
            raise ValueError(
                f"gpus × num_workers × prefetch_factor is {under_way:,} batches under way; at most "
                f"{_MOST_UNDER_WAY:,} are simulated: take one of several equal machines"
            )

    @property
    def max_depth(self) -> int:
        """How many batches may be under way in one loader."""
        return self.prefetch_factor * self.num_workers
