"""Streams and events of the simulated device, with the methods of torch.Stream and torch.Event.

A stream's work is done in the order in which it was issued. Between streams there is no order but
that of events: recorded in one, waited for in another.

Before it: `device.py` (of this package). After it: `timeline.py`, which does the work.
"""

from __future__ import annotations

from collections import deque

from labkit.simulated.items import Failure, Item, Mark, Wait
from labkit.simulated.timeline import Timeline

__all__ = ["SimulatedEvent", "SimulatedStream"]


class SimulatedStream:
    """A queue of work for the simulated device. Made by `SimulatedDevice.new_stream()`.

    Attributes:
        issued: how many items were put into it.
        dropped: how many of them the device's end has kept from being done.
        clock: until when the device has come with it, in seconds on `time.monotonic()`.
        failure: the last one of its own or of a stream that it waited for.
    """

    def __init__(self, timeline: Timeline, name: str) -> None:
        self.name = name
        self.pending: deque[Item] = deque()
        self.passed_marks: list[Mark] = []
        self.issued = self.dropped = 0
        self.clock = 0.0
        self.failure: Failure | None = None
        self._timeline = timeline

    def __repr__(self) -> str:
        return f"<simulated stream {self.name!r}>"

    @property
    def completed(self) -> int:
        """How many items are done. Not kept as a count, which an interrupt could leave wrong."""
        return self.issued - len(self.pending) - self.dropped

    def wait_event(self, event: SimulatedEvent) -> None:
        """Let what is issued from now on wait for the event, as it was last recorded."""
        if event.mark is not None:  # as in PyTorch: what was never recorded is waited for by nobody
            self._timeline.issue(self, Wait(event.mark))

    def wait_stream(self, stream: SimulatedStream) -> None:
        """Let what is issued from now on wait for all that `stream` was issued until now."""
        self.wait_event(stream.record_event())

    def record_event(self, event: SimulatedEvent | None = None) -> SimulatedEvent:
        """An event (the given one, or a new one) after all that was issued until now."""
        event = SimulatedEvent(self._timeline) if event is None else event
        mark = Mark()
        self._timeline.issue(self, mark)
        event.mark = mark
        return event

    def synchronize(self) -> None:
        """Wait until all that was issued until now is done.

        Raises:
            RuntimeError: some of it failed, or the device was closed.
        """
        target = self.issued
        self._timeline.wait_until(lambda: self.completed >= target, f"stream {self.name!r}")
        if self.failure is not None:
            self.failure.report()

    def query(self) -> bool:
        """Whether all that was issued is done."""
        self._timeline.check()
        return self.completed >= self.issued


class SimulatedEvent:
    """A point in a stream's work. Made by `SimulatedStream.record_event()`.

    Attributes:
        mark: that point, or None before it is recorded.
    """

    def __init__(self, timeline: Timeline) -> None:
        self.mark: Mark | None = None
        self._timeline = timeline

    def query(self) -> bool:
        """Whether the stream has passed it."""
        self._timeline.check()
        return self.mark is None or self.mark.passed_at is not None

    def synchronize(self) -> None:
        """Wait until the stream has passed it.

        Raises:
            RuntimeError: what stands before it failed, or the device was closed.
        """
        mark = self.mark
        if mark is not None:
            self._timeline.wait_until(lambda: mark.passed_at is not None, "an event")
            if mark.failure is not None:
                mark.failure.report()

    def elapsed_time(self, end_event: SimulatedEvent) -> float:
        """Milliseconds of the device's time from this event to another; both must have passed."""
        ours, theirs = self.mark, end_event.mark
        if ours is None or theirs is None or ours.passed_at is None or theirs.passed_at is None:
            raise RuntimeError("Both events must be recorded and passed: synchronize() first.")
        return (theirs.passed_at - ours.passed_at) * 1000
