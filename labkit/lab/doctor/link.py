"""How fast bytes get from this machine's memory to its accelerator.

It is measured by a program of its own (`python -m labkit.lab.doctor.link`): a process that has once
talked to a CUDA device can no longer fork workers that do.

After it: `doctor`.
"""

from __future__ import annotations

import functools
import json
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

import torch

from labkit.lab.child import output_of

__all__ = ["Device", "find_device", "gigabytes_a_second"]

_NBYTES = 64 * 2**20
_REPEATS = 5
_LIMIT_S = 60


@dataclass(frozen=True)
class Device:
    """An accelerator and its link; speeds in GB/s from host to device, 64 MiB at a time.

    Attributes:
        kind: as in `torch.device`: "cuda", "mps", "xpu", …
        name: the model, where the system tells it.
        count: how many there are.
        pageable: from ordinary memory,
        pinned: and from page-locked memory; None where there is none.
    """

    kind: str
    name: str
    count: int
    pageable: float
    pinned: float | None


@functools.cache
def find_device() -> Device | None:
    """The accelerator that PyTorch would use; None if there is none. Measured once a process.

    Raises:
        RuntimeError: there should be one, but it does not work; says why.
    """
    if torch.accelerator.current_accelerator(check_available=False) is None:
        return None  # this build of PyTorch knows none
    try:
        found = json.loads(output_of([sys.executable, "-m", __name__], limit_s=_LIMIT_S))
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"the accelerator gave no answer in {_LIMIT_S} s") from None
    return None if found is None else Device(**found)


def _main() -> None:
    device = torch.accelerator.current_accelerator(check_available=True)
    print(json.dumps(None if device is None else asdict(_measure(device))))


def _measure(device: torch.device) -> Device:
    ordinary = torch.ones(_NBYTES, dtype=torch.uint8)
    try:
        pinned = gigabytes_a_second(ordinary.pin_memory(), device)
    except RuntimeError:  # an accelerator that shares the host's memory may have no use for it
        pinned = None
    module = torch.get_device_module(device)
    name = getattr(module, "get_device_name", lambda: device.type)()
    return Device(
        kind=device.type,
        name=str(name),
        count=torch.accelerator.device_count(),
        pageable=gigabytes_a_second(ordinary, device),
        pinned=pinned,
    )


def gigabytes_a_second(source: torch.Tensor, device: torch.device) -> float:
    """The median speed of copying the tensor to the device, in 10⁹ bytes a second."""
    target = torch.empty_like(source, device=device)
    seconds = []
    for _ in range(1 + _REPEATS):
        started = time.perf_counter()
        target.copy_(source, non_blocking=True)
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        seconds.append(time.perf_counter() - started)
    return source.nbytes / statistics.median(seconds[1:]) / 1e9


if __name__ == "__main__":
    _main()
