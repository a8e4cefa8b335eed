"""Measure what a dataset's loading costs, in a few seconds: from four short traces.

One worker with the batch size asked for; one worker with twice that, which tells what a collate
costs whatever its size; as many workers as cores, which tells how much slower each gets; and none,
for in the main process memory is fresh and torch may have several threads.

Before it: `metering`, which tells work from waiting. After it: `predicting`; `validation`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass
from typing import Any, cast

from torch.utils.data import IterableDataset, RandomSampler

import labkit
from labkit.lab.machine import cores, machine
from labkit.lab.simulate.from_trace import costs_of_spans, sample_bytes
from labkit.lab.simulate.measured import Costs, Measured
from labkit.lab.simulate.metering import Meter, Record
from labkit.tracing import Trace

__all__ = ["measure"]

_WARMUP = 6  # batches of each worker: until its arena is warm
_BATCHES = 12  # of each worker, at least, that count
_ENDLESS = 1 << 30
_FEW = 0.05  # of the time: a layer that waits less works all the time, and the rest is noise
_FIXED = 0.1  # of the time: a smaller fixed cost cannot be told from noise


@dataclass(frozen=True)
class _Run:
    """What one loader told."""

    trace: Trace
    records: list[Record]
    main_cpu: float  # seconds of the main thread, a batch
    batch_size: int

    def all(self, name: str) -> list[float]:
        """What all workers noted under that name."""
        return [value for record in self.records for value in getattr(record, name)]

    def mean(self, name: str) -> float:
        return statistics.fmean(self.all(name))


def measure(
    dataset: Any,
    *,
    batch_size: int,
    collate_fn: Callable[[Any], Any] | None = None,
    seconds: float = 4.0,
    what: str | None = None,
    **arguments: Any,
) -> Measured:
    """The costs of loading this dataset, work and waiting told apart.

    Args:
        dataset: map-style, whose samples are drawn at random; or iterable, which is iterated over.
        batch_size: samples of a batch; the smaller, the better their spread is seen.
        collate_fn: as for `labkit.DataLoader`.
        seconds: for all four traces; longer where a dozen batches of each worker take longer.
        what: what is loaded, in a few words; None for the dataset's class.
        **arguments: further ones for `labkit.DataLoader`, such as `multiprocessing_context`.

    Raises:
        ValueError: an iterable dataset has too few batches.
    """
    several = max(2, cores())
    plan = [(1, batch_size), (1, 2 * batch_size), (several, batch_size), (0, batch_size)]
    collate_fn = labkit.default_collate if collate_fn is None else collate_fn
    alone, larger, together, here = (
        _run(dataset, workers, size, collate_fn, seconds / len(plan), arguments)
        for workers, size in plan
    )
    layers = {
        "fetch": _costs(alone, "fetch"),
        "collate": _with_fixed(_costs(alone, "collate"), alone, larger),
        "loop": Costs(fixed_cpu=statistics.median(alone.all("others_cpu"))),
        "feeder": Costs(fixed_cpu=statistics.median(alone.all("threads_cpu"))),
        **_of_main(alone),
        "here": _costs(here, "fetch", "collate"),
    }
    busy = [run.mean("fetch_cpu") + run.mean("collate_cpu") for run in (alone, together)]
    return Measured(
        layers,
        batch_size,
        sample_bytes(alone.trace.spans, batch_size),
        crowded=min(3.0, max(1.0, busy[1] / busy[0])),
        what=what or type(dataset).__name__,
        machine=machine(),
    )


def _run(
    dataset: Any,
    workers: int,
    batch_size: int,
    collate_fn: Callable[[Any], Any],
    seconds: float,
    arguments: dict[str, Any],
) -> _Run:
    meter = Meter(workers)
    metered = meter.dataset(dataset)
    if not isinstance(dataset, IterableDataset):
        drawn = RandomSampler(cast(Sized, metered), replacement=True, num_samples=_ENDLESS)
        arguments = {**arguments, "sampler": drawn}
    loader = labkit.DataLoader(
        metered,
        batch_size=batch_size,
        num_workers=workers,
        collate_fn=meter.collate(collate_fn),
        **arguments,
    )
    each = max(1, workers)
    batches: Any = iter(loader)
    try:
        with labkit.trace() as trace:
            _take(batches, (_WARMUP + _BATCHES) * each)
        main_cpu = _main_cpu(batches, _BATCHES * each, seconds)
        return _Run(trace, meter.records(_WARMUP + _BATCHES), main_cpu, batch_size)
    finally:
        batches.close()
        meter.close()


def _take(batches: Iterator[Any], count: int) -> None:
    for _ in range(count):
        if next(batches, batches) is batches:
            raise ValueError(
                "the dataset ended before there were enough batches to measure: "
                "give a longer one, or a smaller batch_size"
            )


def _main_cpu(batches: Iterator[Any], least: int, seconds: float) -> float:
    """Seconds of CPU that this thread needs for a batch, over so many at least, and for so long.

    Nothing is traced meanwhile: writing spans costs CPU time, too.
    """
    count, began, cpu = 0, time.monotonic(), time.thread_time()
    while count < least or time.monotonic() - began < seconds:
        _take(batches, 1)
        count += 1
    return (time.thread_time() - cpu) / count


def _costs(run: _Run, *layers: str) -> Costs:
    """Of one layer, or of several together."""
    cpu, wait = (
        [sum(parts) for parts in zip(*(run.all(f"{x}_{kind}") for x in layers), strict=True)]
        for kind in ("cpu", "wait")
    )
    if sum(wait) < _FEW * sum(cpu):
        wait = [0.0] * len(cpu)
    return Costs.of_batches(cpu, wait, run.batch_size)


def _with_fixed(costs: Costs, smaller: _Run, larger: _Run) -> Costs:
    """Part of the costs fixed, if those of a larger batch are less than they would be without."""
    at = {run.batch_size: run.mean("collate_cpu") for run in (smaller, larger)}
    (few, least), (many, most) = sorted(at.items())
    slope = (most - least) / (many - few)
    fixed = min(least, least - slope * few)
    if fixed < _FIXED * least:
        return costs
    rest = costs.scaled((least - fixed) / least)
    return Costs(rest.cpu, rest.wait, fixed, rest.fixed_wait)


def _of_main(run: _Run) -> dict[str, Costs]:
    """The main thread's CPU time a batch, shared between its two parts as the trace has them."""
    seconds = costs_of_spans(run.trace.spans, _WARMUP)
    (dispatch,), (rebuild,) = seconds["dispatch"], seconds["rebuild"]
    part = run.main_cpu / (dispatch + rebuild)
    return {
        "dispatch": Costs(fixed_cpu=part * dispatch),
        "rebuild": Costs(fixed_cpu=part * rebuild),
    }
