"""How many batches a second a loader gives, and how much of the cores others take.

Before it: `workloads`. After it: `validating`.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sized
from multiprocessing.connection import Connection
from typing import Any, cast

from torch.utils.data import RandomSampler

import labkit
from labkit.lab.machine import cores

__all__ = ["batches_per_second", "others"]

_ENDLESS = 1 << 30
_LEAST = 12  # batches
_EACH = 4  # and so many of each worker
_PROBE_SECONDS = 0.4


def batches_per_second(
    dataset: Any,
    num_workers: int,
    prefetch_factor: int,
    batch_size: int,
    step_seconds: float,
    seconds: float,
) -> float:
    """Load for about so long after a warm-up, with a step that takes no core after each batch."""
    loader = labkit.DataLoader(
        dataset,
        batch_size=batch_size,
        sampler=RandomSampler(cast(Sized, dataset), replacement=True, num_samples=_ENDLESS),
        num_workers=num_workers,
        prefetch_factor=prefetch_factor if num_workers else None,
    )
    warmup = max(4, (prefetch_factor + 2) * num_workers)
    least = max(_LEAST, _EACH * num_workers)
    batches = iter(loader)
    count, began = -warmup, 0.0
    try:
        for _ in batches:
            time.sleep(step_seconds)
            count += 1
            if count == 0:
                began = time.monotonic()
            elif count >= least and time.monotonic() - began >= seconds:
                return count / (time.monotonic() - began)
    finally:
        batches.close()  # type: ignore[attr-defined]
    raise AssertionError("the sampler ends never")


def others() -> float:
    """How many other programs want a core, on average: from what is left for those that spin.

    With n that spin on c cores and k others, these get c·n/(n + k) cores (processor sharing).
    """
    count = cores()
    pipes = [multiprocessing.Pipe(duplex=False) for _ in range(count)]
    context = multiprocessing.get_context("fork")
    spinning = [context.Process(target=_spin, args=(writer,)) for _, writer in pipes]
    for process in spinning:
        process.start()
    got: float = sum(reader.recv() for reader, _ in pipes)
    for process in spinning:
        process.join()
    for pipe in pipes:
        for end in pipe:
            end.close()
    return max(0.0, count * count / min(got, count) - count)


def _spin(told: Connection) -> None:
    """Tell which part of the time this process had a core."""
    began, cpu = time.monotonic(), time.process_time()
    while time.monotonic() - began < _PROBE_SECONDS:
        pass
    told.send((time.process_time() - cpu) / (time.monotonic() - began))
