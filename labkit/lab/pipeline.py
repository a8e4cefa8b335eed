"""A whole pipeline with all its toggles: images on disk, workers, batches and steps on a device.

Before it: `image_folder` and `image_samples`, what is loaded; `labkit.DataLoader` or PyTorch's;
`labkit.Preloader`; `on_device.steps`. After it: `experiments.pipeline`, which times it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import RandomSampler

import labkit
from labkit import Preloader
from labkit.device import Device, find_device
from labkit.lab.experiments.setting import LOADERS
from labkit.lab.image_folder import ImageFolder
from labkit.lab.image_samples import COLLATES, SIDE, Prepare, as_float
from labkit.lab.on_device.place import device_or
from labkit.lab.on_device.steps import step
from labkit.lab.resources import end_epoch
from labkit.simulated import SimulatedDevice

__all__ = [
    "COPIES",
    "Pipeline",
    "Ran",
    "end",
    "epoch_ms",
    "mean",
    "run",
    "steps_alone",
    "used_device",
]


def _in_the_loop(loader: Iterable[Any], device: Device) -> Iterator[Any]:
    """Copied by the training loop, from the memory in which they come."""
    for images, labels in loader:
        yield device.to_device(images), device.to_device(labels)


def _pinned_in_the_loop(loader: Iterable[Any], device: Device) -> Iterator[Any]:
    """Copied from page-locked memory: the loader's pin thread's, or else made here."""
    for images, labels in loader:
        yield device.to_device(device.pin(images)), device.to_device(device.pin(labels))


PINNED, PRELOADER = "pinned, in the loop", "labkit.Preloader"

COPIES: dict[str, Callable[[Any, Device], Iterable[Any]]] = {
    "in the loop": _in_the_loop,
    PINNED: _pinned_in_the_loop,
    PRELOADER: Preloader,
}
"""By who copies a batch to the device, and from where. "pinned" is `pin_memory=True` where there is
an accelerator; for a simulated device no loader pins, so the training loop does."""


@dataclass(frozen=True)
class Pipeline:
    """What a pipeline does, and how; the names are DataLoader's where it has one.

    Attributes:
        folder: of images, as `image_folder.make` makes it.
        decoding, pixels: as in `image_samples.Prepare`.
        loader: "labkit" or "PyTorch".
        num_workers: 0 loads in the process itself; then the five below mean nothing.
        prefetch_factor: batches asked for in advance, a worker.
        start_method: how workers are started.
        persistent_workers: they stay for the next epoch.
        sharing_strategy: labkit's; None for its default.
        collate: one of `image_samples.COLLATES`.
        copies: one of `COPIES`.
        batch_size: images a batch.
        step_ms: that the device's step takes for a batch.
    """

    folder: str
    decoding: str = "full"
    pixels: str = "float32"
    loader: str = "labkit"
    num_workers: int = 0
    prefetch_factor: int = 2
    start_method: str = "fork"
    persistent_workers: bool = False
    sharing_strategy: str | None = None
    collate: str = "default"
    copies: str = "in the loop"
    batch_size: int = 8
    step_ms: float = 5.0

    def make_loader(self, batches: int) -> Iterable[Any]:
        """A loader that gives so many batches of images drawn by chance, any of them again."""
        dataset = ImageFolder(self.folder, Prepare(self.decoding, self.pixels))
        options: dict[str, Any] = {}
        if self.num_workers:
            options = {
                "prefetch_factor": self.prefetch_factor,
                "multiprocessing_context": self.start_method,
                "persistent_workers": self.persistent_workers,
            }
            if self.sharing_strategy is not None:
                options["sharing_strategy"] = self.sharing_strategy
        return LOADERS[self.loader](
            dataset,
            batch_size=self.batch_size,
            sampler=RandomSampler(dataset, replacement=True, num_samples=batches * self.batch_size),
            num_workers=self.num_workers,
            collate_fn=COLLATES[self.collate],
            pin_memory=self.copies == PINNED and find_device() is not None,
            **options,
        )

    @property
    def ahead(self) -> int:
        """Batches that may be ready in advance when the workers are faster than the device."""
        workers = self.num_workers * self.prefetch_factor
        return workers + (2 if self.copies == PRELOADER else 0)


@dataclass(frozen=True)
class Ran:
    """What a run took.

    Attributes:
        batch_ms: a batch, from step to step, on the device's clock.
        busy: the share of that time in which the device did its steps, from 0 to 1.
    """

    batch_ms: float
    busy: float


def run(loader: Iterable[Any], pipeline: Pipeline, device: Device, warmup: int = 1) -> Ran:
    """One epoch of this loader, to its end.

    Args:
        loader: of two batches more than `warmup`, at least.
        pipeline: says who copies, and how long a step takes.
        device: where the steps are done.
        warmup: batches that do not count.

    Raises:
        ValueError: there are too few batches.
    """
    batches = COPIES[pipeline.copies](loader, device)
    return _timed((images for images, _ in batches), pipeline, device, warmup)


def steps_alone(pipeline: Pipeline, device: Device, batches: int = 8) -> Ran:
    """So many steps on one batch that is on the device already."""
    dtype = getattr(torch, pipeline.pixels)
    images = device.to_device(torch.zeros((pipeline.batch_size, 3, SIDE, SIDE), dtype=dtype))
    return _timed(itertools.repeat(images, batches + 1), pipeline, device, warmup=1)


def _timed(images: Iterable[Any], pipeline: Pipeline, device: Device, warmup: int) -> Ran:
    marks = []
    for batch in images:
        begin, end = device.timing_event(), device.timing_event()
        device.current_stream().record_event(begin)
        step(device, batch, pipeline.step_ms / 1e3, mean)
        device.current_stream().record_event(end)
        marks.append((begin, end))
        del batch
    device.synchronize()
    if len(marks) < warmup + 2:
        raise ValueError(f"{warmup + 2} batches are wanted, but there were {len(marks)}")
    counted = marks[warmup:]
    whole = counted[0][1].elapsed_time(counted[-1][1])
    steps = sum(begin.elapsed_time(end) for begin, end in counted[1:])
    return Ran(whole / (len(counted) - 1), min(1.0, steps / whole))


def mean(images: torch.Tensor) -> torch.Tensor:
    """What a step reads: the mean of a batch, whose pixels are from 0 to 1 by then."""
    return as_float(images).mean()


def used_device() -> AbstractContextManager[Device]:
    """This machine's accelerator; where there is none, a simulated one, closed in the end."""
    return device_or(None, SimulatedDevice)


def epoch_ms(loader: Iterable[Any], pipeline: Pipeline, device: Device) -> float:
    """Milliseconds of one epoch of this loader, from its start to the end of the last step."""
    started = time.perf_counter()
    run(loader, pipeline, device, warmup=0)
    return (time.perf_counter() - started) * 1e3


def end(loader: Any) -> None:
    """End workers that stay for the next epoch, of either loader."""
    if isinstance(loader, labkit.DataLoader):
        loader.close()
    else:
        end_epoch(getattr(loader, "_iterator", None))  # PyTorch's, which stays with its workers
