"""What the doctor says of an accelerator, and of the link to it.

Before it: `link`, which measures. After it: `doctor`.
"""

from __future__ import annotations

from labkit.lab.doctor.findings import Finding
from labkit.lab.doctor.link import Device, find_device

__all__ = ["device", "device_or_problem", "link"]


def device_or_problem() -> tuple[Device | None, str]:
    """The accelerator, if any; else why one that should be there does not work, or ""."""
    try:
        return find_device(), ""
    except RuntimeError as error:
        return None, str(error).strip().splitlines()[-1]


def device(device: Device | None, problem: str) -> Finding:
    """The accelerator that batches go to."""
    if device is not None:
        value = f"{device.count} × {device.name} ({device.kind})"
        raw = {"kind": device.kind, "name": device.name, "count": device.count}
        meaning = "Batches have to get there: page-locked ones can, while the device computes."
        advice = "Use pin_memory=True, and .to(device, non_blocking=True)."
        return Finding("device", value, raw, None, meaning, advice)
    if problem:
        meaning = "PyTorch was built for one, but cannot use it; loading works without."
        advice = f"Look at the driver and its version: {problem}"
        return Finding("device", "none that works", None, None, meaning, advice, concern=True)
    meaning = "No accelerator, and that is fine: everything here runs without one."
    return Finding("device", "none", None, None, meaning)


def link(device: Device | None) -> Finding:
    """How fast batches get to the accelerator."""
    if device is None:
        meaning = "Without an accelerator batches stay where they are, and pin_memory does nothing."
        return Finding("link", "none", None, None, meaning)
    value = f"{device.pageable:.1f} GB/s from ordinary memory"
    if device.pinned is not None:
        value += f", {device.pinned:.1f} GB/s from page-locked memory"
    fastest = max(device.pageable, device.pinned or 0)
    return Finding(
        name="link",
        value=value,
        raw={"pageable": device.pageable, "pinned": device.pinned},
        unit="GB/s",
        meaning=f"A batch of 100 MB takes {100 / fastest:.1f} ms to the device at best.",
    )
