"""What it costs to load a batch, in work and in waits, and how many workers can keep up.

Before it: any loader. After it: `experiments.pipeline`, whose figures say whether a device can be
kept busy on this machine at all; notebook 10.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from labkit.lab.explain.wording import number

__all__ = ["LoadingCost", "measure"]


@dataclass(frozen=True)
class LoadingCost:
    """Of one batch.

    Attributes:
        core_ms: milliseconds that a core works for it.
        wait_ms: milliseconds that nobody works, as for a disk.
    """

    core_ms: float
    wait_ms: float = 0.0

    def fewest_workers(self, step_ms: float, cores: int) -> int | None:
        """The fewest workers that give a batch a step; None where all cores are too few for it.

        A worker needs its work and its waits for each batch. Workers share the cores, and waits
        need none.
        """
        if self.core_ms > cores * step_ms:
            return None
        return max(1, math.ceil((self.core_ms + self.wait_ms) / step_ms))

    def sentence(self, step_ms: float, cores: int) -> str:
        """Whether workers can keep the device busy here, in words."""
        best = number(self.core_ms / cores)
        waits = f" and {number(self.wait_ms)} ms of waits" if self.wait_ms > 0 else ""
        said = (
            f"Loading a batch takes {number(self.core_ms)} ms of a core{waits}. With "
            f"{cores} core{'' if cores == 1 else 's'} one can come every {best} ms at best, and a "
            f"step takes {number(step_ms)} ms"
        )
        workers = self.fewest_workers(step_ms, cores)
        if workers is None:
            return f"{said}: here no number of workers keeps the device busy; make samples cheaper."
        return (
            f"{said}: so {workers} worker{'' if workers == 1 else 's'} can keep the device busy, "
            "if the cores have little else to do."
        )


def measure(loader: Iterable[Any], batches: int = 5) -> LoadingCost:
    """The work for a batch, by this thread's own clock, which stands still while others have the
    core. Waits are not measured: what is read again comes from memory. PyTorch works with one
    thread meanwhile, as in a worker: several wait for each other busily where cores are scarce.

    Args:
        loader: without workers, so that this thread does it all; of more than `batches` batches.
        batches: after a first one that does not count; their median is taken.

    Raises:
        ValueError: the loader has too few batches, or workers.
    """
    if getattr(loader, "num_workers", 0):
        raise ValueError("workers' time is not seen here: give a loader with num_workers=0")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        times = [time.thread_time()]
        times += [time.thread_time() for _ in itertools.islice(loader, batches + 1)]
    finally:
        torch.set_num_threads(threads)
    if len(times) < batches + 2:
        raise ValueError(f"{batches + 1} batches are wanted, but the loader gave {len(times) - 1}")
    work = [after - before for before, after in itertools.pairwise(times)]
    return LoadingCost(statistics.median(work[1:]) * 1e3)
