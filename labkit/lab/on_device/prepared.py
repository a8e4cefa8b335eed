"""A loader of batches that are there already: all that is seen is the preloader.

Before it: `labkit.device`, which pins. After it: `conduct` and `preloading`.
"""

from __future__ import annotations

import functools
import queue
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any

import torch

from labkit.device import Device
from labkit.lab.on_device.place import device_or
from labkit.simulated import SimulatedDevice

__all__ = [
    "BATCH_BYTES",
    "MODEL",
    "Prepared",
    "ScaleModel",
    "Supply",
    "device_or_model",
    "end",
    "scale_model",
]

BATCH_BYTES = 77_070_336
"""128 × 3 × 224 × 224 values of float32."""

MODEL = 200
"""So many times smaller than in reality are the batches and the link of the scale model."""

_SLOW_MOTION = 3.0  # of the model: threads wake late by less than that
_HOST_GB_PER_S = 4.9  # that one thread of an H200's host copied into warm memory, measured once


def device_or_model(device: Device | None = None) -> AbstractContextManager[Device]:
    """A device with nothing else to do: the given one, this machine's accelerator, or a scale
    model of one, which is closed in the end.
    """
    return device_or(device, scale_model)


class ScaleModel(SimulatedDevice):
    """A simulated device whose link and host are as much slower than a card's as `Supply`'s
    batches are smaller, so that copies, steps and calls stand to each other as there; in slow
    motion.

    It moves little memory, so that this machine's own speed hardly matters.
    """

    def __init__(self) -> None:
        rates = [53.6, 6.3, 53.6]  # of an H200, as `SimulatedDevice` has them
        super().__init__(*(rate / MODEL for rate in rates), slow_motion=_SLOW_MOTION)

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        """A page-locked copy, for which the caller stays; the tensor itself if it is pinned."""
        if self.is_pinned(tensor):
            return tensor
        due = time.monotonic() + tensor.nbytes / (_HOST_GB_PER_S * 1e9) * MODEL * _SLOW_MOTION
        pinned = super().pin(tensor)
        time.sleep(max(0.0, due - time.monotonic()))
        return pinned


def scale_model() -> ScaleModel:
    """A simulated device that stands in for a card."""
    return ScaleModel()


class Supply:
    """Batches for a device, made once: a batch is a float32 tensor in the host's memory.

    Args:
        device: on which they will be copied.
        count: how many.
        nbytes: of each; None for `BATCH_BYTES`, or, where the device is simulated, for the scale
            model's.

    Attributes:
        pinned: batches in page-locked memory; each element of the first is 1, and so on.
        pageable: the same ones in memory that is not.
        copy_seconds: that a copy of a page-locked batch takes; where the device is simulated, not
            in its slow motion.
    """

    def __init__(self, device: Device, count: int = 6, *, nbytes: int | None = None) -> None:
        if nbytes is None:
            nbytes = BATCH_BYTES // MODEL if device.is_simulated else BATCH_BYTES
        self.device = device
        self.pageable = [torch.full((nbytes // 4,), float(i)) for i in range(1, count + 1)]
        # What is made once may be made at this machine's speed.
        pin = device.pin
        if isinstance(device, SimulatedDevice):
            pin = functools.partial(SimulatedDevice.pin, device)
        self.pinned = [pin(batch) for batch in self.pageable]
        self.copy_seconds = self._copy_seconds()

    def _copy_seconds(self) -> float:
        times = []
        for _ in range(3):
            begin, done = self.device.timing_event(), self.device.timing_event()
            stream = self.device.current_stream()
            stream.record_event(begin)
            self.device.to_device(self.pinned[0], non_blocking=True)
            stream.record_event(done)
            done.synchronize()
            times.append(begin.elapsed_time(done) / 1e3)
        seconds: float = min(times) / getattr(self.device, "slow_motion", 1.0)
        return seconds


class Prepared:
    """A loader that gives what it was given.

    Args:
        given: the batches.
        broken: at this one's place an exception is raised.
        pause: seconds that the loader takes for a batch, by its place.

    Attributes:
        ended: once it is set, it has no batches any more.
    """

    def __init__(
        self,
        given: list[Any],
        *,
        broken: int | None = None,
        pause: Callable[[int], float] = lambda place: 0.0,
    ) -> None:
        self.given, self.broken, self.pause = given, broken, pause
        self.ended = False

    def __len__(self) -> int:
        return 0 if self.ended else len(self.given)

    def __iter__(self) -> Iterator[Any]:
        for place, batch in enumerate(self.given):
            if self.ended:
                return
            if place == self.broken:
                raise ValueError(f"batch {place} is broken")
            if (seconds := self.pause(place)) > 0:
                time.sleep(seconds)
            yield batch


def end(preloader: Any) -> None:
    """End the thread of a preloader over a `Prepared` loader, as far as it still has one."""
    preloader.loader.ended = True
    thread = getattr(preloader, "thread", None)
    while thread is not None and thread.is_alive():
        with suppress(queue.Empty):
            preloader.queue.get(timeout=0.01)  # it may wait for room
