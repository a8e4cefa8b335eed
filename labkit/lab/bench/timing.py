"""How long a batch takes: in steady state, at the limit, and the first one of a new loader.

Before it: `bench`, which says what is measured when.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from labkit.lab.bench.workloads import StartUp
from labkit.lab.child import output_of
from labkit.lab.resources import running

__all__ = ["batch_seconds", "first_batch_seconds", "stack_seconds"]


def batch_seconds(
    loader: Iterable[Any], warmup: int, min_batches: int, seconds: float
) -> tuple[float, int]:
    """Time a batch in steady state: the workers are busy when it begins and when it ends.

    Args:
        loader: of enough batches.
        warmup: batches before the timing begins.
        min_batches: timed at least, however long they take.
        seconds: of timing, at least.

    Returns:
        Seconds a batch, and over how many batches that was taken.
    """
    with running(loader) as batches:
        for _ in range(warmup):
            batch = next(batches)
        count = 0
        started = now = time.perf_counter()
        while count < min_batches or now - started < seconds:
            batch = next(batches)  # the one before is held until then, as in a for loop
            count += 1
            now = time.perf_counter()
        del batch
    return (now - started) / count, count


def stack_seconds(samples: list[torch.Tensor], seconds: float) -> tuple[float, int]:
    """Time to stack the samples into warm private memory, with one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        out = torch.stack(samples)
        torch.stack(samples, out=out)
        count = 0
        started = now = time.perf_counter()
        while count < 8 or now - started < seconds:
            torch.stack(samples, out=out)
            count += 1
            now = time.perf_counter()
    finally:
        torch.set_num_threads(threads)
    return (now - started) / count, count


_FIRST_BATCH = """
import time
import torch
from torch.utils.data import TensorDataset
{import_line}

def seconds_to_the_first_batch():
    dataset = TensorDataset(torch.arange(1000.0))
    started = time.perf_counter()
    batches = iter(DataLoader(dataset, num_workers={workers}, multiprocessing_context="{method}"))
    next(batches)
    return time.perf_counter() - started

if __name__ == "__main__":
    seconds_to_the_first_batch()  # a fork server is up after that
    print(seconds_to_the_first_batch())
"""


def first_batch_seconds(import_line: str, workload: StartUp) -> float:
    """Measured in a fresh process, whose program is a file, as a user's is."""
    program = _FIRST_BATCH.format(
        import_line=import_line, workers=workload.num_workers, method=workload.method
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "first_batch.py"
        path.write_text(program)
        return float(output_of([sys.executable, str(path)]))
