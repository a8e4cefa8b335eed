"""One group of workloads being measured: its sides take turns, then what else they cost.

Before it: `workloads`, `sides`. After it: `bench`.
"""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch.utils.data import default_collate

from labkit.lab import MissingPackage
from labkit.lab.bench.options import REPEATS, Options
from labkit.lab.bench.results import Measured, Run
from labkit.lab.bench.sides import LABKIT, Side
from labkit.lab.bench.timing import batch_seconds, first_batch_seconds, stack_seconds
from labkit.lab.bench.trace_cost import span_cost
from labkit.lab.bench.workloads import FromMemory, Group, StartUp, Workload
from labkit.lab.resources import measure

__all__ = ["GroupRun"]

_TRACED_BATCHES = 200


class GroupRun:
    """One group of workloads being measured."""

    def __init__(self, group: Group, options: Options, sides: Sequence[Side], run: Run) -> None:
        self._group = group
        self._options = options
        self._sides = sides
        self._run = run
        self._repeats = min(options.repeats, group.max_repeats or options.repeats)
        self._measured = {w.name: Measured(w.name, w.what, w.num_workers) for w in group.workloads}
        self._datasets: dict[Callable[[], FromMemory], FromMemory] = {}
        self._failed: set[tuple[str, str]] = set()  # (workload, side)
        self._looked_at = [w for w in group.workloads if isinstance(w, Workload)]

    @property
    def steps(self) -> int:
        """How often the progress bar moves."""
        timed = self._repeats * len(self._group.workloads)
        return (timed + len(self._looked_at)) * len(self._sides)

    def measure(self, bar: Any) -> None:
        """Time all repeats, then look at what else it costs. Adds to the run as it goes."""
        try:
            for workload in self._looked_at:
                if workload.make_dataset not in self._datasets:
                    self._datasets[workload.make_dataset] = workload.make_dataset()
        except MissingPackage as error:
            self._run.notes[self._group.name] = f"skipped: {error}"
            bar.total -= self.steps
            return
        self._run.workloads += self._measured.values()
        self._time_all(bar)
        for workload in self._looked_at:
            self._look(workload, bar)
        self._datasets.clear()

    def _time_all(self, bar: Any) -> None:
        share = max(1.0, self._repeats / REPEATS) * len(self._sides) / 2
        limit = self._group.limit_s * share
        started = time.monotonic()
        for repeat in range(self._repeats):
            if repeat and time.monotonic() - started > limit:
                said = f"{repeat} of {self._repeats} repeats: more than {limit:.0f} s had passed"
                self._run.notes[self._group.name] = said
                left = self._repeats - repeat
                bar.total -= left * len(self._group.workloads) * len(self._sides)
                return
            for workload in self._group.workloads:
                self._time_one(workload, repeat, bar)

    def _time_one(self, workload: Workload | StartUp, repeat: int, bar: Any) -> None:
        """One repeat of all sides: in turn in one order, in the next repeat in the other."""
        turns: list[Side | None] = [*self._sides]
        if isinstance(workload, Workload) and workload.against_stack:
            turns.insert(1, None)
        for side in turns if repeat % 2 == 0 else reversed(turns):
            name = side.name if side is not None else "stack"
            if side is not None:
                bar.set_description(workload.name, refresh=False)
                bar.update()
                if not self._takes_part(side, workload):
                    continue
            with self._failures_noted(workload, name):
                gc.collect()  # what one side leaves is not collected in the other's time
                self._measured[workload.name].add(name, *self._seconds(workload, side))

    def _takes_part(self, side: Side, workload: Workload | StartUp) -> bool:
        return side.takes_part(workload) and (workload.name, side.name) not in self._failed

    @contextmanager
    def _failures_noted(self, workload: Workload | StartUp, name: str) -> Iterator[None]:
        """A side that fails is told of and left out from then on; the others go on."""
        try:
            yield
        except Exception as error:
            self._failed.add((workload.name, name))
            self._run.failures[f"{workload.name}, {name}"] = f"{type(error).__name__}: {error}"

    def _seconds(self, workload: Workload | StartUp, side: Side | None) -> tuple[float, int]:
        """Seconds a batch, and over how many batches that was taken."""
        if isinstance(workload, StartUp):
            assert side is not None and side.import_line is not None
            return first_batch_seconds(side.import_line, workload), 1
        dataset = self._datasets[workload.make_dataset]
        seconds = workload.seconds * self._options.scale
        if side is None:
            return stack_seconds(list(dataset.samples)[: workload.batch_size], seconds)
        loader = side.loader(workload, dataset)
        return batch_seconds(loader, workload.warmup, workload.min_batches, seconds)

    def _look(self, workload: Workload, bar: Any) -> None:
        """Measure what it costs besides time."""
        measured, dataset = self._measured[workload.name], self._datasets[workload.make_dataset]
        samples = [dataset[i] for i in range(workload.batch_size)]
        measured.batch_bytes = _nbytes((workload.collate_fn or default_collate)(samples))
        seconds = workload.seconds * self._options.scale / 2
        for side in self._sides:
            bar.set_description(f"{workload.name}: memory", refresh=False)
            bar.update()
            if not self._takes_part(side, workload):
                continue
            with self._failures_noted(workload, side.name):
                gc.collect()
                make_loader = functools.partial(side.loader, workload, dataset)
                found = measure(make_loader, workload.warmup, workload.min_batches, seconds)
                measured.resources[side.name] = found
                if workload.num_workers and side.message_bytes is not None:
                    found.message_bytes = side.message_bytes(samples, side.collate_fn(workload))
                if workload.with_span_cost and side is LABKIT:
                    measured.span_cost = span_cost(make_loader, _TRACED_BATCHES)


def _nbytes(batch: Any) -> int:
    if isinstance(batch, dict):
        return sum(map(_nbytes, batch.values()))
    return int(batch.nbytes)
