"""What the simulation is held to: loads of different kinds, and settings drawn at random.

Before it: `labkit.lab.datasets`, `labkit.lab.decoding`. After it: `validating`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from labkit.lab.datasets import Payload, Waiting
from labkit.lab.decoding import JpegImages, TextRecords

__all__ = ["WORKLOADS", "Case", "Workload", "draw"]

_LENGTH = 4096


@dataclass(frozen=True)
class Workload:
    """A dataset, and the settings that are drawn for it.

    Attributes:
        name: in a few words.
        make: makes the dataset.
        fit_batch_size: with it and with twice that the costs are measured; never drawn.
        batch_sizes, workers, step_ms: drawn from these.
        left_out: what is never drawn although somebody could want it, and why.
    """

    name: str
    make: Callable[[], Any]
    fit_batch_size: int
    batch_sizes: tuple[int, ...]
    workers: tuple[int, ...] = (0, 1, 2, 3, 4)
    step_ms: tuple[float, ...] = (0.0, 5.0, 15.0)
    left_out: str = ""


WORKLOADS = (
    Workload(
        "waiting: 2 ms a sample", lambda: Waiting(Payload(_LENGTH, 4000), 0.002), 4, (6, 12, 16)
    ),
    Workload("decoding images", lambda: JpegImages(_LENGTH), 6, (8, 16, 24)),
    Workload("parsing text", lambda: TextRecords(_LENGTH), 6, (8, 16, 24)),
    Workload(
        "big batches",
        lambda: Payload(_LENGTH, 600_000),
        20,
        (16, 24, 32),
        (1, 2, 3, 4),
        left_out="without workers: what fresh memory costs then, depends on how much the "
        "allocator keeps, which the simulation knows nothing of, and predicts far too much speed",
    ),
    Workload(
        "a long step",
        lambda: Waiting(Payload(_LENGTH, 4000), 0.0005),
        6,
        (8, 16, 24),
        step_ms=(20.0, 40.0),
    ),
)


@dataclass(frozen=True)
class Case:
    """One setting to predict and to measure."""

    workload: Workload
    num_workers: int
    prefetch_factor: int
    batch_size: int
    step_ms: float

    @property
    def step_seconds(self) -> float:
        """The step."""
        return self.step_ms / 1e3


def draw(seed: int, count: int, workloads: Sequence[Workload] = WORKLOADS) -> list[Case]:
    """So many different settings, as many of each workload as of any other, or one more."""
    generator = random.Random(seed)
    found: list[Case] = []
    while len(found) < count:
        workload = workloads[len(found) % len(workloads)]
        case = Case(
            workload,
            generator.choice(workload.workers),
            generator.choice((1, 2, 4)),
            generator.choice(workload.batch_sizes),
            generator.choice(workload.step_ms),
        )
        if case not in found:
            found.append(case)
    return found
