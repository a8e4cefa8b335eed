"""Work for a device: a step that takes about so long and, in its end, reads a batch.

On the simulated device that is what `SimulatedDevice.run` does. On an accelerator it is matrix
products, as many as take that long there, and then the reading.

Before it: `labkit.device`. After it: the experiments.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from labkit.device import AcceleratorDevice, Device
from labkit.simulated import SimulatedDevice

__all__ = ["last_value", "step"]

_SIDES = (4096, 1536)  # of the matrices: on a fast GPU, products of some 200 µs and 15 µs
_DTYPE = torch.float16
_TIMED = 100  # products, of each size
_WARMUP_SECONDS = 0.3  # a GPU that was idle comes to its full clock rate only after a while
_guard = threading.Lock()
_calibrated: dict[str, list[_Product]] = {}


def last_value(batch: torch.Tensor) -> torch.Tensor:
    """The last of a tensor's elements: the one that a copy writes last."""
    return batch.reshape(-1)[-1]


def step(
    device: Device,
    batch: Any,
    seconds: float,
    read: Callable[[torch.Tensor], torch.Tensor | float] = last_value,
) -> Any:
    """Issue a step on the current stream, and return what it reads, a tensor on the device.

    The caller does not wait; `.item()` of what is returned does.

    Args:
        device: which has the batch.
        batch: a tensor there.
        seconds: that the step takes, about (times the slow motion, if it is simulated); 0 for the
            reading alone.
        read: gives one number, of the batch as it is at the end of the step.
    """
    if isinstance(device, SimulatedDevice):
        return device.run(read, batch, seconds=seconds, dtype=torch.float64)
    if seconds > 0:
        _run(_products(device), seconds)
    return torch.as_tensor(read(batch)).to(torch.float64)


@dataclass
class _Product:
    """A product of two matrices on a device, and the seconds that one takes there."""

    left: torch.Tensor
    right: torch.Tensor
    out: torch.Tensor
    seconds: float = 0.0

    def repeat(self, count: int) -> None:
        for _ in range(count):
            torch.mm(self.left, self.right, out=self.out)


def _run(products: Sequence[_Product], seconds: float) -> None:
    """As many as take so long: large ones first, for each is a call that Python makes."""
    *larger, smallest = products
    left = seconds
    for product in larger:
        count = int(left / product.seconds)
        product.repeat(count)
        left -= count * product.seconds
    smallest.repeat(round(left / smallest.seconds))


def _products(device: Device) -> list[_Product]:
    """Calibrated when they are first asked for, and then the same."""
    with _guard:
        if device.name not in _calibrated:
            _calibrated[device.name] = [_calibrate(device, side) for side in _SIDES]
        return _calibrated[device.name]


def _calibrate(device: Device, side: int) -> _Product:
    assert isinstance(device, AcceleratorDevice)
    left, right = (torch.randn(side, side, device=device.device, dtype=_DTYPE) for _ in "ab")
    product = _Product(left, right, torch.empty_like(left))
    begin, end = device.timing_event(), device.timing_event()
    stream, started = device.current_stream(), time.monotonic()
    while time.monotonic() - started < _WARMUP_SECONDS:
        product.repeat(_TIMED)
        stream.synchronize()
    stream.record_event(begin)
    product.repeat(_TIMED)
    stream.record_event(end)
    end.synchronize()
    product.seconds = begin.elapsed_time(end) / 1e3 / _TIMED
    return product
