"""The costs of the layers, from a trace.

    with labkit.trace() as t:
        for batch in labkit.DataLoader(dataset, batch_size=8, num_workers=1):
            pass
    costs = measured(t, batch_size=8)

A trace tells how long a layer took, and not which part of that a core worked and which part it
waited for a disk, say. Two things tell: `measuring`, which counts the CPU time of each fetch and
collate, and `cpu_share`, for whoever knows.

Before it: `labkit.tracing`. After it: `predicting`, which simulates with it.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

from labkit.lab.simulate.measured import PER_SAMPLE, Costs, Measured
from labkit.spans import Span
from labkit.tracing import Trace

__all__ = ["costs_of_spans", "measured", "sample_bytes"]

_MAIN = {
    "dispatch": ("sampler", "dispatch", "take"),
    "rebuild": ("receive", "rebuild"),
}


def measured(
    trace: Trace,
    *,
    batch_size: int = 1,
    cpu_share: float = 1.0,
    warmup: int | None = None,
    what: str = "a trace",
) -> Measured:
    """The costs that a trace shows.

    Args:
        trace: of one loader with workers, or without; of some dozen batches.
        batch_size: its samples a batch; with 1, predictions count in batches like the traced ones.
        cpu_share: which part of fetch and collate a core works, from 0 to 1; the rest is waiting. A
            trace does not tell: 1, the default, is right for decoding, 0 for a slow disk. All other
            layers work all the time.
        warmup: the first batches, which are left out; None for as many as may be under way.
        what: what was loaded, in a few words.

    Raises:
        ValueError: the trace has too few batches, a batch no sample, or a share is none.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is a whole number of 1 or more, but got {batch_size!r}")
    if not 0 <= cpu_share <= 1:
        raise ValueError(f"cpu_share is a part of the time, from 0 to 1, but got {cpu_share!r}")
    seconds = costs_of_spans(trace.spans, trace.max_depth if warmup is None else warmup)
    layers = {}
    for layer, values in seconds.items():
        if layer in PER_SAMPLE:
            cpu, wait = ([v * share for v in values] for share in (cpu_share, 1 - cpu_share))
            layers[layer] = Costs.of_batches(cpu, wait, batch_size)
        else:
            layers[layer] = Costs(fixed_cpu=statistics.median(values))
    note = f"Taken as work of a core: {cpu_share:.0%} of fetch and collate, all of the rest."
    nbytes = sample_bytes(trace.spans, batch_size)
    return Measured(layers, batch_size, nbytes, what=what, notes=(note,))


def costs_of_spans(spans: Iterable[Span], warmup: int) -> dict[str, list[float]]:
    """By layer of this module, what each batch after the first `warmup` took, in seconds.

    Raises:
        ValueError: there are fewer than three such batches.
    """
    all_spans = list(spans)
    first = next(((s.loader, s.epoch) for s in all_spans if s.batch >= 0), None)
    mine = [s for s in all_spans if (s.loader, s.epoch) == first]
    by_layer: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for span in mine:
        by_layer[span.layer][span.batch] += span.end - span.start
    kept = sorted(batch for batch in by_layer["take"] if batch >= warmup)
    if len(kept) < 3:
        raise ValueError(
            f"the trace has {len(kept)} batches after the first {warmup}, which are left out: "
            "trace three more at least, or better some dozen"
        )
    found = {layer: [by_layer[layer][batch] for batch in kept] for layer in ("fetch", "collate")}
    found["here"] = [sum(both) for both in zip(found["fetch"], found["collate"], strict=True)]
    found["feeder"] = [by_layer["pickle"][batch] + by_layer["send"][batch] for batch in kept]
    found["loop"] = _gaps(mine, warmup) or [0.0]
    for name, layers in _MAIN.items():
        # What the main process receives has no batch's number before it is read: an even share.
        total = sum(sum(by_layer[layer].values()) for layer in layers)
        found[name] = [total / max(1, len(by_layer["take"]))]
    return found


def sample_bytes(spans: Iterable[Span], batch_size: int) -> float:
    """What is sent of a batch, by its samples; 0 where nothing is, without workers.

    By the batches that were sent: of an epoch that was not ended fewer were taken.
    """
    feeders = [span for span in spans if span.layer in ("pickle", "send")]
    sent = sum(span.layer == "send" for span in feeders)
    nbytes = sum(span.shared_bytes + span.message_bytes for span in feeders)
    return nbytes / max(1, sent) / batch_size


def _gaps(spans: Iterable[Span], warmup: int) -> list[float]:
    """What a worker did between its spans, a batch: it reads the task, and hands the batch on."""
    lanes: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        if span.lane.startswith("worker") and span.layer in ("wait", "fetch", "collate"):
            lanes[span.lane].append(span)
    gaps = []
    for lane in lanes.values():
        batch_gap = 0.0
        for before, after in pairwise(lane):
            batch_gap += max(0.0, after.start - before.end)
            if after.layer == "fetch":
                if after.batch >= warmup:
                    gaps.append(batch_gap)
                batch_gap = 0.0
    return gaps
