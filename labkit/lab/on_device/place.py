"""Where an experiment runs: the accelerator, or a simulated device that is called so everywhere.

Before it: `labkit.device`. After it: the experiments.
"""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from labkit.device import Device, find_device
from labkit.lab.experiments import measuring
from labkit.lab.machine import machine
from labkit.lab.results import Result
from labkit.simulated import SimulatedDevice

__all__ = ["SLOW_MOTION", "device_or", "here", "measure", "the_device"]

SLOW_MOTION = 10.0
"""A machine's own memory copy is some ten times slower than the link that is simulated."""

_NVIDIA = Path("/proc/driver/nvidia/version")


def the_device(slow_motion: float = SLOW_MOTION) -> Device:
    """The accelerator of this machine; where there is none, a simulated one.

    Args:
        slow_motion: of the simulated one: all its times are that many times longer.
    """
    return find_device() or SimulatedDevice(slow_motion=slow_motion)


@contextmanager
def device_or(device: Device | None, simulated: Callable[[], SimulatedDevice]) -> Iterator[Device]:
    """The given device, or this machine's accelerator; where there is none, one that is made for
    this and closed in the end.
    """
    found = find_device(device)
    if found is not None:
        yield found
        return
    with simulated() as own:
        yield own


def here(device: Device) -> dict[str, Any]:
    """The machine and its device, ready for JSON, as a `Result.machine`.

    Beside what `labkit.lab.machine` tells: `device`, its name in words; `simulated`; of a simulated
    one `slow_motion`; of an accelerator `device_memory_bytes`, `cuda`, `driver`, as far as known.
    """
    about = {**machine(), "simulated": device.is_simulated}
    if isinstance(device, SimulatedDevice):
        slow = f", in slow motion {device.slow_motion:g}×" if device.slow_motion != 1 else ""
        return {**about, "device": device.name + slow, "slow_motion": device.slow_motion}
    kind = torch.device(device.name)
    module = torch.get_device_module(kind)
    about["device"] = device.name
    with suppress(AttributeError, RuntimeError):
        about["device"] = str(module.get_device_name(kind))
    with suppress(AttributeError, RuntimeError):
        about["device_memory_bytes"] = int(module.get_device_properties(kind).total_memory)
    return {**about, "cuda": torch.version.cuda, "driver": _driver()}


def _driver() -> str | None:
    """The version of NVIDIA's driver; None where nobody tells."""
    with suppress(OSError):
        for word in _NVIDIA.read_text().split("\n")[0].split():
            if word[0].isdigit() and "." in word:
                return word
    command = shutil.which("nvidia-smi")
    if command is None:
        return None
    asked = [command, "--query-gpu=driver_version", "--format=csv,noheader"]
    with suppress(OSError, subprocess.SubprocessError):
        found = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=True)
        return found.stdout.split("\n")[0].strip() or None
    return None


def measure(
    device: Device,
    settings: Mapping[str, Callable[[], float] | Mapping[str, Any]],
    function: Callable[..., float] | None = None,
    *,
    so_far: Callable[[Result], None] | None = None,
    notes: tuple[str, ...] = (),
    **arguments: Any,
) -> Result:
    """As `labkit.lab.experiments.measure`, with the device noted in the result.

    Args:
        device: on which the functions work; where it is simulated, so is the result's origin.
        notes: further ones for the result.
        settings, function, so_far, **arguments: as there.
    """
    machine_here = here(device)

    def told(result: Result) -> Result:
        origin: Any = "simulated" if device.is_simulated else "live"
        return dataclasses.replace(
            result, machine=machine_here, origin=origin, notes=(*result.notes, *notes)
        )

    found = measuring.measure(
        settings,
        function,
        so_far=None if so_far is None else lambda result: so_far(told(result)),
        **arguments,
    )
    return told(found)
