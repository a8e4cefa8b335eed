"""What a thread asked of a device, when, and when the device did it: both on one clock.

An event before and an event after each piece of work tell the device's times. One event whose time
the host knows, too, joins the two clocks: the one of several that the host awaited the shortest.

Before it: `labkit.device`. After it: the experiments, and `drawing`. Mirrors, for work that is
issued by hand, `labkit.device_lanes`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from labkit.device import Device
from labkit.simulated.timeline import COMPUTE, TO_DEVICE, TO_HOST, Operation

__all__ = ["Call", "WorkLog"]

Kind = Literal["copy", "copy back", "step"]

_TRIES = 10  # a busy machine may stop this thread in the middle of some

_ENGINES: dict[Kind, str] = {"copy": TO_DEVICE, "copy back": TO_HOST, "step": COMPUTE}


@dataclass(frozen=True)
class Call:
    """A call that issued work, or waited for it.

    Attributes:
        kind: "copy", "copy back" or "step"; "wait".
        name: of the work.
        start, end: seconds on `time.monotonic()`.
    """

    kind: str
    name: str
    start: float
    end: float


class WorkLog:
    """Notes the calls of one thread, and the work that they issued.

    Args:
        device: must have nothing to do yet.

    Attributes:
        calls: those that have returned.
    """

    def __init__(self, device: Device) -> None:
        self.calls: list[Call] = []
        self._device = device
        self._noted: list[tuple[Kind, str, int, str, Any, Any]] = []
        self._base, self._at = min(
            (_known_to_both(device) for _ in range(_TRIES)), key=lambda known: known[2]
        )[:2]

    @contextmanager
    def issuing(
        self, kind: Kind, name: str, stream_name: str = "default stream", nbytes: int = 0
    ) -> Iterator[None]:
        """Around one call that issues one piece of work to the current stream."""
        stream: Any = self._device.current_stream()
        begin = stream.record_event(self._device.timing_event())
        started = time.monotonic()
        yield
        self.calls.append(Call(kind, name, started, time.monotonic()))
        end = stream.record_event(self._device.timing_event())
        self._noted.append((kind, name, nbytes, stream_name, begin, end))

    @contextmanager
    def waiting(self, name: str) -> Iterator[None]:
        """Around a call that waits."""
        started = time.monotonic()
        yield
        self.calls.append(Call("wait", name, started, time.monotonic()))

    def operations(self) -> list[Operation]:
        """What the device did, in the order of issue; waits until all of it is done."""
        return [
            Operation(
                _ENGINES[kind], kind, self._time(begin), self._time(end), name, nbytes, stream_name
            )
            for kind, name, nbytes, stream_name, begin, end in self._noted
        ]

    def _time(self, event: Any) -> float:
        event.synchronize()
        return self._at + float(self._base.elapsed_time(event)) / 1e3


def _known_to_both(device: Device) -> tuple[Any, float, float]:
    """An event, its time on `time.monotonic()`, and by how much this time may be too late."""
    asked = time.monotonic()
    event: Any = device.current_stream().record_event(device.timing_event())
    event.synchronize()
    at = time.monotonic()
    return event, at, at - asked
