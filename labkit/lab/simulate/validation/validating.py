"""Predict settings drawn at random, then measure them.

Costs are measured first, then everything is predicted, and only then is anything of it measured:
repeat by repeat, all settings in turn, each with a reference run next to it.

Before it: `workloads`, `loading`, `labkit.lab.simulate`. After it: `table`.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from labkit.lab.machine import cores, machine
from labkit.lab.simulate.measured import Measured
from labkit.lab.simulate.measuring import measure
from labkit.lab.simulate.predicting import predict
from labkit.lab.simulate.validation.loading import batches_per_second, others
from labkit.lab.simulate.validation.workloads import WORKLOADS, Case, Workload, draw

__all__ = ["Row", "Validation", "validate"]

_WITHIN = 0.15
_OF_TEN = 0.9
_FEWEST_REPEATS = 3
_LONGEST = 300.0  # seconds: after them no further round of repeats begins


@dataclass
class Row:
    """One setting: what was predicted, and what was measured afterwards.

    Attributes:
        predicted: batches a second.
        measured: the same, of each repeat.
        reference: of the runs next to them.
        reference_before: of the same run, before anything was predicted.
        loads: the load average at each repeat.
    """

    case: Case
    predicted: float
    reference_before: float
    measured: list[float] = field(default_factory=list)
    reference: list[float] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Of the repeats."""
        return statistics.median(self.measured)

    @property
    def error(self) -> float:
        """By which part of the measured the predicted is too high."""
        return self.predicted / self.median - 1

    @property
    def drift(self) -> float:
        """How fast the reference is now, against before: 1 on a machine that has not changed."""
        return statistics.median(self.reference) / self.reference_before

    @property
    def load(self) -> float:
        """The median of the load averages."""
        return statistics.median(self.loads)


@dataclass
class Validation:
    """All settings, and where and how it was done.

    Attributes:
        others: other programs that wanted a core when the costs were measured.
        command: that does the same again.
    """

    rows: list[Row]
    seed: int
    others: float
    machine: dict[str, Any]
    wall_s: float
    command: str = ""

    @property
    def within(self) -> int:
        """Of how many settings the prediction is within 15% of the measured."""
        return sum(abs(row.error) <= _WITHIN for row in self.rows)

    @property
    def holds(self) -> bool:
        """Whether those are nine of ten."""
        return self.within >= _OF_TEN * len(self.rows)

    @property
    def verdict(self) -> str:
        """The same in words."""
        count = len(self.rows)
        words = "holds" if self.holds else "does not hold"
        return (
            f"Predicted within {_WITHIN:.0%} of the measured: {self.within} of {count} settings. "
            f"That nine of ten are, {words} here."
        )


def validate(
    seed: int = 0,
    settings: int = 10,
    repeats: int = 5,
    seconds: float = 1.0,
    workloads: Sequence[Workload] = WORKLOADS,
    tell: Callable[[str], None] = lambda text: None,
) -> Validation:
    """Draw, measure costs, predict, measure.

    Args:
        settings: how many.
        repeats: of each; fewer, but at least three, where five minutes would not do.
        seconds: that each is measured; a quarter of that goes into its reference.
        tell: called with what is done now.
    """
    began = time.monotonic()
    cases = draw(seed, settings, workloads)
    used = list(dict.fromkeys(case.workload for case in cases))
    datasets = {workload: workload.make() for workload in used}
    tell("looking at how much others want the cores")
    before = [others()]
    costs, references = {}, {}
    for workload in used:
        tell(f"measuring what it costs: {workload.name}")
        costs[workload] = _costs(workload, datasets[workload], seconds)
        references[workload] = statistics.median(
            _reference(workload, datasets[workload], seconds) for _ in range(3)
        )
        before.append(others())
    rows = [Row(c, _predicted(c, costs[c.workload]), references[c.workload]) for c in cases]
    order = random.Random(seed)
    for repeat in range(repeats):
        if repeat >= _FEWEST_REPEATS and time.monotonic() - began > _LONGEST:
            break
        for place, row in enumerate(order.sample(rows, len(rows)), 1):
            tell(f"repeat {repeat + 1} of {repeats}: setting {place} of {len(rows)}")
            _measure(row, datasets[row.case.workload], seconds)
    return Validation(rows, seed, statistics.fmean(before), machine(), time.monotonic() - began)


def _costs(workload: Workload, dataset: Any, seconds: float) -> Measured:
    return measure(
        dataset, batch_size=workload.fit_batch_size, seconds=3 * seconds, what=workload.name
    )


def _reference(workload: Workload, dataset: Any, seconds: float) -> float:
    return batches_per_second(dataset, 1, 2, workload.fit_batch_size, 0.0, seconds / 4)


def _predicted(case: Case, costs: Measured) -> float:
    return predict(
        costs,
        cores=cores(),
        num_workers=case.num_workers,
        prefetch_factor=case.prefetch_factor,
        batch_size=case.batch_size,
        step_seconds=case.step_seconds,
    ).batches_per_second


def _measure(row: Row, dataset: Any, seconds: float) -> None:
    case = row.case
    row.reference.append(_reference(case.workload, dataset, seconds))
    row.measured.append(
        batches_per_second(
            dataset,
            case.num_workers,
            case.prefetch_factor,
            case.batch_size,
            case.step_seconds,
            seconds,
        )
    )
    row.loads.append(os.getloadavg()[0])
