"""What a loader would do on a machine that need not be there: its throughput, and its timeline.

    predict(costs, cores=64, num_workers=16, batch_size=32, step_seconds=0.02)

Before it: `measured`, the costs; `pipeline`, which is simulated. After it: `validation`, which
holds it to what is measured; the panel `what_if`.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

from labkit.lab import need
from labkit.lab.explain.wording import duration, number
from labkit.lab.simulate.bounds import Bound, bounds
from labkit.lab.simulate.bounds import sentence as what_holds_it_back
from labkit.lab.simulate.drawn import Drawn
from labkit.lab.simulate.measured import Measured
from labkit.lab.simulate.pipeline import Noted, Pipeline
from labkit.lab.simulate.settings import Settings
from labkit.lab.simulate.shared_cores import SharedCores
from labkit.spans import Span
from labkit.tracing import Trace

__all__ = ["Prediction", "predict"]

_COUNTED = (160, 4)  # batches at least, and for each worker at least
_COUNTED_OF_EACH = (60, 2)  # of several loaders: they are alike, so fewer of each do


@dataclass(frozen=True)
class Prediction:
    """What is predicted, not measured.

    Attributes:
        settings: of the machine and the loader.
        batches_per_second, samples_per_second: of all devices together.
        device_busy: which part of the time a device is in a step, from 0 to 1.
        cores_busy: how many cores are at work on average.
        bounds: what each part allows for, the least first.
        measured: the costs that it was drawn from.
        taken_at, stepped_at: of each loader, when its batches were given and done with, in
            simulated seconds.
        noted: what the first loader's threads did.
    """

    settings: Settings
    batches_per_second: float
    samples_per_second: float
    device_busy: float
    cores_busy: float
    bounds: tuple[Bound, ...]
    measured: Measured
    taken_at: tuple[tuple[float, ...], ...] = field(repr=False)
    stepped_at: tuple[tuple[float, ...], ...] = field(repr=False)
    noted: tuple[Noted, ...] = field(repr=False)

    @property
    def spans(self) -> list[Span]:
        """What the first loader's threads did, by start."""
        spans = [
            Span(lane, layer, start, end, batch, worker=worker)
            for lane, layer, start, end, batch, worker in self.noted
        ]
        return sorted(spans, key=lambda span: span.start)

    @property
    def sentence(self) -> str:
        """What is predicted, what holds it back, and what would be next."""
        busy = "a device is" if self.settings.gpus > 1 else "the device is"
        said = (
            f"Predicted, not measured: {number(self.batches_per_second)} batches/s, "
            f"{number(self.samples_per_second)} samples/s"
        )
        if self.settings.step_seconds:
            said += f"; {busy} busy {self.device_busy:.0%} of the time"
        return f"{said}. {self.held_back}"

    @property
    def held_back(self) -> str:
        """What holds it back, and what would be next."""
        return what_holds_it_back(list(self.bounds), self.batches_per_second)

    @property
    def trace(self) -> Trace:
        """The spans as a trace, with `depth`, `reorder_buffer`, `summary` and `save`."""
        trace = Trace()
        trace.spans = self.spans
        trace.max_depth = self.settings.max_depth
        return trace

    def picture(self) -> Any:
        """The predicted timeline, as a `labkit.lab.plots.pictures.Picture`."""
        return need("labkit.lab.simulate.picture").show(self)

    def as_text(self) -> str:
        """All that is predicted, in words."""
        s = self.settings
        lines = [
            self.sentence,
            f"Devices: {s.gpus}. Cores: {s.cores:g}, of which {number(self.cores_busy)} at work on "
            f"average. Workers a device: {s.num_workers}. Prefetch factor: {s.prefetch_factor}. "
            f"Samples a batch: {s.batch_size}. Step: {duration(s.step_seconds)}.",
            "At most, in batches/s:",
            *[f"  {bound.part}: {number(bound.batches_per_second)}" for bound in self.bounds],
            f"From costs of {self.measured.what}.",
        ]
        return "\n".join(lines)


def predict(
    measured: Measured,
    *,
    cores: float,
    num_workers: int,
    prefetch_factor: int = 2,
    batch_size: int | None = None,
    link_bytes_per_second: float | None = None,
    step_seconds: float = 0.0,
    gpus: int = 1,
    memory_bytes_per_second: float | None = None,
    preloader: bool = False,
    seed: int = 0,
) -> Prediction:
    """Simulate some hundred batches: the same for the same arguments.

    Args:
        measured: what the layers cost.
        batch_size: None for that of `measured`.
        seed: of the draws.
        cores, num_workers, prefetch_factor, link_bytes_per_second, step_seconds, gpus,
            memory_bytes_per_second, preloader: see `Settings`.

    Raises:
        ValueError: an argument is out of its range, or nothing costs any time.
    """
    settings = Settings(
        cores=cores,
        num_workers=num_workers,
        prefetch_factor=prefetch_factor,
        batch_size=measured.batch_size if batch_size is None else batch_size,
        link_bytes_per_second=link_bytes_per_second,
        step_seconds=step_seconds,
        gpus=gpus,
        memory_bytes_per_second=memory_bytes_per_second,
        preloader=preloader,
    )
    found = bounds(measured, settings)
    if not found:
        raise ValueError("nothing costs any time: give costs, or a step")
    noted: list[Noted] = []
    machine, pipelines, warmup = _simulate(measured, settings, seed, noted)
    rates = [_rate(pipeline.consumer.stepped_at, warmup) for pipeline in pipelines]
    rate = sum(rates)
    return Prediction(
        settings=settings,
        batches_per_second=rate,
        samples_per_second=rate * settings.batch_size,
        device_busy=min(1.0, statistics.fmean(rates) * step_seconds),
        cores_busy=machine.worked / machine.now,
        bounds=tuple(found),
        measured=measured,
        taken_at=tuple(tuple(pipeline.taken_at) for pipeline in pipelines),
        stepped_at=tuple(tuple(pipeline.consumer.stepped_at) for pipeline in pipelines),
        noted=tuple(noted),
    )


def _simulate(
    measured: Measured, settings: Settings, seed: int, noted: list[Noted]
) -> tuple[SharedCores, list[Pipeline], int]:
    """Run until each loader has given enough; also how many batches are before that counts."""
    workers = settings.num_workers
    warmup = 2 * workers + 10
    least, a_worker = _COUNTED if settings.gpus == 1 else _COUNTED_OF_EACH
    batches = warmup + max(least, a_worker * workers)
    machine = SharedCores(settings.cores, measured.crowded, settings.memory_bytes_per_second)
    pipelines = []
    for gpu in range(settings.gpus):
        count = batches + settings.max_depth
        drawn = Drawn.of(measured, settings.batch_size, count, seed + gpu, workers)
        pipelines.append(Pipeline(machine, settings, drawn, noted if gpu == 0 else None))
        pipelines[-1].start()
    machine.run(lambda: all(len(pipeline.consumer.stepped_at) >= batches for pipeline in pipelines))
    return machine, pipelines, warmup


def _rate(stepped_at: list[float], warmup: int) -> float:
    """Batches a second, from the first after the warm-up to the last."""
    return (len(stepped_at) - 1 - warmup) / (stepped_at[-1] - stepped_at[warmup])
