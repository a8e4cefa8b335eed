"""What a sharing strategy costs besides time: page faults, shared memory, descriptors, names.

Before it: `setting`; `resources` and `shared_memory.holdings`, which look. After it: `quantities`,
which gives these functions their names and units.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch

from labkit.lab.experiments.setting import Setting
from labkit.lab.resources import faults_a_batch, running, shared_memory_bytes
from labkit.lab.shared_memory.holdings import Holdings, holdings

__all__ = [
    "KEPT",
    "descriptors_of_kept",
    "mappings_of_kept",
    "names_in_use",
    "page_faults",
    "shared_memory_mb",
]

KEPT = 10
"""So many batches are kept where it is counted what keeping costs."""

_ENDLESS = 1 << 30  # samples
_WARMUP_BATCHES, _MIN_BATCHES = 6, 12  # a worker
_LOOKS, _SETTLE_SECONDS = 3, 0.05
_PAGE = 4096  # bytes; a step of fewer misses no page that is larger


def page_faults(setting: Setting, seconds: float) -> float:
    """Minor page faults a batch, of this process, which reads each page once, and its workers."""
    per_worker = max(1, setting.num_workers)
    with running(setting.make_loader(_ENDLESS)) as batches:
        read = _read(batches)
        for _ in range(_WARMUP_BATCHES * per_worker):
            next(read)
        found = faults_a_batch(read, _MIN_BATCHES * per_worker, seconds)
        read.close()
    if found is None:
        raise RuntimeError("this system does not count page faults in /proc: measure on Linux")
    return found


def _read(batches: Iterator[torch.Tensor]) -> Any:
    for batch in batches:
        batch.view(-1)[::_PAGE].max()
        yield batch
        del batch


def shared_memory_mb(setting: Setting, seconds: float) -> float:
    """Megabytes of shared memory while batches come and go, one being held: the most of a few
    looks, each at a moment when the workers have all ready that they may.
    """
    per_worker = max(1, setting.num_workers)
    looks = []
    with running(setting.make_loader(_ENDLESS)) as batches:
        read = _read(batches)
        for _ in range(_WARMUP_BATCHES * per_worker):
            next(read)
        for _ in range(_LOOKS):
            next(read)
            time.sleep(_SETTLE_SECONDS)
            looks.append(shared_memory_bytes())
        read.close()
    return max(looks) / 1e6


def descriptors_of_kept(setting: Setting, seconds: float) -> float:
    """How many descriptors this process has open for `KEPT` batches, when the loader is gone."""
    return _for_kept(setting).descriptors


def mappings_of_kept(setting: Setting, seconds: float) -> float:
    """How many pieces of shared memory this process maps for them."""
    return _for_kept(setting).mappings


def _for_kept(setting: Setting) -> Holdings:
    before = holdings()
    with running(setting.make_loader(KEPT * setting.batch_size)) as batches:
        kept = list(batches)
    found = holdings() - before
    del kept
    return found


def names_in_use(setting: Setting, seconds: float) -> float:
    """How many names are in /dev/shm while `KEPT` batches are kept and others are under way."""
    before = holdings()
    with running(setting.make_loader(_ENDLESS)) as batches:
        kept = [next(batches) for _ in range(KEPT)]
        time.sleep(_SETTLE_SECONDS)
        found = holdings() - before
        del kept
    return found.names
