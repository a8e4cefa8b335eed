"""Which layer holds a loader back, from its trace.

Each kind of lane (the main process, the workers, their feeders) can do so many batches a second.
The kind that takes longest a batch is what the others wait for; what it works on most is the layer.

Before it: `labkit.tracing`. After it: `investigation`, `wording`.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from labkit.lab.advising.findings import Traced
from labkit.spans import Span

__all__ = ["LAYERS", "Layers", "layers_of"]

LAYERS = ("fetch", "collate", "transport", "copy", "step")
"""What a batch's way is divided into, in its order."""

_OF = {
    "sampler": "fetch",
    "fetch": "fetch",
    "collate": "collate",
    "pickle": "transport",
    "send": "transport",
    "dispatch": "transport",
    "receive": "transport",
    "rebuild": "transport",
    "pin": "copy",
    "copy": "copy",
    "step": "step",
    "consumer": "step",
}
_MOMENT = 1e-9  # for the rounding of what ends as another begins
_MAIN = "the main process"
_LITTLE = 0.05
"""A loop that waits for less of its time is not held up."""

_BUSY = 0.5
"""Nobody who works for less of the time is what the others wait for."""


@dataclass(frozen=True)
class Layers:
    """Where the time of a batch goes.

    Attributes:
        seconds: by layer, the work on a batch, whoever did it and however much of it at once.
        batch_seconds: from a batch to the next one.
        waited: the part of that in which the loop had no batch.
        held_back_by: the layer that the loop waits for; "step" if it waits for none; "nobody" if
            no lane was busy.
        busy: how much of the time those worked who are waited for.
        who: they are "the main process", "the workers" or "their feeders".
        batches: of so many.
        feeder_wait: how long a batch lies in a worker before it is sent.
    """

    seconds: dict[str, float]
    batch_seconds: float
    waited: float
    held_back_by: str
    busy: float
    who: str
    batches: int
    feeder_wait: float = 0.0


def layers_of(traced: Traced) -> Layers | None:
    """What the trace says; None if it has too few batches to say anything."""
    takes = [span for span in traced.spans if span.layer == "take"]
    if len(takes) < 3:
        return None
    first, last = _steady(takes)
    first, last = first - _MOMENT, last + _MOMENT
    inside = [span for span in traced.spans if first <= span.start and span.end <= last]
    count = sum(first <= span.start <= last for span in takes) - 1
    a_batch = (last - first) / count
    copy = statistics.fmean(traced.copy_seconds) if traced.copy_seconds else 0.0
    lanes = _by_lane(inside, count)
    main = lanes.pop("main", {})
    consumer = main.pop("step", 0.0)
    if copy:
        main["copy"] = main.get("copy", 0.0) + copy
        consumer = max(0.0, consumer - copy)
    waited = max(0.0, 1 - consumer / a_batch)
    groups = {_MAIN: main, **lanes}
    who = max(groups, key=lambda name: sum(groups[name].values()))
    if sum(main.values()) > _BUSY * waited * a_batch:
        who = _MAIN  # what it does itself fills most of the time in which the loop waits
    busy = sum(groups[who].values()) / a_batch
    seconds = _sums(inside, count, copy, consumer)
    held = _held_back_by(groups[who], waited, busy, who == _MAIN)
    return Layers(seconds, a_batch, waited, held, min(1.0, busy), who, count, _feeder_wait(inside))


def _steady(takes: list[Span]) -> tuple[float, float]:
    """From the batch with which the stretch begins to the last: without the first quarter."""
    return takes[len(takes) // 4].start, takes[-1].start


def _by_lane(spans: Iterable[Span], count: int) -> dict[str, dict[str, float]]:
    """By kind of lane and layer: its seconds a batch, if all lanes of the kind share the work."""
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    there: dict[str, set[str]] = defaultdict(set)
    for span in spans:
        kind = _kind(span)
        there[kind].add(span.lane)
        if span.layer in _OF:
            found[kind][_OF[span.layer]] += (span.end - span.start) / count
    return {
        kind: {layer: part / len(there[kind]) for layer, part in layers.items()}
        for kind, layers in found.items()
    }


def _kind(span: Span) -> str:
    if span.worker >= 0:
        return {"worker": "the workers", "feeder": "their feeders"}[span.lane.split()[0]]
    return "main" if span.lane == "main" else f"the thread {span.lane!r}"


def _sums(spans: Iterable[Span], count: int, copy: float, consumer: float) -> dict[str, float]:
    found = dict.fromkeys(LAYERS, 0.0)
    for span in spans:
        if span.layer in _OF and span.layer != "consumer":
            found[_OF[span.layer]] += (span.end - span.start) / count
    found["copy"] += copy
    found["step"] = consumer
    return found


def _held_back_by(layers: dict[str, float], waited: float, busy: float, is_main: bool) -> str:
    if waited < _LITTLE:
        return "step"
    if not layers or (busy < _BUSY and not is_main):
        return "nobody"
    return max(layers, key=lambda name: layers[name])


def _feeder_wait(spans: Iterable[Span]) -> float:
    """Median time from a batch's being made to its being pickled."""
    made: dict[tuple[int, int, int], float] = {}
    waits = []
    for span in spans:
        key = span.loader, span.epoch, span.batch
        if span.layer in ("fetch", "collate") and span.worker >= 0:
            made[key] = max(span.end, made.get(key, 0.0))
        elif span.layer == "pickle" and key in made:
            waits.append(span.start - made[key])
    return statistics.median(waits) if waits else 0.0
