"""What a longer queue brings a Preloader, and what it costs on the device.

Before it: `preloading`, which times; `device_memory`. After it: `panels`, and notebook 09.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from labkit import Preloader
from labkit.device import Device
from labkit.lab.experiments.measuring import Progress
from labkit.lab.on_device.device_memory import PeakMemory
from labkit.lab.on_device.experiment import check_known
from labkit.lab.on_device.place import measure
from labkit.lab.on_device.preloading import epoch_of, in_words, step_in_words, time_ms
from labkit.lab.on_device.prepared import Prepared, Supply, device_or_model
from labkit.lab.results import DEFAULT_REPEATS, Result

__all__ = ["LOADER_TIMES", "QUANTITIES", "RECORDED", "SIZES", "queue_sizes"]

QUANTITIES = ("time a batch", "device memory")
SIZES = (1, 2, 4, 8)
LOADER_TIMES = ("even", "uneven")

RECORDED: tuple[dict[str, Any], ...] = (
    {},
    {"loader_times": "uneven"},
    {"quantity": "device memory"},
)
"""The settings of which recordings are made."""

_EVERY, _SLOW_STEPS = 12, 6.0  # uneven: one in so many takes so many steps
_STEP_COPIES = 2.0


def queue_sizes(
    device: Device | None = None,
    *,
    quantity: str = QUANTITIES[0],
    loader_times: str = LOADER_TIMES[0],
    repeats: int = DEFAULT_REPEATS,
    seconds: float = 18.0,
    progress: Progress | None = None,
    so_far: Callable[[Result], None] | None = None,
    cancel: threading.Event | None = None,
) -> Result:
    """Compare `labkit.Preloader` with `SIZES`: the time a batch, or memory on the device.

    Args:
        device: None for this machine's accelerator, or a scale model of one.
        quantity: one of `QUANTITIES`.
        loader_times: "even": each batch takes the loader half a step. "uneven": one in twelve takes
            it six steps, which is as much in all, and the others nothing. For memory it is fast in
            both cases.
        repeats, seconds, progress, so_far, cancel: as in `labkit.lab.experiments.measure`.

    Raises:
        ValueError: there is no such quantity, or no such times.
        Cancelled, TookTooLong: as `labkit.lab.experiments.measure`.
    """
    check_known("quantity", quantity, QUANTITIES)
    check_known("loader_times", loader_times, LOADER_TIMES)
    timed = quantity == QUANTITIES[0]
    with device_or_model(device) as there:
        supply = Supply(there, _EVERY)
        step_seconds = _STEP_COPIES * supply.copy_seconds
        pause = _pauses(loader_times, step_seconds * getattr(there, "slow_motion", 1.0))
        if not timed:  # of a loader that is fast, so that as much is ready as may be
            pause = lambda place: 0.0  # noqa: E731

        def value(queue_size: int) -> float:
            loader = Prepared(2 * epoch_of(supply, supply.pinned), pause=pause)
            make = functools.partial(Preloader, queue_size=queue_size)
            with PeakMemory(there) as memory:
                took = time_ms(make(loader, there), supply, step_seconds)
            return took if timed else memory.nbytes / supply.pinned[0].nbytes

        return measure(
            there,
            {f"queue_size={size}": {"queue_size": size} for size in SIZES},
            value,
            question="How long does a batch take?" if timed else "What lies on the device at most?",
            quantity=quantity,
            unit="ms" if timed else "batches",
            repeats=repeats,
            seconds=seconds,
            progress=progress,
            so_far=so_far,
            cancel=cancel,
            notes=(
                in_words(supply),
                f"{step_in_words(_STEP_COPIES)}.",
                f"The loader's times: {loader_times}." if timed else "The loader takes no time.",
            ),
        )


def _pauses(loader_times: str, step: float) -> Callable[[int], float]:
    if loader_times == LOADER_TIMES[0]:
        return lambda place: _SLOW_STEPS / _EVERY * step
    return lambda place: _SLOW_STEPS * step if place % _EVERY == _EVERY - 1 else 0.0
