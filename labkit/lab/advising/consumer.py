"""The training loop, as far as loading is concerned: it copies a batch to the device, and steps.

Before it: `subject`'s loader. After it: `timing`, and the trace of `investigation`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

import labkit
from labkit.containers import map_leaves
from labkit.device import Device, find_device
from labkit.lab.advising.setting import Setting
from labkit.lab.advising.subject import NoAdvice
from labkit.simulated import SimulatedDevice

__all__ = ["Consumer", "device_named"]


def device_named(name: str | None) -> Device | None:
    """The device of that name; None for the accelerator, if there is one; "cpu" for none.

    Raises:
        NoAdvice: there is no such device here.
    """
    try:
        return SimulatedDevice() if name == "simulated" else find_device(name)
    except (RuntimeError, ValueError, AssertionError) as error:
        raise NoAdvice(f"there is no device {name!r} here: {error}") from error


@dataclass
class Consumer:
    """Uses batches.

    Attributes:
        step_seconds: of a step, which takes no core, as on a device.
        device: where batches are wanted; None: they stay.
        copy_seconds: of each batch that the loop itself copied.
    """

    step_seconds: float = 0.0
    device: Device | None = None
    copy_seconds: list[float] = field(default_factory=list)

    def batches(self, loader: Any, setting: Setting) -> Iterator[Any]:
        """An epoch of the loader."""
        if setting.preloads:
            return iter(labkit.Preloader(loader, self.device))
        return iter(loader)

    def use(self, batch: Any, setting: Setting) -> None:
        """Copy it to the device, wait until it is there, and step."""
        if self.device is not None:
            if not setting.preloads:
                self._copy(batch)
            else:
                self.device.current_stream().synchronize()
        if self.step_seconds:
            time.sleep(self.step_seconds)

    def _copy(self, batch: Any) -> None:
        device = self.device
        assert device is not None
        started = time.perf_counter()
        copied = map_leaves(
            batch,
            lambda leaf, _: device.to_device(leaf, non_blocking=True),
            lambda leaf: isinstance(leaf, torch.Tensor),
        )
        device.current_stream().synchronize()
        del copied
        self.copy_seconds.append(time.perf_counter() - started)
