"""What stands in the queue of a simulated stream: work, marks (recorded events) and waits.

Each knows when a stream can go on behind it. Before it: `streams.py`, which makes them. After it:
`timeline.py`, which passes them by, and whose engines do the work.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from labkit.simulated.streams import SimulatedStream
    from labkit.simulated.timeline import Timeline

__all__ = ["Failure", "Item", "Mark", "Wait", "Work"]


class Item(Protocol):
    """What stands in a stream's queue."""

    issued: float
    number: int

    def pass_by(self, stream: SimulatedStream, timeline: Timeline) -> bool:
        """Whether the stream can go on behind it; called whenever that may have changed."""


@dataclass(eq=False)
class Work:
    """An operation: `seconds` of an engine, and what it does to memory near their end."""

    engine: str
    kind: str
    seconds: float
    action: Callable[[], object]
    name: str
    stream: SimulatedStream
    nbytes: int = 0
    issued: float = 0.0
    number: int = 0
    is_handed_on: bool = False
    ready: float = 0.0  #: when an engine can begin
    is_done: bool = False

    @property
    def size(self) -> int:
        """What the time that its action takes depends on."""
        return self.nbytes or 1

    def pass_by(self, stream: SimulatedStream, timeline: Timeline) -> bool:
        if not self.is_handed_on:
            self.ready = max(self.issued, stream.clock)
            engine = timeline.engines[self.engine]
            self.is_handed_on = True
            heapq.heappush(engine.ready, (self.number, self))
            engine.wake.notify_all()
        return self.is_done


@dataclass(eq=False)
class Mark:
    """A point in a stream: what an event stands for once it is recorded."""

    issued: float = 0.0
    number: int = 0
    passed_at: float | None = None
    failure: Failure | None = None
    waiting: list[SimulatedStream] = field(default_factory=list)

    def pass_by(self, stream: SimulatedStream, timeline: Timeline) -> bool:
        self.passed_at = stream.clock = max(stream.clock, self.issued)
        self.failure = stream.failure
        stream.passed_marks.append(self)
        return True


@dataclass(eq=False)
class Wait:
    """A stream's wait for a mark of another, whose failure then is its own too."""

    mark: Mark
    issued: float = 0.0
    number: int = 0

    def pass_by(self, stream: SimulatedStream, timeline: Timeline) -> bool:
        if self.mark.passed_at is None:
            if stream not in self.mark.waiting:
                self.mark.waiting.append(stream)
            return False
        stream.clock = max(stream.clock, self.mark.passed_at)
        stream.failure = self.mark.failure or stream.failure
        return True


class Failure:
    """What went wrong on a stream, to be told once, to the first who waits for it."""

    def __init__(self, what: str, error: BaseException) -> None:
        self._what, self._error = what, error
        self.is_reported = False

    def report(self) -> None:
        """Raise it, if nobody was told before."""
        if not self.is_reported:
            self.is_reported = True
            raise RuntimeError(
                f"On the simulated device, {self._what} failed: {type(self._error).__name__}: "
                f"{self._error}. As on a real device, this is told to whoever waits next, "
                "not where the work was issued; the cause is above."
            ) from self._error
