"""Copies and steps of a few batches, on one stream or on two: what overlaps, and what is read.

The loop issues the copy of a batch before the step on the one before it, as prefetchers by hand
do. With two streams it needs an event, or a step reads before its batch is there.

Before it: `work_log`; `steps`, the work. After it: `two_streams`, which compares; `drawing`, which
shows a run; notebook 08.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import torch

from labkit.device import Device
from labkit.lab import need
from labkit.lab.explain.wording import duration
from labkit.lab.on_device.place import here
from labkit.lab.on_device.slow_motion import copy_stream, used
from labkit.lab.on_device.steps import step
from labkit.lab.on_device.work_log import Call, WorkLog
from labkit.simulated import Operation

__all__ = ["BATCH_BYTES", "STEP_MS", "Loop", "Run", "run"]

BATCH_BYTES = 16_000_000
STEP_MS = 0.1
_values = itertools.count(1)  # no memory holds by chance what is expected of it


@dataclass(frozen=True)
class Run:
    """One run of the loop.

    Attributes:
        machine: with its device (`labkit.lab.on_device.here`).
        calls: of the main thread.
        operations: of the device.
        read, expected: by batch, what its step read, and what was in the batch.
        title: what it was told to do.
    """

    machine: dict[str, Any]
    calls: list[Call]
    operations: list[Operation]
    read: list[float]
    expected: list[float]
    title: str

    @property
    def wrong(self) -> list[int]:
        """The batches whose step read something else."""
        pairs = zip(self.read, self.expected, strict=True)
        return [batch for batch, (read, expected) in enumerate(pairs) if read != expected]

    @property
    def seconds(self) -> float:
        """From the first call to the end of the last operation."""
        return max(o.end for o in self.operations) - self.calls[0].start

    @property
    def overlap(self) -> float:
        """Seconds in which a copy and a step were under way at once."""
        copies = [o for o in self.operations if o.kind == "copy"]
        steps = [o for o in self.operations if o.kind == "step"]
        pairs = itertools.product(copies, steps)
        return sum(max(0.0, min(a.end, b.end) - max(a.start, b.start)) for a, b in pairs)

    @property
    def overlaps(self) -> bool:
        """Whether copies and steps shared a good part of the time that they could share."""
        work = [
            sum(o.end - o.start for o in self.operations if o.kind == kind)
            for kind in ("copy", "step")
        ]
        return self.overlap > 0.3 * min(work)

    @property
    def picture(self) -> Any:
        """The timeline, a `labkit.lab.plots.pictures.Picture`."""
        return need("labkit.lab.on_device.drawing").draw(
            self.operations,
            self.calls,
            title=self.title,
            device=self.machine["device"],
            wrong=[f"step {batch}" for batch in self.wrong],
            sentence=self.sentence,
        )

    @property
    def sentence(self) -> str:
        """What happened, in words."""
        count, wrong = len(self.expected), len(self.wrong)
        read = f"{wrong} of {count} steps read a wrong value" if wrong else "all steps read right"
        beside = "were never under way at once"
        if self.overlap:
            beside = f"were under way at once for {duration(self.overlap)} of it"
        simulated = "Simulated: " if self.machine.get("simulated") else ""
        return (
            f"{simulated}{count} copies and {count} steps took {duration(self.seconds)}; a copy "
            f"and a step {beside}; {read}."
        )


def run(
    device: Device | None = None,
    *,
    streams: int = 2,
    pinned: bool = True,
    non_blocking: bool = True,
    events: bool = True,
    reads_each: bool = True,
    ahead: int = 1,
    batches: int = 4,
    batch_bytes: int = BATCH_BYTES,
    step_ms: float = STEP_MS,
) -> Run:
    """Copy some batches, and run a step on each.

    Args:
        device: None for the accelerator, or a simulated one in slow motion.
        streams: 1: copies and steps on the current stream; 2: copies on one of their own.
        pinned: whether the batches lie in page-locked memory.
        non_blocking: whether the copies are told so.
        events: whether a step waits for its batch's copy.
        reads_each: whether the host waits for each step's result, as for a loss, before it goes on.
        ahead: how many copies are issued before the step that does not need them yet; 0 or more.
        batches: how many.
        batch_bytes: of each.
        step_ms: of each step, about (times the slow motion).

    Raises:
        ValueError: a number is out of its range.
    """
    if streams not in (1, 2) or min(batches, batch_bytes) < 1 or min(ahead, step_ms) < 0:
        raise ValueError(
            "streams is 1 or 2, batches and batch_bytes are 1 or more, ahead and step_ms 0 or "
            f"more, but got {streams!r}, {batches!r}, {batch_bytes!r}, {ahead!r} and {step_ms!r}"
        )
    with used(device) as there:
        host, expected = _batches(there, pinned, batches, batch_bytes)
        loop = Loop(there, streams, non_blocking, events, reads_each, ahead, step_ms / 1e3)
        loop.warm_up(there.pin(torch.zeros_like(host[0])), batches)
        read = loop.run(host)
        title = _title(streams, pinned, non_blocking, events, ahead)
        return Run(here(there), loop.log.calls, loop.log.operations(), read, expected, title)


def _title(streams: int, pinned: bool, non_blocking: bool, events: bool, ahead: int) -> str:
    words = [
        "one stream" if streams == 1 else "two streams",
        "pinned memory" if pinned else "pageable memory",
        "" if non_blocking else "blocking copies",
        "" if events else "no events",
        "" if ahead else "no copy ahead",
    ]
    return ", ".join(filter(None, words)).capitalize()


def _batches(
    device: Device, pinned: bool, count: int, nbytes: int
) -> tuple[list[torch.Tensor], list[float]]:
    expected = [float(next(_values)) for _ in range(count)]
    length = max(1, nbytes // 4)
    host = [torch.full((length,), value) for value in expected]
    return [device.pin(batch) for batch in host] if pinned else host, expected


class Loop:
    """The loop itself; it has nothing but what it is told to have."""

    def __init__(
        self,
        device: Device,
        streams: int,
        non_blocking: bool,
        events: bool,
        reads_each: bool,
        ahead: int,
        step_seconds: float,
    ) -> None:
        self._device, self._non_blocking, self._events = device, non_blocking, events
        self._reads_each, self._ahead, self._step_seconds = reads_each, ahead, step_seconds
        self._compute: Any = device.current_stream()
        self._copying: Any = copy_stream(device) if streams == 2 else self._compute
        self._copying_name = "copy stream" if streams == 2 else "default stream"

    def warm_up(self, pinned: torch.Tensor, batches: int) -> None:
        """Let there be device memory for so many batches, where copies take it, with other values
        than theirs.
        """
        with self._device.stream(self._copying):
            there = [self._device.to_device(pinned) for _ in range(batches)]
        self._device.synchronize()
        step(self._device, there[0], self._step_seconds)
        self._device.synchronize()

    def run(self, host: list[torch.Tensor]) -> list[float]:
        """What each step read."""
        self.log = WorkLog(self._device)
        there: list[tuple[Any, Any]] = []
        read = []
        for i in range(len(host)):
            while len(there) < min(i + 1 + self._ahead, len(host)):
                there.append(self.copy(len(there), host[len(there)]))
            tensor, ready = there[i]
            if self._events:
                self._compute.wait_event(ready)
            with self.log.issuing("step", f"step {i}"):
                result = step(self._device, tensor, self._step_seconds)
            if self._reads_each:
                with self.log.waiting(f"step {i}"):
                    result.item()
            read.append(result)
        self._device.synchronize()
        return [float(value.item()) for value in read]  # `there` kept all batches until now

    def copy(self, i: int, batch: torch.Tensor) -> tuple[Any, Any]:
        """The batch on the device, and an event behind its copy."""
        with self._device.stream(self._copying):
            with self.log.issuing("copy", f"copy {i}", self._copying_name, batch.nbytes):
                tensor = self._device.to_device(batch, self._non_blocking)
            return tensor, self._copying.record_event()
