"""Whether the Preloader's values are right, its memory stays flat, and the link is filled.

Before it: `loads`. After it: `jobs`.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch

import labkit
from labkit.device import Device
from labkit.lab.bench.to_device import Size, images_of
from labkit.lab.on_device.steps import step
from labkit.lab.record.check import Check
from labkit.lab.record.loads import Amounts, Numbered
from labkit.lab.record.self_check import copy_rate
from labkit.lab.resources import running
from labkit.simulated import SimulatedDevice

__all__ = ["correctness_checks"]

_HELD = 6  # batches that a consumer keeps
_COUNTED = 256  # after so many, what was read is added up
_SETTLED = 5  # epochs after which memory has found its size
_EPOCH = 8  # batches
_FILLED = 0.9  # of the link's rate


def correctness_checks(
    device: Device, amounts: Amounts, seconds: float
) -> dict[str, Callable[[], Check]]:
    """The checks, by name, which take about so many seconds from now on."""
    deadline = time.monotonic() + seconds
    ways = {"a slowed consumer": _slowed, "dropped batches": _dropped, "held batches": _held}

    def share(checks_left: int) -> float:
        return max(0.0, deadline - time.monotonic()) / checks_left

    def wrong(way: str, checks_left: int) -> Callable[[], Check]:
        return lambda: wrong_values(way, ways[way], device, amounts, share(checks_left))

    return {
        **{f"wrong values, {way}": wrong(way, 5 - place) for place, way in enumerate(ways)},
        "device memory": lambda: device_memory(device, amounts, share(2)),
        "rate while loading": lambda: rate_while_loading(device, amounts, share(1)),
    }


_Consumer = Callable[[Device, Iterator[Any], float], Iterator[Any]]
"""Takes batches 0, 1, 2, … with steps of so many seconds, and gives what each step counted."""


def wrong_values(
    way: str, consumer: _Consumer, device: Device, amounts: Amounts, seconds: float
) -> Check:
    """How many batches have a wrong value on the device, each value of each batch looked at."""
    size, *shape = amounts.small
    data = Numbered(amounts.many, size, tuple(shape))
    loader = labkit.DataLoader(data, size, num_workers=amounts.workers)
    deadline = time.monotonic() + seconds
    checked = wrong = 0
    counts: list[Any] = []
    with running(labkit.Preloader(loader, device)) as batches:
        for count in consumer(device, batches, amounts.step_s):
            counts.append(count)
            if len(counts) == _COUNTED:
                checked, wrong = checked + len(counts), wrong + _nonzero(counts)
                counts.clear()
            if time.monotonic() > deadline:
                break
    checked, wrong = checked + len(counts), wrong + _nonzero(counts)
    return Check(
        f"wrong values, {way}",
        f"{wrong:,} of {checked:,} batches of {size} × {shape} had a wrong value",
        f"0, of {amounts.many:,} if time allows",
        wrong == 0 and checked > 0,
        {"checked": checked, "wrong": wrong, "wanted_batches": amounts.many},
    )


def _nonzero(counts: list[Any]) -> int:
    return sum(int(count.cpu()) != 0 for count in counts)


def _count(device: Device, batch: Any, number: int, seconds: float) -> Any:
    """A step at whose end all values are compared with the batch's number."""
    return step(device, batch, seconds, lambda values: (values != number).sum())


def _slowed(device: Device, batches: Iterator[Any], seconds: float) -> Iterator[Any]:
    for number, batch in enumerate(batches):
        yield _count(device, batch, number, 2 * seconds)


def _dropped(device: Device, batches: Iterator[Any], seconds: float) -> Iterator[Any]:
    number = 0
    while True:
        batch = next(batches, None)
        if batch is None:
            return
        counted = _count(device, batch, number, seconds)
        del batch  # its memory may go to the next copy, were it not for `record_stream`
        yield counted
        number += 1


def _held(device: Device, batches: Iterator[Any], seconds: float) -> Iterator[Any]:
    held: deque[tuple[int, Any]] = deque()
    for number, batch in enumerate(batches):
        held.append((number, batch))
        step(device, batch, seconds)
        if len(held) > _HELD:
            old, kept = held.popleft()
            yield _count(device, kept, old, 0)
    for old, kept in held:
        yield _count(device, kept, old, 0)


def device_memory(device: Device, amounts: Amounts, seconds: float) -> Check:
    """What is reserved on the device after each epoch of one Preloader."""
    size, *shape = amounts.large
    size = max(1, size // 4)
    batch_bytes = size * math.prod(shape) * 4
    loader = labkit.DataLoader(
        Numbered(_EPOCH, size, tuple(shape)),
        size,
        num_workers=2,
        persistent_workers=True,
    )
    preloader, deadline = labkit.Preloader(loader, device), time.monotonic() + seconds
    reserved: list[int] = []
    try:
        while len(reserved) < amounts.epochs and (not reserved or time.monotonic() < deadline):
            for batch in preloader:
                step(device, batch, amounts.step_s)
            device.synchronize()
            reserved.append(_reserved(device))
    finally:
        preloader.close()
        loader.close()
    first, later = max(reserved[:_SETTLED]), max(reserved[_SETTLED:], default=0)
    return Check(
        "device memory",
        f"over {len(reserved)} epochs {min(reserved) / 1e6:.1f} to {max(reserved) / 1e6:.1f} MB "
        f"reserved, at the end {reserved[-1] / 1e6:.1f} MB",
        f"at most one batch ({batch_bytes / 1e6:.1f} MB) more than in the first {_SETTLED} epochs",
        later <= first + batch_bytes if len(reserved) > _SETTLED else None,
        {"reserved_bytes": reserved, "wanted_epochs": amounts.epochs},
    )


def _reserved(device: Device) -> int:
    if isinstance(device, SimulatedDevice):
        return device.memory_reserved()
    kind = torch.device(device.name)
    return int(torch.get_device_module(kind).memory_reserved(kind))


def rate_while_loading(device: Device, amounts: Amounts, seconds: float) -> Check:
    """How much of the link's rate is used while batches come from workers."""
    limit, samples = min(amounts.rate_s, seconds / 4), images_of(amounts.large[0])
    link, _ = copy_rate(device, device.pin(torch.zeros(amounts.large)))

    def loader() -> Any:
        return labkit.DataLoader(samples, amounts.large[0], num_workers=amounts.most_workers)

    warmup = Size(amounts.large[0], amounts.most_workers).warmup
    fed = _rate(loader(), warmup, limit, lambda: None)
    loading = _rate(labkit.Preloader(loader(), device), warmup, limit, device.synchronize)
    can = fed >= link and not device.is_simulated
    return Check(
        "rate while loading",
        f"{loading:.1f} GB/s, {loading / link:.2f} of the link's {link:.1f} GB/s from pinned "
        f"memory; {amounts.most_workers} workers feed {fed:.1f} GB/s",
        f"≥ {_FILLED} of the link's, where the workers can feed that",
        loading >= _FILLED * link if can else None,
        {"gb_per_s": {"loading": loading, "link": link, "fed": fed}, "of_link": loading / link},
    )


def _rate(loader: Any, warmup: int, seconds: float, finish: Callable[[], None]) -> float:
    """10⁹ bytes a second that come out of a loader in steady state."""
    with running(loader) as batches:
        for _ in range(warmup):
            batch = next(batches)
        finish()
        nbytes, started = 0, time.perf_counter()
        while time.perf_counter() - started < seconds:
            batch = next(batches)
            nbytes += batch.nbytes
        finish()
        return nbytes / (time.perf_counter() - started) / 1e9
