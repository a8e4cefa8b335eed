"""Compare one stream with two: the time a batch, and the steps that read a wrong value.

Before it: `stream_loop`, which runs. After it: `panels`, notebook 08.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from labkit.device import Device
from labkit.lab.experiments.measuring import Progress
from labkit.lab.on_device.experiment import check_known
from labkit.lab.on_device.place import measure
from labkit.lab.on_device.slow_motion import used
from labkit.lab.on_device.stream_loop import BATCH_BYTES, run
from labkit.lab.results import DEFAULT_REPEATS, Result

__all__ = ["QUANTITIES", "RECORDED", "STEPS_MS", "STREAMS", "two_streams"]

STREAMS = {"one stream": 1, "two streams": 2}

QUANTITIES = ("time a batch", "wrong steps")

STEPS_MS = (0.05, 0.1, 0.3)

RECORDED: tuple[dict[str, Any], ...] = (
    *(
        {"pinned": pinned, "non_blocking": non_blocking, "step_ms": step_ms}
        for pinned in (True, False)
        for non_blocking in (True, False)
        for step_ms in STEPS_MS
    ),
    *(
        {"quantity": QUANTITIES[1], "events": events, "step_ms": STEPS_MS[0]}
        for events in (True, False)
    ),
)
"""The settings that are recorded on an accelerator; what is left out has its default."""


def two_streams(
    device: Device | None = None,
    *,
    quantity: str = QUANTITIES[0],
    pinned: bool = True,
    non_blocking: bool = True,
    events: bool = True,
    reads_each: bool = True,
    step_ms: float = 0.3,
    batch_bytes: int = BATCH_BYTES,
    batches: int = 4,
    repeats: int = DEFAULT_REPEATS,
    seconds: float = 15.0,
    progress: Progress | None = None,
    so_far: Callable[[Result], None] | None = None,
    cancel: threading.Event | None = None,
) -> Result:
    """Compare one stream with two, by `run`.

    Args:
        device: None for the accelerator, or a simulated one in slow motion.
        quantity: one of `QUANTITIES`.
        pinned, non_blocking, events, reads_each, step_ms, batch_bytes, batches: as of `run`.
        repeats, seconds, progress, so_far, cancel: as in `labkit.lab.experiments.measure`.

    Raises:
        ValueError: as `run`, or there is no such quantity.
        Cancelled, TookTooLong: as `labkit.lab.experiments.measure`.
    """
    check_known("quantity", quantity, QUANTITIES)
    is_time = quantity == QUANTITIES[0]
    settings = {
        "pinned": pinned,
        "non_blocking": non_blocking,
        "events": events,
        "reads_each": reads_each,
        "step_ms": step_ms,
        "batch_bytes": batch_bytes,
        "batches": batches,
    }
    with used(device) as there:

        def value(streams: int, **settings: Any) -> float:
            found = run(there, streams=streams, **settings)
            return found.seconds / batches * 1e3 if is_time else len(found.wrong)

        return measure(
            there,
            {label: {"streams": count} for label, count in STREAMS.items()},
            value,
            question=f"Copies and steps of {batches} batches: on one stream or on two?",
            quantity=quantity,
            unit="ms" if is_time else "steps",
            common=settings,
            repeats=repeats,
            seconds=seconds,
            progress=progress,
            so_far=so_far,
            cancel=cancel,
        )
