"""What each part of a machine allows for at most, worked out by hand; and which holds it back.

A part that works all the time can do no more: that bounds the throughput, whatever the order of
events. The least bound is the bottleneck, and the one after it would be next. Where the throughput
stays well below all of them, no part works all the time: parts wait for each other, since batches
come unevenly.

Before it: `measured`, `settings`. After it: `predicting`.
"""

from __future__ import annotations

from dataclasses import dataclass

from labkit.lab.explain.wording import number
from labkit.lab.simulate.measured import LAYERS, Measured
from labkit.lab.simulate.pipeline import COPIED_BY_COLLATE
from labkit.lab.simulate.settings import Settings

__all__ = ["Bound", "bounds", "sentence"]

_NEARLY_ALL = 0.9  # of the training loop's time
_NEAR = 0.85  # of the least bound: what reaches so much of it is held back by it


@dataclass(frozen=True)
class Bound:
    """What one part allows for.

    Attributes:
        part: such as "the workers".
        batches_per_second: of all devices together.
        remedy: what would raise it, in a few words.
    """

    part: str
    batches_per_second: float
    remedy: str


def bounds(measured: Measured, settings: Settings) -> list[Bound]:
    """The bounds, the least first."""
    n, gpus = settings.batch_size, settings.gpus
    cpu = {layer: measured.of(layer).mean(n)[0] for layer in LAYERS}
    wait = {layer: measured.of(layer).mean(n)[1] for layer in LAYERS}
    both = {layer: cpu[layer] + wait[layer] for layer in LAYERS}
    nbytes = measured.sample_bytes * n
    link = settings.link_bytes_per_second
    copy = nbytes / link if link else 0.0
    crowded = measured.crowded if settings.cores > 1 else 1.0
    loads_here = settings.num_workers == 0
    loading = both["fetch"] + both["collate"]
    in_main = both["here"] if loads_here else both["dispatch"] + both["rebuild"]
    if not settings.preloader:
        in_main += copy + settings.step_seconds
    layers = ("here",) if loads_here else [layer for layer in LAYERS if layer != "here"]
    step_share = settings.step_seconds / in_main if in_main and not settings.preloader else 0.0
    name, remedy = _main_part(settings, step_share)
    parts = [
        (name, gpus, in_main, remedy),
        ("the cores", settings.cores, crowded * sum(cpu[x] for x in layers), "more cores"),
    ]
    if not loads_here:
        many = gpus * settings.num_workers
        parts.append(("the workers", many, loading + both["loop"], "more workers"))
        parts.append(("the feeders", many, both["feeder"], "more workers"))
    if settings.preloader:
        parts.append(("the device", gpus, settings.step_seconds, "a shorter step"))
        parts.append(("the link", gpus, copy, "a faster link, or fewer bytes"))
    memory = settings.memory_bytes_per_second
    if memory is not None:
        moved = COPIED_BY_COLLATE * nbytes
        parts.append(("the memory", memory, moved, "fewer copies on the host"))
    found = [Bound(name, many / each, how) for name, many, each, how in parts if each > 0]
    return sorted(found, key=lambda bound: bound.batches_per_second)


def _main_part(settings: Settings, step_share: float) -> tuple[str, str]:
    """What the thread is called that iterates, and what helps it."""
    if step_share > _NEARLY_ALL:
        return f"the device's step, {step_share:.0%} of the training loop", "a shorter step"
    if settings.num_workers == 0:
        return "the main process, which loads and steps in turn", "workers"
    if settings.preloader:
        return "the Preloader's thread", "less for it to do a batch: larger batches"
    return "the training loop, which takes, copies and steps in turn", "a Preloader"


def sentence(found: list[Bound], batches_per_second: float) -> str:
    """What holds the throughput back, and what would be next."""
    if not found:
        return "Nothing costs anything, so nothing holds it back."
    first = found[0]
    at = f"{number(first.batches_per_second)} batches/s"
    if batches_per_second < _NEAR * first.batches_per_second:
        return (
            f"No part works all the time: {first.part}, the busiest, would allow for {at}. Batches "
            "come unevenly or late, and more of them under way (prefetch factor, workers) may help."
        )
    said = f"What holds it back: {first.part} ({at} at most; what helps: {first.remedy})."
    if len(found) == 1:
        return said
    after = found[1]
    return f"{said} Next would be {after.part}, at {number(after.batches_per_second)} batches/s."
