"""The arena drawn live: its segments, their slots, and who holds them while batches are kept.

    arena = ArenaView()
    arena.take()
    arena.keep()
    arena

In a notebook it has buttons that do the same. Before it: `slots`, what is known; `drawing`, the
figure; `buttons`, the widgets. After it: notebook 06.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakSet

import torch

import labkit
from labkit.lab import need
from labkit.lab.arena_view.slots import Known, State, Worker
from labkit.lab.datasets import Payload
from labkit.lab.live import MimeBundle, live_or_stored
from labkit.sharing import report

__all__ = ["ArenaView"]

_ENDLESS = 1 << 30  # samples
_BATCH_SIZE = 8

_running: WeakSet[ArenaView] = WeakSet()


class ArenaView:
    """A loop over a loader with the strategy `arena`, taken step by step.

    Its workers run until `close`, until another view takes its first batch, or until this object is
    gone. A notebook keeps what it has shown, so a cell that is run again would else add workers.

    Args:
        num_workers: each has an arena of its own.
        batch_bytes: of each batch; of small ones several fit into the first segment.

    Attributes:
        in_hand: (number, batch) that the loop has now, or None.
        kept: those that were kept, the oldest first.
        said: what the latest step did.
        on_change: called after each step.
    """

    def __init__(self, num_workers: int = 1, batch_bytes: int = 64_000) -> None:
        sample_bytes = max(1, batch_bytes // _BATCH_SIZE)
        self._loader = labkit.DataLoader(
            Payload(_ENDLESS, sample_bytes),
            batch_size=_BATCH_SIZE,
            num_workers=num_workers,
            multiprocessing_context="fork",
            sharing_strategy="arena",
        )
        self.in_hand: tuple[int, torch.Tensor] | None = None
        self.kept: list[tuple[int, torch.Tensor]] = []
        self.said = "No batch was taken yet."
        self.on_change: list[Callable[[], None]] = []
        self._batches: Iterator[torch.Tensor] | None = None
        self._taken = 0
        self._known = Known()
        self._view: Any = None

    def take(self, batches: int = 1) -> None:
        """Take so many batches; each drops the one before it, unless that was kept."""
        if self._batches is None:
            for view in list(_running):
                view._end()  # what it shows stays
            _running.add(self)
            others = _names()
            self._batches = iter(self._loader)
            self._known = Known(_names() - others)
        for _ in range(batches):
            batch = next(self._batches)
            self.in_hand = self._taken, batch  # only now the one before is dropped, as in a loop
            self._taken += 1
            self.workers()  # so that each slot is seen
        self._say(f"Took batch {self._taken - 1}.")

    def keep(self) -> None:
        """Keep the batch in hand, as `kept.append(batch)` does.

        Raises:
            RuntimeError: there is none, or it is kept already.
        """
        if not self.can_keep:
            raise RuntimeError("there is no batch to keep: take one first")
        assert self.in_hand is not None
        self.kept.append(self.in_hand)
        self._say(f"Kept batch {self.in_hand[0]}.")

    def drop_oldest(self) -> None:
        """Drop the batch that was kept first.

        Raises:
            RuntimeError: none is kept.
        """
        if not self.kept:
            raise RuntimeError("no batch is kept: keep one first")
        number, _ = self.kept.pop(0)
        is_in_hand = self.in_hand is not None and number == self.in_hand[0]
        self._say(f"Dropped batch {number}.{' It is still in hand.' if is_in_hand else ''}")

    def drop_all(self) -> None:
        """Drop all that were kept, and the one in hand."""
        count = len({number for number, _ in [*self.kept, *filter(None, [self.in_hand])]})
        self.kept.clear()
        self.in_hand = None
        self._say(f"Dropped {count} batch{'' if count == 1 else 'es'}.")

    def close(self) -> None:
        """Drop all and end the workers; the next `take` starts others."""
        self._end()
        self._say("The workers have ended, and their arenas with them.")

    def _end(self) -> None:
        _running.discard(self)
        self.kept.clear()
        self.in_hand = None
        batches, self._batches = self._batches, None
        if batches is not None:
            batches.close()  # type: ignore[attr-defined]

    def _say(self, words: str) -> None:
        self.said = words
        for callback in self.on_change:
            callback()

    @property
    def can_keep(self) -> bool:
        """Whether there is a batch in hand that is not kept."""
        in_hand = self.in_hand
        return in_hand is not None and in_hand[0] not in [number for number, _ in self.kept]

    def workers(self) -> list[Worker]:
        """Each worker's arena, as this process sees it now."""
        if self._batches is None:
            return []
        in_hand = [self.in_hand] if self.in_hand is not None else []
        return self._known.look(
            {batch.data_ptr(): number for number, batch in in_hand},
            {batch.data_ptr(): number for number, batch in self.kept},
        )

    def count(self, *states: State) -> int:
        """How many slots are in one of these states, all workers together."""
        return sum(worker.count(*states) for worker in self.workers())

    def as_text(self) -> str:
        """All that the figure shows, in words."""
        return f"{self.said} {need('labkit.lab.arena_view.drawing').in_words(self.workers())}"

    def picture(self) -> Any:
        """The slots now, as a `labkit.lab.plots.pictures.Picture`."""
        return need("labkit.lab.arena_view.drawing").show(self.workers(), self.said)

    def __repr__(self) -> str:
        return "<ArenaView: .take(), .keep(), .drop_oldest(), .drop_all(); .as_text() tells>"

    def _repr_mimebundle_(self, **_: Any) -> MimeBundle:
        """The widgets for a live page, else the figure; the text is the same always."""
        return live_or_stored(repr(self), lambda: self.picture()._repr_mimebundle_(), self._buttons)

    def _buttons(self) -> Any:
        self._view = self._view or need("labkit.lab.arena_view.buttons").Buttons(self)
        return self._view.box


def _names() -> set[str]:
    return {worker.worker for worker in report().workers}
