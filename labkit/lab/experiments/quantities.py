"""What can be measured of a loader: the functions that a measurement's process calls.

Before it: `setting`, the loader; `bench.timing`, whose loop times a batch, and `resources`. After
it: `comparisons`, which says for which settings they are measured, and `experiments`.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch.utils.data

import labkit
from labkit.lab import need
from labkit.lab.bench.timing import batch_seconds
from labkit.lab.experiments.measuring import Where
from labkit.lab.experiments.setting import Setting
from labkit.lab.experiments.sharing_costs import (
    KEPT,
    descriptors_of_kept,
    mappings_of_kept,
    names_in_use,
    page_faults,
    shared_memory_mb,
)
from labkit.lab.resources import running, torch_message_bytes
from labkit.lab.stacking import COLLATES

__all__ = ["QUANTITIES", "Quantity", "Setting"]

_ENDLESS = 1 << 30  # samples: more than any run takes
_WARMUP_BATCHES = 4  # a worker: as many as are handed out ahead, twice
_MIN_BATCHES = 8  # a worker: well over what it has ready when the timing begins
_SETTLE_SECONDS = 0.05


def batch_ms(setting: Setting, seconds: float) -> float:
    """Milliseconds a batch in steady state, over at least `seconds`."""
    per_worker = max(1, setting.num_workers)
    warmup, least = _WARMUP_BATCHES * per_worker, _MIN_BATCHES * per_worker
    took, _ = batch_seconds(_stepping(setting), warmup, least, seconds)
    return took * 1e3


def sample_us(setting: Setting, seconds: float) -> float:
    """Microseconds a sample in steady state."""
    return batch_ms(setting, seconds) / setting.batch_size * 1e3


def _stepping(setting: Setting) -> Iterator[Any]:
    """Endless batches; between two of them the consumer's step is done."""
    with running(setting.make_loader(_ENDLESS)) as batches:
        for batch in batches:
            yield batch
            del batch
            if setting.step_ms:
                time.sleep(setting.step_ms / 1e3)


def first_batch_ms(setting: Setting, seconds: float) -> float:
    """Milliseconds from `iter(loader)` to the first batch, workers' start included."""
    loader = setting.make_loader(setting.batch_size * setting.batches)
    started = time.perf_counter()
    with running(loader) as batches:
        next(batches)
        return (time.perf_counter() - started) * 1e3


def epoch_ms(setting: Setting, seconds: float) -> float:
    """Milliseconds of a whole epoch, from `iter(loader)` to its end; the loader's second one."""
    loader = setting.make_loader(setting.batch_size * setting.batches)
    _run_epoch(loader, setting.step_ms)
    started = time.perf_counter()
    _run_epoch(loader, setting.step_ms)
    return (time.perf_counter() - started) * 1e3  # persistent workers end with the loader


def _run_epoch(loader: Iterable[Any], step_ms: float) -> None:
    for _ in loader:
        if step_ms:
            time.sleep(step_ms / 1e3)


def message_bytes(setting: Setting, seconds: float) -> float:
    """Bytes of the message in which a batch comes from a worker; 0 without workers.

    labkit's are those that its workers say they sent: the median, for a first message may introduce
    memory that later ones only name. PyTorch's workers do not tell, so one of their messages is
    made here.
    """
    if not setting.num_workers:
        return 0.0
    if setting.loader == "PyTorch":
        dataset = setting.make_dataset(setting.batch_size)
        samples = [dataset[i] for i in range(setting.batch_size)]
        collate = COLLATES[setting.collate] or torch.utils.data.default_collate
        return float(torch_message_bytes(samples, collate))
    batches = 3 * _WARMUP_BATCHES * setting.num_workers
    with labkit.trace() as trace:
        _run_epoch(setting.make_loader(setting.batch_size * batches), step_ms=0.0)
    sent = [span for span in trace.spans if span.layer == "send" and span.batch >= 0]
    return statistics.median(span.message_bytes for span in sent)


def added_memory_mb(setting: Setting, seconds: float) -> float:
    """Megabytes of memory that running workers add, on top of the process that starts them.

    By PSS (proc(5)), which counts a page that n processes share as 1/n in each: so the sum over
    all of them counts each page once.
    """
    loader = setting.make_loader(_ENDLESS)
    before = _memory_bytes()
    with running(loader) as batches:
        for _ in range(2 * max(1, setting.num_workers)):
            next(batches)
        time.sleep(_SETTLE_SECONDS)
        return (_memory_bytes() - before) / 1e6


def _memory_bytes() -> int:
    """PSS of this process, of the one that forked it and shares its pages, and of all below."""
    psutil = need("psutil")
    family = [psutil.Process(os.getppid())]
    family += family[0].children(recursive=True)
    total = 0
    for process in family:
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            found = process.memory_full_info()
            if not hasattr(found, "pss"):
                raise RuntimeError(
                    "this system does not tell which memory processes share (PSS): measure "
                    "memory on Linux, or choose another quantity"
                )
            total += found.pss
    return total


@dataclass(frozen=True)
class Quantity:
    """Something measured of a setting; less is better."""

    name: str
    unit: str
    question: str
    measure: Callable[[Setting, float], float]
    where: Where  #: which state of the process it is about
    warmup: int = 0  #: rounds that are not counted
    of_epochs: bool = False  #: so it matters how many batches there are
    note: str = ""  #: what a reader must know besides


_ALL = (
    Quantity("time a batch", "ms", "How long does a batch take?", batch_ms, "fresh children"),
    Quantity("time a sample", "µs", "How long does a sample take?", sample_us, "fresh children"),
    Quantity(
        "time to the first batch",
        "ms",
        "How long does a process wait for the first batch of its first loader?",
        first_batch_ms,
        "fresh children",
    ),
    Quantity(
        "time to the next loader's first batch",
        "ms",
        "How long does a process that has had a loader wait for the next one's first batch?",
        first_batch_ms,
        "one child",
        warmup=1,
    ),
    Quantity(
        "time an epoch",
        "ms",
        "How long does an epoch take?",
        epoch_ms,
        "fresh children",
        of_epochs=True,
    ),
    Quantity(
        "bytes in a message",
        "B",
        "How many bytes are in the message that brings a batch?",
        message_bytes,
        "one child",
    ),
    Quantity(
        "memory that the workers add",
        "MB",
        "How much memory do the workers add?",
        added_memory_mb,
        "fresh children",
        note="Memory is PSS: what n processes share counts as 1/n in each. A fork server counts.",
    ),
    Quantity(
        "page faults a batch",
        "page faults",
        "How many page faults does a batch take?",
        page_faults,
        "one child",
        note="Of the main process, which reads one byte of each page, and its workers together.",
    ),
    Quantity(
        "shared memory in use",
        "MB",
        "How much shared memory is in use while one batch is held and others are under way?",
        shared_memory_mb,
        "fresh children",
    ),
    Quantity(
        f"descriptors for {KEPT} kept batches",
        "descriptors",
        f"How many descriptors does it take to keep {KEPT} batches?",
        descriptors_of_kept,
        "one child",
        warmup=1,
    ),
    Quantity(
        f"mappings for {KEPT} kept batches",
        "mappings",
        f"How many pieces of shared memory are mapped for {KEPT} kept batches?",
        mappings_of_kept,
        "one child",
        warmup=1,
    ),
    Quantity(
        "names in /dev/shm",
        "names",
        f"How many names are in /dev/shm while {KEPT} batches are kept and others are under way?",
        names_in_use,
        "one child",
    ),
)

QUANTITIES = {quantity.name: quantity for quantity in _ALL}
