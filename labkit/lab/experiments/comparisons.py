"""What of a loader can be compared: for each of its arguments the values, and a fair default load.

Before it: `quantities`, what can be measured of a loader. After it: `experiments.loading`, which
measures, and `panels`, which offers them.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import labkit
from labkit.lab.experiments.setting import LOADERS
from labkit.lab.machine import cores
from labkit.lab.stacking import COLLATES

__all__ = ["COMPARISONS", "Comparison", "bytes_words"]


@dataclass(frozen=True)
class Comparison:
    """Loaders that differ in one argument.

    Attributes:
        options: gives the argument's values, those that there are on this machine.
        label: a value in words.
        quantity: what is measured if nothing else is asked for.
        defaults: arguments of `experiments.loading` under which a difference can be seen.
        repeats: where each takes seconds, no more than it takes to tell a difference
            (`labkit.lab.explain.fewest_repeats`); None: as many as usual.
    """

    options: Callable[[], list[Any]]
    label: Callable[[Any], str]
    quantity: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    repeats: int | None = None


def _start_methods() -> list[str]:
    there = multiprocessing.get_all_start_methods()
    return [method for method in ("fork", "forkserver", "spawn") if method in there]


def _sharing_strategies() -> list[str]:
    there = labkit.get_all_sharing_strategies()
    return [s for s in ("copy", "file_system", "file_descriptor", "arena") if s in there]


def _workers() -> list[int]:
    return [0, 1, 2, 4] if cores() < 8 else [0, 1, 2, 4, 8]


def _workers_words(workers: int) -> str:
    return f"{workers} worker" + ("" if workers == 1 else "s")


def bytes_words(count: int) -> str:
    """Bytes in the largest unit that fits: 64 kB, 1.5 MB."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"


# The prefetch factor matters where batches take unequal time and the consumer takes its own: every
# third batch of 8 has a slow sample, and the consumer would be busy all the time if none was late.
_UNEVEN = {"wait_ms": 20.0, "every": 24, "step_ms": 4.0, "batch_bytes": 64_000}

COMPARISONS = {
    "start_method": Comparison(
        _start_methods,
        str,
        "time to the first batch",
        {"workers": 1, "batch_bytes": 64_000},  # each spawned worker imports torch: seconds
        repeats=7,
    ),
    "sharing_strategy": Comparison(_sharing_strategies, str, "time a batch"),
    "workers": Comparison(
        _workers, _workers_words, "time a batch", {"work_ms": 0.5, "batch_bytes": 64_000}
    ),
    "prefetch_factor": Comparison(
        lambda: [1, 2, 4, 8], lambda factor: f"prefetch factor {factor}", "time a batch", _UNEVEN
    ),
    "batch_size": Comparison(
        lambda: [1, 8, 64],
        lambda size: f"batch size {size}",
        "time a sample",
        {"sample_bytes": 4_000},
    ),
    "batch_bytes": Comparison(
        lambda: [4_000, 64_000, 1_000_000, 8_000_000], bytes_words, "time a batch"
    ),
    "persistent_workers": Comparison(
        lambda: [False, True],
        lambda persistent: "persistent workers" if persistent else "new workers each epoch",
        "time an epoch",
        {"batch_bytes": 64_000},
    ),
    "collate": Comparison(lambda: list(COLLATES), str, "time a batch"),
    "loader": Comparison(lambda: list(LOADERS), str, "time a batch"),
}
"""By the argument of `experiments.loading` in which the loaders differ."""
