"""What a bench run found: every repeat as it was measured, and the figures computed from them.

A figure is a ratio of times. Sides take turns, so the nth repeat of one was measured next to the
nth of the other: the ratio is taken of such pairs and then the median of the ratios, which a
machine that is now fast and now slow disturbs least.

Before it: `bench`, which fills a `Run`. After it: `tables`, which prints one.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from labkit.lab.bench.trace_cost import SpanCost
from labkit.lab.resources import Resources

__all__ = ["Check", "Figure", "Measured", "Run", "Spread", "Wanted", "figures", "ratios"]

SCHEMA = 1
"""Of the JSON file; it changes when a name there changes its meaning."""


@dataclass(frozen=True)
class Spread:
    """The median of some values, and how far they reach."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one value."""
        return cls(statistics.median(values), min(values), max(values))


@dataclass
class Measured:
    """One workload. Sides are "labkit", "torch", "stack" (of samples), "step" (on a device, which
    loads nothing), and the names of peers.
    """

    name: str
    what: str
    num_workers: int
    batch_bytes: int | None = None
    seconds: dict[str, list[float]] = field(default_factory=dict)  #: a batch, by side and repeat
    batches: dict[str, list[int]] = field(default_factory=dict)  #: over which it was taken
    resources: dict[str, Resources] = field(default_factory=dict)
    span_cost: SpanCost | None = None  #: of labkit's side, while nothing is traced

    def add(self, side: str, seconds: float, batches: int) -> None:
        """Note one more repeat of a side."""
        self.seconds.setdefault(side, []).append(seconds)
        self.batches.setdefault(side, []).append(batches)


@dataclass
class Run:
    """Everything that one call of the bench found."""

    machine: dict[str, Any]
    settings: dict[str, Any]
    workloads: list[Measured] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)  #: what was left out, and why
    failures: dict[str, str] = field(default_factory=dict)  #: what raised an error, and which
    interrupted: bool = False
    wall_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """For `--json`: all repeats, and the figures."""
        found = [
            {**asdict(figure), "median": figure.spread.median, "verdict": figure.verdict}
            for figure in figures(self.workloads)
        ]
        checks = [asdict(check) for check in checks_of(self.workloads)]
        return {"schema": SCHEMA, **asdict(self), "figures": found, "checks": checks}


@dataclass(frozen=True)
class Wanted:
    """The bar that a figure is to reach."""

    sign: str  #: "≥" or "≤" or ">"
    value: float

    def __str__(self) -> str:
        return f"{self.sign} {self.value:g}"

    def holds(self, value: float) -> bool:
        """Whether `value` reaches it."""
        if self.sign == "≤":
            return value <= self.value
        return value > self.value if self.sign == ">" else value >= self.value


@dataclass(frozen=True)
class Figure:
    """A ratio, repeat by repeat, and the bar that stands for it, if any does."""

    name: str  #: what is divided by what
    workload: str
    per_repeat: tuple[float, ...]
    wanted: Wanted | None = None

    @property
    def spread(self) -> Spread:
        """Of the repeats."""
        return Spread.of(self.per_repeat)

    @property
    def verdict(self) -> str:
        """Whether the median reaches the bar, in words; "" without a bar."""
        if self.wanted is None:
            return ""
        words = "reached" if self.wanted.holds(self.spread.median) else "not reached"
        if len({self.wanted.holds(value) for value in self.per_repeat}) > 1:
            words += " (single repeats fall on both sides)"
        return words


@dataclass(frozen=True)
class Check:
    """A bar that is no ratio."""

    name: str
    found: str
    wanted: str
    verdict: str


def ratios(over: Sequence[Sequence[float]], under: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """For each repeat the product of `over` ÷ the product of `under`.

    Args:
        over: one or more series, a value a repeat; a repeat counts where all series have it.
        under: likewise.
    """
    n = len(over)
    rows = zip(*over, *under, strict=False)
    return tuple(math.prod(row[:n]) / math.prod(row[n:]) for row in rows)


_OWN = {"labkit", "torch", "stack", "step"}

Series = tuple[str, str]
"""(workload, side)"""

_RATIO = "PyTorch ÷ labkit"
_LIMIT = "labkit ÷ torch.stack"
_GROWTH = "64 ÷ 2 workers"
_TRACED = "a trace on ÷ off"
_STEP = "÷ step alone"
_H200 = "NVIDIA H200"  #: for which, and for batches of 77 MB, the bars of the group "device" stand

_WANTED: dict[tuple[str, str], Wanted] = {
    (_RATIO, "images, 2 workers"): Wanted("≥", 10),
    (_RATIO, "images, 0 workers"): Wanted("≥", 4),
    (_RATIO, "tensor"): Wanted("≥", 8),
    (_RATIO, "dict of 4"): Wanted("≥", 12),
    (_RATIO, "dict of 20"): Wanted("≥", 24),
    (_RATIO, "numpy"): Wanted("≥", 20),
    (_RATIO, "jpeg"): Wanted("≥", 1),
    (_LIMIT, "images, 1 worker"): Wanted("≤", 1.15),
    (_LIMIT, "images, 2 workers"): Wanted("≤", 0.8),
    (_RATIO, f"{_H200}, no compute"): Wanted("≥", 14),
    (_RATIO, f"{_H200}, short step"): Wanted("≥", 12),
    (f"labkit {_STEP}", f"{_H200}, long step"): Wanted("≤", 1.02),
    (_GROWTH, "labkit"): Wanted("≤", 2),
    (_GROWTH, "PyTorch's ÷ labkit's"): Wanted(">", 1),
}


def figures(workloads: Sequence[Measured]) -> list[Figure]:
    """All ratios that can be computed from what was measured."""
    found = []
    for measured in workloads:
        name, peers = measured.name, sorted(measured.seconds.keys() - _OWN)
        found.append(_figure(workloads, _RATIO, name, [(name, "torch")], [(name, "labkit")]))
        found.append(_figure(workloads, _LIMIT, name, [(name, "labkit")], [(name, "stack")]))
        for side, words in (("labkit", "labkit"), ("torch", "PyTorch")):
            title = f"{words} {_STEP}"
            found.append(_figure(workloads, title, name, [(name, side)], [(name, "step")]))
        for peer in peers:
            title = f"{peer} ÷ labkit"
            found.append(_figure(workloads, title, name, [(name, peer)], [(name, "labkit")]))
    on, off = ("tensor, traced", "labkit"), ("tensor", "labkit")
    found.append(_figure(workloads, _TRACED, "tensor", [on], [off]))
    few, many = "workers: 2", "workers: 64"
    our_many, our_few = (many, "labkit"), (few, "labkit")
    found += [
        _figure(workloads, _GROWTH, "labkit", [our_many], [our_few]),
        _figure(workloads, _GROWTH, "PyTorch", [(many, "torch")], [(few, "torch")]),
        _figure(
            workloads,
            _GROWTH,
            "PyTorch's ÷ labkit's",
            [(many, "torch"), our_few],
            [(few, "torch"), our_many],
        ),
    ]
    return [figure for figure in found if figure is not None]


def _figure(
    workloads: Sequence[Measured],
    name: str,
    workload: str,
    over: list[Series],
    under: list[Series],
) -> Figure | None:
    """The figure, or None where one of its series is not there."""
    by_name = {measured.name: measured.seconds for measured in workloads}
    series = [[by_name.get(w, {}).get(side, []) for w, side in part] for part in (over, under)]
    per_repeat = ratios(*series)
    if not per_repeat:
        return None
    return Figure(name, workload, per_repeat, _WANTED.get((name, workload)))


def checks_of(workloads: Sequence[Measured]) -> list[Check]:
    """All checks of what was measured."""
    return [*_shared_memory(workloads), *_spans_off(workloads)]


def _spans_off(workloads: Sequence[Measured]) -> Iterator[Check]:
    """Whether what spans cost while nothing is traced is lost in the spread of the times."""
    for measured in workloads:
        cost, seconds = measured.span_cost, measured.seconds.get("labkit", [])
        if cost is not None and len(seconds) > 1:
            spread = Spread.of(seconds)
            half = (spread.high - spread.low) / 2
            each = f"{cost.spans_a_batch:.0f} spans of {cost.seconds_a_span * 1e6:.2f} µs"
            yield Check(
                name=f"tracing while it is off, {measured.name}",
                found=f"{cost.seconds_a_batch * 1e6:.1f} µs a batch, all processes ({each})",
                wanted=f"≤ {half * 1e6:.1f} µs (half of the spread of the repeats)",
                verdict="reached" if cost.seconds_a_batch <= half else "not reached",
            )


def _shared_memory(workloads: Sequence[Measured]) -> list[Check]:
    """Whether labkit takes no more shared memory than PyTorch and one batch a worker more."""
    checks = []
    for measured in workloads:
        if measured.name != "images, 2 workers" or measured.batch_bytes is None:
            continue
        ours, theirs = (measured.resources.get(side) for side in ("labkit", "torch"))
        if ours is None or theirs is None or ours.shared_bytes is None:
            continue
        more = measured.num_workers * measured.batch_bytes
        limit = (theirs.shared_bytes or 0) + more
        checks.append(
            Check(
                name=f"peak shared memory, {measured.name}",
                found=f"{ours.shared_bytes / 1e6:.1f} MB",
                wanted=f"≤ {limit / 1e6:.1f} MB (PyTorch's + one batch a worker)",
                verdict="reached" if ours.shared_bytes <= limit else "not reached",
            )
        )
    return checks
