"""The way of each batch through the layers, and what it waits for.

Between two things that are done for a batch it waits: in the index queue until its worker is free,
in the feeder's queue, on its way to the main process, in the reorder buffer. A wait that is long
tells where the loader has too little of something, and the layer that is busiest tells of what.

Before it: `tracing.py`, which gathers the spans.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from labkit.spans import Span

__all__ = ["Journey", "Stage", "journeys", "summary"]

_ORDER = (
    "sampler",
    "dispatch",
    "fetch",
    "collate",
    "pickle",
    "send",
    "rebuild",
    "take",
    "consumer",
)
_WAITS = {
    ("dispatch", "fetch"): "index queue",
    ("collate", "pickle"): "feeder queue",
    ("fetch", "pickle"): "feeder queue",  # a sample that is not collated
    ("send", "rebuild"): "result queue",
    ("rebuild", "take"): "reorder buffer",
}
_BUSY = 0.5  # of its time: a lane that is busier than that is what others wait for
_LITTLE = 0.05  # of the time: a consumer that waits less is not held up


@dataclass(frozen=True)
class Stage:
    """A part of a batch's way.

    Attributes:
        name: a layer, or where the batch waited.
        is_wait: nobody did anything for it.
        start, end: seconds on `time.monotonic()`.
    """

    name: str
    is_wait: bool
    start: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start


@dataclass(frozen=True)
class Journey:
    """The way of one batch, from the sampler to the consumer."""

    loader: int
    epoch: int
    batch: int
    stages: tuple[Stage, ...]


def journeys(spans: Iterable[Span]) -> list[Journey]:
    """The journeys of the batches that were given, by the time of their first stage."""
    of_batch: dict[tuple[int, int, int], list[Span]] = defaultdict(list)
    for span in spans:
        if span.batch >= 0 and span.layer in _ORDER:
            of_batch[span.loader, span.epoch, span.batch].append(span)
    found = [
        Journey(*key, stages=tuple(_stages(sorted(spans, key=_place))))
        for key, spans in of_batch.items()
        if any(span.layer == "take" for span in spans)
    ]
    return sorted(found, key=lambda journey: journey.stages[0].start)


def _place(span: Span) -> tuple[int, float]:
    return _ORDER.index(span.layer), span.start


def _stages(spans: list[Span]) -> Iterator[Stage]:
    for span, after in pairwise(spans):
        # Whoever is sent something may have it before the call that sends it returns.
        end = min(span.end, after.start)
        yield Stage(span.layer, False, span.start, end)
        wait = _WAITS.get((span.layer, after.layer))
        if wait is not None:
            yield Stage(wait, True, end, after.start)
    last = spans[-1]
    yield Stage(last.layer, False, last.start, last.end)


# The summary


def summary(spans: list[Span]) -> str:
    """See `Trace.summary`."""
    # What takes a loader's batches may be a Preloader, which gives them on to the consumer.
    spans = [span for span in spans if span.layer != "consumer" or span.lane != "preloader"]
    found = journeys(spans)
    if not found:
        return "The trace is empty: no batch was given while it was on."
    return "\n".join([*_table(found), "", *_verdict(spans)])


def _table(found: list[Journey]) -> Iterator[str]:
    seconds: dict[tuple[str, bool], list[float]] = defaultdict(list)
    for journey in found:
        for stage in journey.stages:
            seconds[stage.name, stage.is_wait].append(stage.seconds)
    total = sum(map(sum, seconds.values()))
    yield f"{'the way of a batch':26}{'median':>12}{'share':>8}"
    for (name, is_wait), values in seconds.items():
        label = f"(waits: {name})" if is_wait else name
        yield f"{label:26}{statistics.median(values) * 1e3:9.3f} ms{sum(values) / total:8.1%}"


def _verdict(spans: list[Span]) -> Iterator[str]:
    """What held the consumer up, in each epoch from the first batch that it had to the last."""
    windows = _windows(spans)
    takes = [span.start for span in spans if span.layer == "take" and span.lane != "preloader"]
    if not takes:
        yield "The Preloader gave no batch yet."
        return
    yield f"{len(takes)} batches; the first one after {min(takes) - spans[0].start:.3f} s."
    if not windows:
        return
    shares = _busy_shares(spans, windows)
    waited = 1 - shares.pop("consumer", {}).get("consumer", 0.0)
    yield f"From the first to the last of an epoch, the consumer waited {waited:.0%} of the time."
    if waited < _LITTLE:
        yield "So the loader keeps up with it."
        return
    busiest = max(shares, key=lambda kind: sum(shares[kind].values()))
    busy = sum(shares[busiest].values())
    layer = max(shares[busiest], key=lambda layer: shares[busiest][layer])
    whose = {"main": "the main process", "worker": "the workers", "feeder": "the feeders"}[busiest]
    if busy > _BUSY:
        yield f"What it waits for is {layer}: {whose} worked {busy:.0%} of it, mostly on that."
    else:
        yield (
            f"Nobody was busy for long ({whose} most, {busy:.0%} of it): more batches under way "
            "(`prefetch_factor`, `num_workers`) may help, unless other programs had the cores."
        )


def _windows(spans: Iterable[Span]) -> dict[tuple[int, int], tuple[float, float]]:
    """Of each (loader, epoch) of three batches or more: when it gave the first and the last."""
    takes: dict[tuple[int, int], list[float]] = defaultdict(list)
    for span in spans:
        if span.layer == "take":
            takes[span.loader, span.epoch].append(span.start)
    return {key: (min(at), max(at)) for key, at in takes.items() if len(at) > 2}


def _busy_shares(
    spans: Iterable[Span], windows: dict[tuple[int, int], tuple[float, float]]
) -> dict[str, dict[str, float]]:
    """By kind of lane, by layer: which share of the time in the windows it worked on that."""
    seconds: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    there: dict[str, dict[tuple[str, int, int], float]] = defaultdict(dict)  # each lane once
    for span in spans:
        first, last = windows.get((span.loader, span.epoch), (0.0, 0.0))
        if first <= span.start and span.end <= last:
            kind = _kind(span)
            there[kind][span.lane, span.loader, span.epoch] = last - first
            if span.layer != "wait":
                seconds[kind][span.layer] += span.end - span.start
    return {
        kind: {layer: part / sum(there[kind].values()) for layer, part in layers.items()}
        for kind, layers in seconds.items()
    }


def _kind(span: Span) -> str:
    """Whose lane it is in. The consumer's time is told apart from the rest of the main lane."""
    if span.worker >= 0:
        return span.lane.split()[0]
    return "consumer" if span.layer == "consumer" else "main"
