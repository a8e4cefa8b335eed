"""How much of a device's memory a piece of a program takes at most.

Before it: `labkit.device`, `labkit.simulated`. After it: `preloading`, notebook 09.
"""

from __future__ import annotations

from typing import Any

import torch

from labkit.device import Device
from labkit.simulated import SimulatedDevice

__all__ = ["PeakMemory"]


class PeakMemory:
    """For the length of a `with`, watches what the allocator takes from the device.

    Args:
        device: whose work has been waited for; what its allocator keeps for later is given back.

    Attributes:
        nbytes: in the end, the most that was taken more than at the beginning.
    """

    nbytes = 0

    def __init__(self, device: Device) -> None:
        self._device = device

    def __enter__(self) -> PeakMemory:
        device = self._device
        device.synchronize()
        if isinstance(device, SimulatedDevice):
            device.empty_cache()
            self._before = device.memory_reserved()
            device.allocator.max_reserved = self._before
        else:
            module = self._module()
            module.empty_cache()
            module.reset_peak_memory_stats(device.name)
            self._before = int(module.memory_reserved(device.name))
        return self

    def __exit__(self, *exc_info: object) -> None:
        device = self._device
        if isinstance(device, SimulatedDevice):
            most = device.max_memory_reserved()
        else:
            most = int(self._module().max_memory_reserved(device.name))
        self.nbytes = most - self._before

    def _module(self) -> Any:
        return torch.get_device_module(torch.device(self._device.name))
