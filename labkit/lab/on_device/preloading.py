"""What a preloader brings, against its limit.

With copies and steps side by side, a batch takes at least the longer of the two. That limit is
measured in the same rounds as the preloaders.

Before it: `preloaders`, which are compared; `prepared`, their loader. After it: `queue_sizes`,
which measures in the same way; `panels`, and notebook 09.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from labkit import Preloader
from labkit.device import Device
from labkit.lab.experiments.measuring import Progress
from labkit.lab.on_device.conduct import values_read
from labkit.lab.on_device.experiment import check_known
from labkit.lab.on_device.place import measure
from labkit.lab.on_device.preloaders import KeepsContainers, KeepsMemory, Naive, Pins, Waits
from labkit.lab.on_device.prepared import MODEL, Prepared, Supply, device_or_model, end
from labkit.lab.on_device.steps import step
from labkit.lab.results import DEFAULT_REPEATS, Result

__all__ = [
    "LIMIT",
    "MEMORY",
    "PRELOADERS",
    "QUANTITIES",
    "RECORDED",
    "TIMED",
    "epoch_of",
    "in_words",
    "preloaders",
    "step_in_words",
    "time_ms",
]

LIMIT = "the limit"
"""The longer of copies alone and steps alone, a batch."""


def _none(loader: Iterable[Any], device: Device) -> Iterator[Any]:
    """Copies in the training loop, on its own stream."""
    for batch in loader:
        yield device.to_device(batch, non_blocking=True)


PRELOADERS: dict[str, Callable[[Any, Device], Any]] = {
    "no preloader": _none,
    "naive": Naive,
    "pins": Pins,
    "waits": Waits,
    "keeps memory": KeepsMemory,
    "by hand, mended": KeepsContainers,
    "labkit.Preloader": Preloader,
}

TIMED = ("no preloader", "naive", "by hand, mended", "labkit.Preloader")
_READING = ("naive", "pins", "waits", "keeps memory", "labkit.Preloader")

QUANTITIES = ("time a batch", "wrong batches")
MEMORY = ("page-locked", "pageable")

RECORDED: tuple[dict[str, Any], ...] = (
    *({"step_copies": step_copies} for step_copies in (0.0, 1.0, 4.0)),
    {"memory": "pageable"},
    *({"quantity": "wrong batches", "step_copies": step_copies} for step_copies in (0.0, 4.0)),
)
"""The settings of which recordings are made."""

_LIMIT_WORDS = "the longer of copies alone, from page-locked memory, and steps alone"

_BATCHES = 12  # that differ
_FEW = 6  # of them, where each takes a simulated device ten times as long
_LENGTHS = {True: (1, 3), False: (4, 12)}
"""By whether the device is simulated: how often they come in an epoch, and after how many batches
the time begins. A card's allocator needs a while until it has all the memory of a new stream."""


def preloaders(
    device: Device | None = None,
    *,
    quantity: str = QUANTITIES[0],
    step_copies: float = 1.0,
    memory: str = MEMORY[0],
    repeats: int = DEFAULT_REPEATS,
    seconds: float = 18.0,
    progress: Progress | None = None,
    so_far: Callable[[Result], None] | None = None,
    cancel: threading.Event | None = None,
) -> Result:
    """Compare preloaders: how long a batch takes them, or how many batches were read wrongly.

    Args:
        device: None for this machine's accelerator, or a scale model of one.
        quantity: one of `QUANTITIES`.
        step_copies: how long a step takes, in copies of a page-locked batch. 0: it only reads,
            and for the count of wrong batches all of them are kept.
        memory: of the host, in which the loader gives its batches; one of `MEMORY`.
        repeats, seconds, progress, so_far, cancel: as in `labkit.lab.experiments.measure`.

    Raises:
        ValueError: there is no such quantity or memory, or a step takes less than no time.
        Cancelled, TookTooLong: as `labkit.lab.experiments.measure`.
    """
    check_known("quantity", quantity, QUANTITIES)
    check_known("memory", memory, MEMORY)
    if step_copies < 0:
        raise ValueError(f"step_copies is 0 or more, but got {step_copies!r}")
    timed = quantity == QUANTITIES[0]
    with device_or_model(device) as there:
        supply = Supply(there, _BATCHES)
        shared: dict[str, Any] = {
            "supply": supply,
            "given": _given(supply, memory),
            "step_seconds": step_copies * supply.copy_seconds,
        }
        settings: dict[str, Any] = {}
        if timed:
            settings[LIMIT] = functools.partial(_limit_ms, **shared)
        for name in TIMED if timed else _READING:
            of_one = _batch_ms if timed else _wrong
            settings[name] = functools.partial(of_one, PRELOADERS[name], **shared)
        return measure(
            there,
            settings,
            question="How long does a batch take?"
            if timed
            else f"How many of {len(shared['given'])} batches are read wrongly?",
            quantity=quantity,
            unit="ms" if timed else "batches",
            repeats=repeats,
            seconds=seconds,
            progress=progress,
            so_far=so_far,
            cancel=cancel,
            notes=(
                in_words(supply),
                f"{step_in_words(step_copies)}; {memory} batches.",
                *((f"{LIMIT.capitalize()}: {_LIMIT_WORDS}.",) if timed else ()),
            ),
        )


def _given(supply: Supply, memory: str) -> list[Any]:
    if memory == MEMORY[0]:
        return epoch_of(supply, supply.pinned)
    return epoch_of(supply, supply.pageable[: _FEW if supply.device.is_simulated else None])


def epoch_of(supply: Supply, batches: list[Any]) -> list[Any]:
    """These batches, as often as an epoch on this device needs them."""
    return _LENGTHS[supply.device.is_simulated][0] * batches


def in_words(supply: Supply) -> str:
    """A note on the batches, and on what a simulated device can show."""
    size = f"Batches of {supply.pinned[0].nbytes:,} bytes"
    if not supply.device.is_simulated:
        return f"{size}."
    return (
        f"{size} on a simulated device: a scale model, {MODEL} times smaller than the card whose "
        "rates it has. It shows the mechanism and not the speed of a card."
    )


def step_in_words(copies: float) -> str:
    """How long a step takes, for a note."""
    if copies == 0:
        return "A step only reads"
    times = "" if copies == 1 else f"{copies:g} times "
    return f"A step takes {times}as long as a copy"


def _batch_ms(
    version: Callable[[Any, Device], Any], supply: Supply, given: list[Any], step_seconds: float
) -> float:
    return time_ms(version(Prepared(given), supply.device), supply, step_seconds)


def time_ms(preloader: Any, supply: Supply, step_seconds: float) -> float:
    """Milliseconds a batch on the device's own clock, when the first few have been there."""
    device, count = supply.device, 0
    warmup = _LENGTHS[device.is_simulated][1]
    begin, done = device.timing_event(), device.timing_event()
    for batch in preloader:
        step(device, batch, step_seconds)
        del batch
        count += 1
        if count == warmup:
            device.current_stream().record_event(begin)
    device.current_stream().record_event(done)
    _finish(preloader, device)
    return float(begin.elapsed_time(done)) / (count - warmup)


def _wrong(
    version: Callable[[Any, Device], Any], supply: Supply, given: list[Any], step_seconds: float
) -> float:
    preloader = version(Prepared(given), supply.device)
    read = values_read(preloader, supply.device, step_seconds, keep=not step_seconds)
    _finish(preloader, supply.device)
    expected = [round(batch[0].item()) for batch in given]
    return float(sum(a != b for a, b in zip(read, expected, strict=True)))


def _limit_ms(supply: Supply, given: list[Any], step_seconds: float) -> float:
    """The longer of copies alone and steps alone; copies are those of page-locked memory."""
    device = supply.device
    there = device.to_device(supply.pinned[0])

    def ms(work: Callable[[Any], Any]) -> float:
        begin, done = device.timing_event(), device.timing_event()
        stream = device.current_stream()
        batches = itertools.cycle(supply.pinned)
        work(next(batches))  # so that the device has something to do when the time begins
        stream.record_event(begin)
        for batch in itertools.islice(batches, _BATCHES):
            work(batch)
        stream.record_event(done)
        done.synchronize()
        return float(begin.elapsed_time(done)) / _BATCHES

    return max(ms(device.to_device), ms(lambda batch: step(device, there, step_seconds)))


def _finish(preloader: Any, device: Device) -> None:
    device.synchronize()
    if isinstance(preloader, Naive):
        end(preloader)
