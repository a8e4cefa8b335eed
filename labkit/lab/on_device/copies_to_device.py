"""When does a copy's call return, and when is the copy done? Pageable against pinned memory.

Before it: `work_log`, which notes both. After it: `sweep`, which draws many sizes; `panels`,
notebook 08.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from labkit.device import Device
from labkit.lab.experiments.measuring import Progress, at_most
from labkit.lab.on_device.experiment import check_known
from labkit.lab.on_device.place import here, measure
from labkit.lab.on_device.slow_motion import used
from labkit.lab.on_device.work_log import Call, WorkLog
from labkit.lab.results import DEFAULT_REPEATS, Result
from labkit.simulated import Operation

__all__ = [
    "QUANTITIES",
    "RECORDED",
    "SIZES",
    "WAYS",
    "Copied",
    "copied",
    "copies_to_device",
    "swept",
]

WAYS: dict[str, dict[str, bool]] = {
    "pageable, blocking": {"pinned": False, "non_blocking": False},
    "pageable, non_blocking": {"pinned": False, "non_blocking": True},
    "pinned, blocking": {"pinned": True, "non_blocking": False},
    "pinned, non_blocking": {"pinned": True, "non_blocking": True},
}
"""By label: where the source lies, and what the call is told."""

QUANTITIES = ("time until the call returns", "time until the copy is done")

SIZES = (64_000, 1_000_000, 4_000_000, 16_000_000)

RECORDED = tuple(
    {"nbytes": nbytes, "quantity": quantity}
    for nbytes in (*SIZES, 64_000_000)
    for quantity in QUANTITIES
)
"""The settings that are recorded on an accelerator."""

_EARLY = 0.8
"""Of the copy's time. A blocking call returns when the copy is done, one from pageable memory
perhaps a moment before: when its last piece lies in the driver's own memory."""


@dataclass(frozen=True)
class Copied:
    """One copy: when its call returned, and when it was done; seconds since the call."""

    returned: float
    done: float

    @classmethod
    def of(cls, call: Call, operation: Operation) -> Copied:
        """Of a call, and the copy that it issued to a stream with nothing else to do."""
        return cls(call.end - call.start, operation.end - operation.start)

    @property
    def returned_early(self) -> bool:
        """Whether the call returned while the copy was under way."""
        return self.returned < _EARLY * self.done


def copied(device: Device, source: torch.Tensor, non_blocking: bool) -> Copied:
    """Copy a host tensor to the device, which has nothing else to do."""
    device.synchronize()
    log = WorkLog(device)
    with log.issuing("copy", "copy", nbytes=source.nbytes):
        there = device.to_device(source, non_blocking)
    (operation,) = log.operations()
    del there  # its memory is used again by the next one
    return Copied.of(log.calls[0], operation)


def copies_to_device(
    device: Device | None = None,
    *,
    nbytes: int = 16_000_000,
    quantity: str = QUANTITIES[0],
    repeats: int = DEFAULT_REPEATS,
    seconds: float = 15.0,
    progress: Progress | None = None,
    so_far: Callable[[Result], None] | None = None,
    cancel: threading.Event | None = None,
) -> Result:
    """Compare `WAYS` to copy so many bytes.

    Args:
        device: None for the accelerator, or a simulated one in slow motion.
        nbytes: of the source.
        quantity: one of `QUANTITIES`.
        repeats, seconds, progress, so_far, cancel: as in `labkit.lab.experiments.measure`.

    Raises:
        ValueError: there is no such quantity, or fewer bytes than one.
        Cancelled, TookTooLong: as `labkit.lab.experiments.measure`.
    """
    check_known("quantity", quantity, QUANTITIES)
    if nbytes < 1:
        raise ValueError(f"nbytes is 1 or more, but got {nbytes!r}")
    with used(device) as there:
        sources = _sources(there, nbytes)

        def value(pinned: bool, non_blocking: bool) -> float:
            found = copied(there, sources[pinned], non_blocking)
            return (found.returned if quantity == QUANTITIES[0] else found.done) * 1e3

        return measure(
            there,
            WAYS,
            value,
            question="When does a copy's call return?"
            if quantity == QUANTITIES[0]
            else "When is a copy done?",
            quantity=quantity,
            repeats=repeats,
            seconds=seconds,
            progress=progress,
            so_far=so_far,
            cancel=cancel,
            notes=(f"{nbytes:,} bytes from host to device.",),
        )


def _sources(device: Device, nbytes: int) -> dict[bool, torch.Tensor]:
    """The same bytes by whether they are pinned."""
    pageable = torch.ones(nbytes, dtype=torch.uint8)
    return {False: pageable, True: device.pin(pageable)}


def swept(
    device: Device | None = None,
    sizes: Sequence[int] = (16_000, 256_000, 1_000_000, 4_000_000, 16_000_000),
    repeats: int = 3,
) -> tuple[dict[str, Any], dict[int, dict[str, Copied]]]:
    """Copies of many sizes, pageable and pinned, all `non_blocking`: medians of some repeats.

    Returns:
        The machine (`here`), and by bytes, by "pageable" and "pinned", when a call returned and
        when its copy was done.
    """
    repeats = repeats if at_most() > 10 else 1
    with used(device) as there:
        found = {nbytes: _both(there, nbytes, repeats) for nbytes in sizes}
        return here(there), found


def _both(device: Device, nbytes: int, repeats: int) -> dict[str, Copied]:
    return {
        ("pinned" if pinned else "pageable"): _median(
            [copied(device, source, non_blocking=True) for _ in range(1 + repeats)][1:]
        )
        for pinned, source in _sources(device, nbytes).items()
    }


def _median(copies: Sequence[Copied]) -> Copied:
    return Copied(
        statistics.median(copy.returned for copy in copies),
        statistics.median(copy.done for copy in copies),
    )
