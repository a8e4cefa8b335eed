"""A soak: loaders run for long, and what they hold is counted at every round's end.

python -m tests.faults.soak [--seconds 1800] [--batches 100000] [--to build/soak.json]

A round gives batches from four loaders that live as long as the soak, one a sharing strategy, with
persistent workers, and from one that is made and dropped; some batches are kept until the next
round. At its end all is in the same place, so whatever grows from round to round is a leak.

Before it: nothing. After it: `judge`, which tells a leak from noise.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from tqdm import tqdm

import labkit
from labkit.lab.machine import machine
from tests.datasets import Mapped

__all__ = ["Sample", "judge", "soak"]

STRATEGIES = sorted(labkit.get_all_sharing_strategies())
_BLOCKS = 10  # of samples: neighbours in time are not independent
_T_95 = 2.306  # two-sided 95% of Student's t with 8 degrees of freedom

LEAKS = {"rss": 16 << 20, "workers_rss": 32 << 20}
"""Bytes that memory may grow by in a whole soak; of what is counted, less than one thing."""


@dataclass(frozen=True)
class Sample:
    """What is held at a round's end."""

    seconds: float
    batches: int  #: given until then
    rss: int  #: bytes, of this process
    workers_rss: int  #: bytes, of the workers that live on
    fds: int
    workers_fds: int
    mappings: int
    threads: int
    names: int  #: in /dev/shm, of this process and its workers

    @classmethod
    def take(cls, began: float, batches: int) -> Sample:
        gc.collect()
        me = psutil.Process()
        workers = me.children()
        mine = {str(process.pid) for process in [me, *workers]}
        return cls(
            seconds=time.monotonic() - began,
            batches=batches,
            rss=me.memory_info().rss,
            workers_rss=sum(worker.memory_info().rss for worker in workers),
            fds=me.num_fds(),
            workers_fds=sum(worker.num_fds() for worker in workers),
            mappings=len(Path("/proc/self/maps").read_text().splitlines()),
            threads=threading.active_count(),
            names=sum(bool(mine & set(name.split("-"))) for name in os.listdir("/dev/shm")),
        )


def soak(
    is_over: Callable[[float, int], bool],
    leak: Callable[[], None] = lambda: None,
    epoch: int = 40,
) -> list[Sample]:
    """Rounds until `is_over(seconds, batches)`.

    Args:
        leak: called once a batch; for tests, which plant one.
        epoch: batches in an epoch of each loader.
    """
    samples: list[Sample] = []
    began, given = time.monotonic(), 0
    kept: list[Any] = []
    with _long_lived(epoch) as loaders:
        while not is_over(time.monotonic() - began, given):
            passing = _loader(STRATEGIES[len(samples) % 4], epoch // 4, persistent=False)
            kept, old = [], kept
            for loader in (*loaders, passing):
                for number, batch in enumerate(loader):
                    assert (batch == number).all()
                    given += 1
                    leak()
                    if number % 10 == 0:
                        kept.append(batch)
            old.clear()
            del batch, loader, passing
            samples.append(Sample.take(began, given))
    return samples


@contextmanager
def _long_lived(epoch: int) -> Iterator[list[Any]]:
    loaders = [_loader(strategy, epoch, persistent=True) for strategy in STRATEGIES]
    try:
        yield loaders
    finally:
        for loader in loaders:
            loader.close()


def _loader(strategy: str, epoch: int, persistent: bool) -> Any:
    return labkit.DataLoader(
        Mapped(_make, epoch),
        batch_size=None,
        num_workers=1,
        persistent_workers=persistent,
        sharing_strategy=strategy,
        multiprocessing_context="fork",
    )


def _make(index: int) -> torch.Tensor:
    return torch.full((20_000,), float(index))


def judge(samples: list[Sample]) -> dict[str, str]:
    """What grows, each with its slope in words; empty: nothing.

    The first fifth is left out: it warms up. The rest is cut into ten blocks, and a line is laid
    through their medians. Growth over the whole soak is its slope times the batches; a leak is one
    that is more than may be, at the lower end of its 95% interval (ordinary least squares).
    """
    rest = samples[len(samples) // 5 :]
    if len(rest) < _BLOCKS:
        raise ValueError(f"{len(samples)} samples are too few to judge: run it for longer")
    leaks = {}
    for name in ("rss", "workers_rss", "fds", "workers_fds", "mappings", "threads", "names"):
        slope, error = _slope(rest, name)
        span = rest[-1].batches - rest[0].batches
        if (slope - _T_95 * error) * span > LEAKS.get(name, 0.9):
            leaks[name] = (
                f"{slope * 1000:.3g} ± {_T_95 * error * 1000:.2g} per 1,000 batches, "
                f"{slope * span:,.0f} in {span:,}"
            )
    return leaks


def _slope(samples: list[Sample], name: str) -> tuple[float, float]:
    """Of the line through the blocks' medians, per batch; and its standard error."""
    blocks = np.array_split(np.arange(len(samples)), _BLOCKS)
    values = np.array([getattr(sample, name) for sample in samples], dtype=float)
    batches = np.array([sample.batches for sample in samples], dtype=float)
    y = np.array([np.median(values[block]) for block in blocks])
    x = np.array([np.median(batches[block]) for block in blocks])
    x -= x.mean()
    slope = (x * y).sum() / (x * x).sum()
    residuals = y - y.mean() - slope * x
    error = np.sqrt((residuals**2).sum() / (len(x) - 2) / (x * x).sum())
    return float(slope), float(error)


def main() -> int:
    """Returns the exit code: 1 if something grows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--batches", type=int, default=100_000)
    parser.add_argument("--to", type=Path, default=Path("build/soak.json"))
    args = parser.parse_args()
    with tqdm(total=int(args.seconds), unit="s") as bar:

        def is_over(seconds: float, batches: int) -> bool:
            bar.n = min(int(seconds), bar.total)
            bar.set_postfix(batches=batches)
            return seconds >= args.seconds and batches >= args.batches

        samples = soak(is_over)
    leaks = judge(samples)
    found = {"machine": machine(), "leaks": leaks, "samples": [asdict(s) for s in samples]}
    args.to.parent.mkdir(parents=True, exist_ok=True)
    args.to.write_text(json.dumps(found))
    first, last = samples[len(samples) // 5], samples[-1]
    print(f"{last.batches:,} batches in {last.seconds:,.0f} s; kept in {args.to}")
    for name, value in asdict(first).items():
        print(f"  {name:12} {value:>14,.0f} → {getattr(last, name):>14,.0f}  {leaks.get(name, '')}")
    print("leaks: " + (", ".join(leaks) or "none"))
    return int(bool(leaks))


if __name__ == "__main__":
    sys.exit(main())
