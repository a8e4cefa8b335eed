"""What only a real device can show: that memory of the arena is page-locked, and events tell time.

The loader's tests run on a simulated device. These few checks are for what that takes for granted:
cudaHostRegister of memory that another process filled, copies from there, torch.Event, and that a
refusal does not come back as an error of the next kernel.

Before it: `loads`. After it: `jobs`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

import labkit
from labkit.device import Device
from labkit.lab.on_device.steps import step
from labkit.lab.record.check import Check
from labkit.lab.record.loads import Amounts, Numbered
from labkit.lab.resources import running
from labkit.sharing.segment import Segment

__all__ = ["copy_rate", "self_checks"]

_SEGMENT_BYTES = 64 << 20
_COPIES = 5
_STEP_S = 0.02
_EPOCH = 8  # batches that are traced
_CLOCK_S = 2e-3  # by which two clocks may differ: one event joins them


def self_checks(device: Device, amounts: Amounts) -> dict[str, Callable[[], Check]]:
    """The checks, by name."""
    return {
        "page-locking": lambda: page_locking(device),
        "the arena's slots": lambda: arena_slots(device, amounts),
        "copies from a slot": lambda: copies_from_a_slot(device, amounts),
        "timing events": lambda: timing_events(device),
        "lanes of a trace": lambda: traced_lanes(device, amounts),
        "after a refusal": lambda: after_a_refusal(device),
    }


def page_locking(device: Device) -> Check:
    """A segment of labkit's is pinned, for the device, from `lock_pages` on."""
    segment = Segment.create(_SEGMENT_BYTES)
    memory = torch.frombuffer(segment.exporter(0, _SEGMENT_BYTES), dtype=torch.uint8)
    memory.fill_(1)
    before = device.is_pinned(memory)
    started = time.perf_counter()
    locked = segment.lock_pages(device)
    took = time.perf_counter() - started
    after = device.is_pinned(memory)
    segment.close()
    return Check(
        "page-locking",
        f"is_pinned is {before} before and {after} after lock_pages, which said {locked} after "
        f"{took * 1e3:.1f} ms for {_SEGMENT_BYTES >> 20} MiB",
        "False before, True after",
        locked and after and not before,
        {"before": before, "locked": locked, "after": after, "seconds": took},
    )


@contextmanager
def _slot(device: Device, amounts: Amounts) -> Iterator[torch.Tensor]:
    """A batch as it comes from a worker, in the arena."""
    size, *shape = amounts.large
    loader = labkit.DataLoader(Numbered(3, size, tuple(shape)), size, num_workers=1)
    with running(loader.iterate(page_locker=device)) as batches:
        next(batches)
        batch: torch.Tensor = next(batches)
        yield batch


def arena_slots(device: Device, amounts: Amounts) -> Check:
    """A batch that a worker has built in the arena is pinned, and comes whole to the device."""
    with _slot(device, amounts) as batch:
        pinned = device.is_pinned(batch)
        there = device.to_device(batch, non_blocking=True)
        wrong = int(_count_wrong(device, there, 1).cpu())
    return Check(
        "the arena's slots",
        f"is_pinned is {pinned}; {wrong} wrong values of {batch.numel():,} after the copy",
        "True; 0",
        pinned and wrong == 0,
        {"pinned": pinned, "wrong": wrong},
    )


def _count_wrong(device: Device, batch: Any, number: int) -> Any:
    return step(device, batch, 0, lambda values: (values != number).sum())


def copies_from_a_slot(device: Device, amounts: Amounts) -> Check:
    """The call returns long before the copy ends, which goes at the rate of pinned memory."""
    with _slot(device, amounts) as batch:
        ours, call = copy_rate(device, batch)
        pinned, _ = copy_rate(device, device.pin(batch.clone()))
        pageable, pageable_call = copy_rate(device, batch.clone())
    copy = batch.nbytes / ours / 1e9
    return Check(
        "copies from a slot",
        f"the call returned after {call * 1e6:,.0f} µs of a copy of {copy * 1e6:,.0f} µs; "
        f"{ours:.1f} GB/s, from pinned memory {pinned:.1f} GB/s, from pageable {pageable:.1f} GB/s",
        "less than half of the copy; at least 0.9 of the rate from pinned memory",
        None if device.is_simulated else call < copy / 2 and ours >= 0.9 * pinned,
        {
            "call_seconds": call,
            "pageable_call_seconds": pageable_call,
            "nbytes": batch.nbytes,
            "gb_per_s": {"slot": ours, "pinned": pinned, "pageable": pageable},
        },
    )


def copy_rate(device: Device, source: torch.Tensor) -> tuple[float, float]:
    """Copying to the device: 10⁹ bytes a second by its own events, and the call's seconds.

    The best of some copies, after one that counts for nothing.
    """
    rates, calls = [], []
    for _ in range(1 + _COPIES):
        begin, end = device.timing_event(), device.timing_event()
        stream: Any = device.current_stream()
        stream.record_event(begin)
        started = time.perf_counter()
        there = device.to_device(source, non_blocking=True)
        calls.append(time.perf_counter() - started)
        stream.record_event(end)
        end.synchronize()
        rates.append(source.nbytes / (begin.elapsed_time(end) / 1e3) / 1e9)
        del there
    return max(rates[1:]), min(calls[1:])


def timing_events(device: Device) -> Check:
    """Two events tell the time between them, as the host's clock does."""
    batch = device.to_device(torch.ones(16))
    step(device, batch, _STEP_S)  # what is only done once
    device.synchronize()
    begin, end = device.timing_event(), device.timing_event()
    stream: Any = device.current_stream()
    started = time.perf_counter()
    stream.record_event(begin)
    step(device, batch, _STEP_S)
    stream.record_event(end)
    device.synchronize()
    host, told = time.perf_counter() - started, begin.elapsed_time(end) / 1e3
    return Check(
        "timing events",
        f"{told * 1e3:.2f} ms by the events, {host * 1e3:.2f} ms by the host's clock",
        "no more than the host's, and more than half of it",
        host / 2 < told <= host + _CLOCK_S,
        {"events_seconds": told, "host_seconds": host},
    )


def traced_lanes(device: Device, amounts: Amounts) -> Check:
    """A trace has every copy and step of an epoch, at times that can be true."""
    size, *shape = amounts.large
    loader = labkit.DataLoader(Numbered(_EPOCH, size, tuple(shape)), size, num_workers=1)
    started = time.monotonic()
    with labkit.trace() as trace:
        for batch in labkit.Preloader(loader, device):
            step(device, batch, amounts.step_s)
        device.synchronize()
    ended = time.monotonic()
    spans = [span for span in trace.spans if span.layer in ("copy", "step") and "(" in span.lane]
    counts = {layer: sum(s.layer == layer for s in spans) for layer in ("copy", "step")}
    early, late = started - _CLOCK_S, ended + _CLOCK_S
    off = sum(not early <= s.start <= s.end <= late for s in spans)
    return Check(
        "lanes of a trace",
        f"{counts['copy']} copies and {counts['step']} steps of {_EPOCH}, {off} of them at a time "
        "that cannot be",
        f"{_EPOCH} copies, {_EPOCH} steps, 0",
        counts == {"copy": _EPOCH, "step": _EPOCH} and off == 0,
        {"counts": counts, "off": off},
    )


def after_a_refusal(device: Device) -> Check:
    """Memory that is locked already is refused, and the next kernel hears nothing of that."""
    segment = Segment.create(_SEGMENT_BYTES)
    memory = segment.exporter(0, _SEGMENT_BYTES)
    address = torch.frombuffer(memory, dtype=torch.uint8).data_ptr()
    first = segment.lock_pages(device)
    second = device.lock_pages(address, _SEGMENT_BYTES)
    told = _error_of_a_step(device)
    device.unlock_pages(address + (1 << 20))  # never locked from there
    told = told or _error_of_a_step(device)
    segment.close()
    return Check(
        "after a refusal",
        f"lock_pages said {first}, then {second}; the next step {told or 'went well'}",
        "True, then False; went well",
        first and not second and not told,
        {"first": first, "second": second, "error": told},
    )


def _error_of_a_step(device: Device) -> str:
    try:
        step(device, device.to_device(torch.ones(16)), 1e-4)
        device.synchronize()
    except RuntimeError as error:
        return f"raised {str(error).splitlines()[0]}"
    return ""
