"""What it costs to touch memory for the first time, against the copy that is to be made.

Only the copying, or touching, is timed; that the memory is made before and given back after is not,
though a loader pays for that, too. What is "used before" is not what was written last: its turn
comes again only when `_CACHE_BYTES` were written, so the caches have lost it.

Before it: `measuring`, and `labkit.sharing.Segment`, whose memory it is. After it:
`panels.first_touch`.
"""

from __future__ import annotations

import functools
import itertools
import mmap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from labkit.lab.doctor import sizes
from labkit.lab.experiments.measuring import Progress, measure
from labkit.lab.results import Result
from labkit.sharing import Segment

__all__ = ["WAYS", "first_touch"]

WAYS: dict[str, dict[str, Any]] = {
    "copy into a segment used before": {"make": "used before", "copies": True},
    "copy into a fresh segment": {"make": "fresh shared", "copies": True},
    "copy into fresh private memory": {"make": "fresh private", "copies": True},
    "touch each page of a fresh segment": {"make": "fresh shared", "copies": False},
}
"""By label: what is measured. A segment is shared memory; touching writes one byte of a page."""

_SECONDS = 15.0  # for all rounds
_TIMED_SECONDS = 2.5  # of those
_CACHE_BYTES = 128 * 2**20  # well over what most last-level caches have


def first_touch(
    batch_bytes: int | None = None,
    *,
    repeats: int | None = None,
    seconds: float = _SECONDS,
    progress: Progress | None = None,
    so_far: Callable[[Result], None] | None = None,
    cancel: threading.Event | None = None,
) -> Result:
    """Compare `WAYS` for so many bytes, in this process and in one thread.

    Args:
        batch_bytes: how much memory; None for this machine's batch.
        repeats: of each; None for as many as suit this machine.
        seconds, progress, so_far, cancel: as in `labkit.lab.experiments.measure`.

    Raises:
        ValueError: fewer bytes than one.
        Cancelled, TookTooLong: as `measure`.
    """
    nbytes = sizes().batch_bytes if batch_bytes is None else batch_bytes
    if nbytes < 1:
        raise ValueError(f"batch_bytes is 1 or more, but got {batch_bytes!r}")
    rounds = repeats or sizes().repeats

    def told(result: Result) -> Result:
        return replace(result, settings={}, common={"batch_bytes": nbytes})

    result = measure(
        WAYS,
        _touch_ms,
        question="What does the first touch cost beside the copy?",
        quantity="time a batch",
        unit="ms",
        common={"nbytes": nbytes, "seconds": _TIMED_SECONDS / (rounds * len(WAYS))},
        repeats=rounds,
        seconds=seconds,
        progress=progress,
        so_far=lambda result: so_far(told(result)) if so_far is not None else None,
        cancel=cancel,
    )
    return told(result)


def _touch_ms(make: str, copies: bool, nbytes: int, seconds: float) -> float:
    """Milliseconds for the whole of the memory once, over about `seconds`."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in a worker
    try:
        return _timed(make, copies, nbytes, seconds)
    finally:
        torch.set_num_threads(threads)


def _timed(make: str, copies: bool, nbytes: int, seconds: float) -> float:
    source = torch.ones(nbytes, dtype=torch.uint8)
    memories = _MEMORIES[make](nbytes)
    took, times, began = 0.0, 0, time.perf_counter()
    while times < 3 or time.perf_counter() - began < seconds:
        memory = next(memories)
        a_byte_a_page = memory[:: mmap.PAGESIZE]
        started = time.perf_counter()
        if copies:
            memory.copy_(source)
        else:
            a_byte_a_page.fill_(1)
        took += time.perf_counter() - started
        times += 1
        del memory, a_byte_a_page  # its pages go back
    return took / times * 1e3


def _fresh(create: Callable[[int], Segment], nbytes: int) -> Iterator[torch.Tensor]:
    while True:
        yield _memory(create, nbytes)


def _used_before(nbytes: int) -> Iterator[torch.Tensor]:
    pages = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    count = -(-_CACHE_BYTES // pages)
    segment = _memory(Segment.create, count * pages).fill_(1)
    for place in itertools.cycle(range(count)):
        yield segment[place * pages :][:nbytes]


_MEMORIES: dict[str, Callable[[int], Iterator[torch.Tensor]]] = {
    "used before": _used_before,
    "fresh shared": functools.partial(_fresh, Segment.create),
    "fresh private": functools.partial(_fresh, Segment.private),
}


def _memory(create: Callable[[int], Segment], nbytes: int) -> torch.Tensor:
    segment = create(nbytes)
    segment.close()  # its mapping lives as long as the tensor
    return torch.frombuffer(segment.exporter(0, nbytes), dtype=torch.uint8)
