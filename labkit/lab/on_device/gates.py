"""Hold what a simulated device does, so that a race has one outcome, however busy this machine is.

On an accelerator nothing can be held, and nothing is.

Before it: `labkit.simulated`. After it: `conduct`, and the exercises of notebook 09.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from labkit.device import Device
from labkit.simulated import Operation, SimulatedDevice

__all__ = ["Gate"]

_MOST_SECONDS = 10.0


class Gate:
    """Holds an engine of the device until it is opened.

    Args:
        device: where it is no simulated one, nothing is held.
    """

    def __init__(self, device: Device) -> None:
        self._device, self._opened = device, threading.Event()

    @property
    def is_open(self) -> bool:
        """Whether it has been opened."""
        return self._opened.is_set()

    def open(self) -> None:
        """Let what was held go on."""
        self._opened.set()

    @contextmanager
    def opening(self, seconds: float) -> Iterator[None]:
        """Open it in the end, and after so long in any case: what runs inside may wait for it."""
        timer = threading.Timer(seconds, self.open)
        timer.start()
        try:
            yield
        finally:
            self.open()
            timer.cancel()
            timer.join()

    def hold_copies(self) -> None:
        """Those to the device that are issued from now on."""
        device = self._device
        if not isinstance(device, SimulatedDevice):
            return

        def wait(operation: Operation) -> None:
            if operation.name == "gate":
                device.on_operation.remove(wait)
                self._opened.wait(_MOST_SECONDS)

        device.on_operation.append(wait)
        small = device.pin(torch.ones(1))
        with device.stream(device.new_stream()), device.record_function("gate"):
            device.to_device(small)

    def hold_steps(self) -> None:
        """Those that are issued from now on, on whatever stream: there is one engine for them."""
        if isinstance(self._device, SimulatedDevice):
            self._device.run(lambda: float(self._opened.wait(_MOST_SECONDS)), seconds=0)
