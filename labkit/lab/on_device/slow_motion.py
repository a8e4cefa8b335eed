"""The device of an experiment: the one that is given, or one of its own, in slow motion.

A call's own work in Python is not slowed down with the simulated device, so it must be short beside
the rest. Before it: `place`. After it: the experiments of notebook 08.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from weakref import WeakKeyDictionary

from labkit.device import Device
from labkit.lab.on_device.place import device_or
from labkit.simulated import SimulatedDevice

__all__ = ["SLOW_MOTION", "copy_stream", "used"]

SLOW_MOTION = 50.0
"""With it a simulated copy of 16 MB from pinned memory takes 15 ms."""

_copy_streams: WeakKeyDictionary[Device, Any] = WeakKeyDictionary()


def used(device: Device | None) -> AbstractContextManager[Device]:
    """The device; for None the accelerator, or a simulated one that is closed in the end."""
    return device_or(device, lambda: SimulatedDevice(slow_motion=SLOW_MOTION))


def copy_stream(device: Device) -> Any:
    """A stream for copies, the same one always: each stream has device memory of its own."""
    if device not in _copy_streams:
        _copy_streams[device] = device.new_stream()
    return _copy_streams[device]
