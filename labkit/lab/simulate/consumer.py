"""What becomes of a batch that was given, simulated: it is copied to the device, and stepped with.

Without a Preloader the training loop copies, steps and only then asks for the next. With one
(`labkit.Preloader`) its thread asks on while copies and steps go their way, until as many batches
are on the device as may be.

Before it: `pipeline`, which gives batches. After it: `predicting`, which counts the steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from labkit.lab.simulate.settings import Settings
from labkit.lab.simulate.shared_cores import SharedCores

__all__ = ["QUEUE_SIZE", "Consumer", "Note"]

QUEUE_SIZE = 2
"""Of a Preloader: batches in its queue; one more may wait for room in it."""


class Note(Protocol):
    """Writes a span that ends now."""

    def __call__(self, lane: str, layer: str, start: float, batch: int, worker: int = -1) -> None:
        """Lane, layer, when it began, batch, worker (−1: none)."""


class Consumer:
    """The training loop, the link and the device, or a Preloader between them.

    Args:
        machine: whose time it is.
        settings: the link's speed, the step, whether there is a Preloader.
        batch_bytes: that a copy moves.
        note: where spans go.
        ask: called when the next batch is wanted.

    Attributes:
        stepped_at: when the device was done with each batch.
    """

    def __init__(
        self,
        machine: SharedCores,
        settings: Settings,
        batch_bytes: float,
        note: Note,
        ask: Callable[[], None],
    ) -> None:
        self.stepped_at: list[float] = []
        self._machine = machine
        self._settings = settings
        link = settings.link_bytes_per_second
        self._copy_seconds = 0.0 if link is None else batch_bytes / link
        self._note = note
        self._ask = ask
        self._link_free_at = 0.0
        self._copied: deque[int] = deque()  # what the device has and no step has begun to use
        self._ahead = 0  # those, and those on their way there
        self._stepping = False
        self._is_full = False

    def take(self, batch: int) -> None:
        """Here is a batch."""
        if self._settings.preloader:
            self._ahead += 1
            self._copy(batch, lambda: self._have_copied(batch))
            self._is_full = self._ahead > QUEUE_SIZE
            if not self._is_full:
                self._ask()
            return
        start = self._machine.now

        def stepped() -> None:
            self._note("main", "consumer", start, batch)
            self._ask()

        self._copy(batch, lambda: self._step(batch, stepped))

    def _copy(self, batch: int, then: Callable[[], None]) -> None:
        if not self._copy_seconds:
            then()
            return
        start = max(self._machine.now, self._link_free_at)
        self._link_free_at = start + self._copy_seconds

        def copied() -> None:
            self._note("copies", "copy", start, batch)
            then()

        self._machine.after(self._link_free_at - self._machine.now, copied)

    def _have_copied(self, batch: int) -> None:
        self._copied.append(batch)
        self._step_next()

    def _step_next(self) -> None:
        if self._stepping or not self._copied:
            return
        self._stepping = True
        self._ahead -= 1
        self._step(self._copied.popleft(), self._have_stepped)
        if self._is_full:
            self._is_full = False
            self._ask()

    def _have_stepped(self) -> None:
        self._stepping = False
        self._step_next()

    def _step(self, batch: int, then: Callable[[], None]) -> None:
        start = self._machine.now

        def stepped() -> None:
            self._note("steps", "step", start, batch)
            self.stepped_at.append(self._machine.now)
            then()

        self._machine.after(self._settings.step_seconds, stepped)
