"""The race, in both directions: who reads before a copy is done reads something else.

Three readers: a step on the device, of a batch that is still being copied; a copy, of a host buffer
that is changed meanwhile; the host, of a copy from the device. Each with and without an event.

Before it: `labkit.device`; `steps`. After it: `panels`, notebook 08.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import torch

from labkit.device import Device
from labkit.lab.experiments.measuring import Progress
from labkit.lab.on_device.place import measure
from labkit.lab.on_device.slow_motion import copy_stream, used
from labkit.lab.on_device.steps import step
from labkit.lab.results import DEFAULT_REPEATS, Result

__all__ = ["ORDERS", "READERS", "READS", "early_reads", "reads_right", "to_host"]

READS = 3
"""Tries of one repeat."""

ORDERS = {"at once": False, "after the event": True}

_values = itertools.count(1)  # no memory holds by chance what is expected of it


def step_reads(device: Device, nbytes: int, waits: bool) -> bool:
    """A step on the current stream reads what another stream copies."""
    value = float(next(_values))
    source, copying = device.pin(_full(nbytes, value)), copy_stream(device)
    with device.stream(copying):
        there = device.to_device(source, non_blocking=True)
        copied = copying.record_event()
    if waits:
        device.current_stream().wait_event(copied)
    read = step(device, there, 0.0)
    return _settled(device, read) == value


def copy_reads(device: Device, nbytes: int, waits: bool) -> bool:
    """A copy reads a host buffer that is filled with the next batch."""
    value = float(next(_values))
    buffer = device.pin(_full(nbytes, value))
    there = device.to_device(buffer, non_blocking=True)
    copied = device.current_stream().record_event()
    if waits:
        copied.synchronize()
    buffer[-1] = -value  # of the next batch: the value that a copy takes last
    return _settled(device, step(device, there, 0.0)) == value


def host_reads(device: Device, nbytes: int, waits: bool) -> bool:
    """The host reads what is being copied from the device."""
    value = float(next(_values))
    there = device.to_device(_full(nbytes, value), non_blocking=False)
    back = to_host(there)
    copied = device.current_stream().record_event()
    if waits:
        copied.synchronize()
    read = float(back[-1])
    device.synchronize()
    return read == value


READERS: dict[str, Callable[[Device, int, bool], bool]] = {
    "a step reads a batch": step_reads,
    "a copy reads a host buffer": copy_reads,
    "the host reads a result": host_reads,
}
"""By who reads: `(device, nbytes, waits) -> whether it read the right value`."""


def to_host(there: Any) -> torch.Tensor:
    """A copy in the host's pinned memory, issued on the current stream: the caller does not wait.

    PyTorch: `tensor.to("cpu", non_blocking=True)`.
    """
    if isinstance(there, torch.Tensor):
        return there.to("cpu", non_blocking=True)
    host: torch.Tensor = there.to_host(non_blocking=True)
    return host


def reads_right(
    reader: str, waits: bool, device: Device | None = None, nbytes: int = 16_000_000
) -> bool:
    """Let somebody read what is being copied, and say whether it was right.

    Args:
        reader: one of `READERS`.
        waits: for the event that was recorded after the copy.
        device: None for the accelerator, or a simulated one in slow motion.
        nbytes: that are copied.

    Raises:
        ValueError: there is no such reader.
    """
    if reader not in READERS:
        known = ", ".join(map(repr, READERS))
        raise ValueError(f"nobody is called {reader!r}: write one of {known}")
    with used(device) as there:
        there.synchronize()
        return READERS[reader](there, nbytes, waits)


def _full(nbytes: int, value: float) -> torch.Tensor:
    return torch.full((max(1, nbytes // 4),), value)


def _settled(device: Device, read: Any) -> float:
    device.synchronize()
    return float(read.item())


def early_reads(
    device: Device | None = None,
    *,
    reader: str = "a step reads a batch",
    nbytes: int = 16_000_000,
    repeats: int = DEFAULT_REPEATS,
    seconds: float = 15.0,
    progress: Progress | None = None,
    so_far: Callable[[Result], None] | None = None,
    cancel: threading.Event | None = None,
) -> Result:
    """Count wrong reads, at once and after an event.

    Args:
        device: None for the accelerator, or a simulated one in slow motion.
        reader: one of `READERS`.
        nbytes: of each copy.
        repeats, seconds, progress, so_far, cancel: as in `labkit.lab.experiments.measure`.

    Raises:
        ValueError: there is no such reader.
        Cancelled, TookTooLong: as `labkit.lab.experiments.measure`.
    """
    with used(device) as there:

        def wrong(waits: bool) -> float:
            tries = [reads_right(reader, waits, there, nbytes) for _ in range(READS)]
            return tries.count(False)

        return measure(
            there,
            {label: {"waits": waits} for label, waits in ORDERS.items()},
            wrong,
            question=f"How many reads of {READS} are wrong, if {reader} that is being copied?",
            quantity=f"wrong reads, of {READS}",
            unit="reads",
            repeats=repeats,
            seconds=seconds,
            progress=progress,
            so_far=so_far,
            cancel=cancel,
        )
