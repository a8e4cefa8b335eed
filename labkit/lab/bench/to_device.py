"""Batches on a device: PyTorch's loader beside labkit's with a Preloader, with and without a step.

PyTorch's side is what its documentation says: `pin_memory=True`, and `.to(device,
non_blocking=True)` in the loop. Each batch is read on the device, and what was read is compared
with what must be there. A third side issues the steps alone, on a batch that is there already: no
loader can be quicker than that.

Before it: `on_device.steps`; `options`. After it: `bench`, and `record`.
"""

from __future__ import annotations

import gc
import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils.data

import labkit
from labkit.device import Device
from labkit.lab.bench.options import REPEATS, Options
from labkit.lab.bench.results import Measured, Run
from labkit.lab.bench.workloads import FromMemory
from labkit.lab.doctor.limits import read_limits
from labkit.lab.on_device.place import here
from labkit.lab.on_device.steps import step
from labkit.lab.resources import running

__all__ = ["DeviceGroupRun", "Size", "images_of", "size_for"]

_IMAGE = (3, 224, 224)
_STEPS_MS = {"no compute": 0.0, "short step": 1.4, "long step": 6.0}  # for a full batch
_FULL = 128  # images a batch: 77 MB
_TRIED = 4  # on a simulated device
_SECONDS = 0.6  # of a timed stretch, at least
_LIMIT_S = 150.0  # nothing new begins later
_BATCHES = 3  # different ones


@dataclass(frozen=True)
class Size:
    """What is loaded, and by how many."""

    batch_size: int
    workers: int

    @property
    def batch_bytes(self) -> int:
        """Of float32 images (3, 224, 224)."""
        return self.batch_size * math.prod(_IMAGE) * 4

    @property
    def part(self) -> float:
        """Of a full batch; steps are shortened likewise."""
        return self.batch_size / _FULL

    @property
    def warmup(self) -> int:
        """Batches before the timing: more than are ready or under way, and than labkit's workers
        take their last memory for, each with its third batch. Memory that is page-locked within the
        timing would be counted.
        """
        return 3 * self.workers + 8


def size_for(device: Device, most_workers: int = 8) -> Size:
    """Full batches by 8 workers, or as much of that as this machine has cores and memory for."""
    if device.is_simulated:
        return Size(_TRIED, 2)
    limits = read_limits()
    workers = max(2, min(most_workers, int(limits.usable_cores)))
    room = (limits.memory_available or 4 << 30) // 2
    size = Size(_FULL, workers)
    # The slots of both loaders' batches, and PyTorch's pinned copies.
    while size.batch_size > _TRIED and size.batch_bytes * (4 * workers + 8) > room:
        size = Size(size.batch_size // 2, workers)
    return size


def images_of(batch_size: int) -> FromMemory:
    """Samples for a few different batches, each full of its own number.

    They are rows of one tensor: a fork server passes on no more than 256 tensors.
    """
    numbers = torch.arange(float(batch_size * _BATCHES))
    return FromMemory(numbers.view(-1, 1, 1, 1).repeat(1, *_IMAGE))


class DeviceGroupRun:
    """The group being measured.

    Args:
        device: to which batches are brought.
        options: repeats, and how long each takes.
        run: to which what is found is added.
        limit_s: after which nothing new begins; None for what suits the options.
    """

    def __init__(
        self, device: Device, options: Options, run: Run, limit_s: float | None = None
    ) -> None:
        self._device, self._options, self._run = device, options, run
        self._limit_s = _LIMIT_S * max(1, options.repeats / REPEATS) if limit_s is None else limit_s
        self._failed: set[tuple[str, str]] = set()

    @property
    def steps(self) -> int:
        """How often the progress bar moves."""
        return self._options.repeats * len(_STEPS_MS)

    def measure(self, bar: Any = None) -> None:
        """Time all repeats; adds to the run as it goes.

        Args:
            bar: is told of each repeat of a workload, by `set_description` and `update`.
        """
        self._run.machine.update(here(self._device))  # not before others have forked
        size, started, repeats = size_for(self._device), time.monotonic(), self._options.repeats
        loads = {name: self._measured(name, size) for name in _STEPS_MS}
        self._run.workloads += loads.values()
        samples = images_of(size.batch_size)
        for repeat in range(repeats):
            for place, (name, load) in enumerate(loads.items()):
                if self._is_used_up(time.monotonic() - started, repeat, place):
                    said = f"{repeat} of {repeats} repeats: the {self._limit_s:.0f} s were used up"
                    self._run.notes["device"] = said
                    return
                if bar is not None:
                    bar.set_description(load.name, refresh=False)
                    bar.update()
                self._time_one(load, _STEPS_MS[name] / 1e3 * size.part, repeat, samples, size)

    def _is_used_up(self, passed: float, repeat: int, place: int) -> bool:
        """Whether the time does not reach for this repeat; within it, whether it is over."""
        if place == 0:
            return repeat > 0 and passed * (repeat + 1) / repeat > self._limit_s
        return passed > self._limit_s

    def _measured(self, name: str, size: Size) -> Measured:
        device = self._device
        named = device.name if device.is_simulated else str(self._run.machine["device"])
        if not device.is_simulated and size.batch_size != _FULL:
            named += f", {size.batch_size} images a batch"
        ms = _STEPS_MS[name] * size.part * getattr(device, "slow_motion", 1.0)
        what = f"{size.batch_size} × float32 {_IMAGE}: {size.batch_bytes / 1e6:.1f} MB"
        what += f"; a step of {ms:.2g} ms" if ms else ""
        return Measured(f"{named}, {name}", what, size.workers, size.batch_bytes)

    def _time_one(
        self, load: Measured, step_s: float, repeat: int, samples: FromMemory, size: Size
    ) -> None:
        """One repeat of all sides: in turn in one order, in the next repeat in the other."""
        sides = [side for side in ("labkit", "torch", "step") if side != "step" or step_s]
        for side in sides if repeat % 2 == 0 else sides[::-1]:
            if (load.name, side) in self._failed:
                continue
            gc.collect()
            try:
                found = self._seconds(side, step_s, samples, size)
            except Exception as error:
                self._failed.add((load.name, side))
                self._run.failures[f"{load.name}, {side}"] = f"{type(error).__name__}: {error}"
            else:
                load.add(side, *found)

    def _seconds(
        self, side: str, step_s: float, samples: FromMemory, size: Size
    ) -> tuple[float, int]:
        """Seconds a batch, and over how many batches that was taken."""
        device, least = self._device, _SECONDS * self._options.scale
        if side == "step":
            return _steps_alone(device, samples, size, step_s, least)
        make: dict[str, Callable[..., Iterable[Any]]] = {"labkit": _labkits, "torch": _pytorchs}
        batches = make[side](device, samples, size)
        return _batches_with_steps(device, batches, size, step_s, least)


def _labkits(device: Device, samples: FromMemory, size: Size) -> Iterable[Any]:
    loader = labkit.DataLoader(samples, size.batch_size, num_workers=size.workers)
    return labkit.Preloader(loader, device)


def _pytorchs(device: Device, samples: FromMemory, size: Size) -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than cores
        loader: Iterable[Any] = torch.utils.data.DataLoader(
            samples,
            size.batch_size,
            num_workers=size.workers,
            pin_memory=not device.is_simulated,
        )
    with running(loader) as batches:
        for batch in batches:
            pinned = device.pin(batch) if device.is_simulated else batch
            yield device.to_device(pinned, non_blocking=True)


def _batches_with_steps(
    device: Device, loader: Iterable[Any], size: Size, step_s: float, least: float
) -> tuple[float, int]:
    """Time a batch in steady state, its step included; checks what the steps read."""
    count_least = 4 * size.workers
    read: list[Any] = []
    with running(loader) as batches:
        for _ in range(size.warmup):
            read.append(step(device, next(batches), step_s, _checksum))
        device.synchronize()
        count, started = 0, time.perf_counter()
        while count < count_least or time.perf_counter() - started < least:
            read.append(step(device, next(batches), step_s, _checksum))
            count += 1
        device.synchronize()
        took = time.perf_counter() - started
    _check([float(value.cpu()) for value in read], size)
    return took / count, count


def _steps_alone(
    device: Device, samples: FromMemory, size: Size, step_s: float, least: float
) -> tuple[float, int]:
    batch = device.to_device(torch.stack(list(samples.samples)[: size.batch_size]))
    step(device, batch, step_s, _checksum)
    device.synchronize()
    count = max(4, round(least / step_s / getattr(device, "slow_motion", 1.0)))
    started = time.perf_counter()
    for _ in range(count):
        value = step(device, batch, step_s, _checksum)
    device.synchronize()
    took = time.perf_counter() - started
    _check([float(value.cpu())], size)
    return took / count, count


def _checksum(batch: torch.Tensor) -> torch.Tensor:
    """The sum of each image's last value: exact, for these are small whole numbers."""
    return batch.flatten(1)[:, -1].sum(dtype=torch.float64)


def _check(read: list[float], size: Size) -> None:
    """Compare what was read of batches 0, 1, 2, … with what they hold.

    Raises:
        ValueError: some are wrong.
    """
    n, count = size.batch_size, size.batch_size * _BATCHES
    wrong = [
        number
        for number, value in enumerate(read)
        if value != sum((number * n + image) % count for image in range(n))
    ]
    if wrong:
        raise ValueError(f"{len(wrong)} of {len(read)} batches had wrong values, first {wrong[0]}")
