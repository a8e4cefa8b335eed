"""What the main process knows of each slot of the arenas that it looks at.

A worker owns its arena; the main process sees the slots that it was sent. So what it once saw is
remembered here: of a slot that it holds no more it knows only that the worker may use it.

Before it: `labkit.sharing.report`. After it: `drawing`, and the package.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from labkit.sharing import report
from labkit.sharing.arena import SlotKey

__all__ = ["STATES", "Known", "Segment", "Slot", "State", "Worker"]

State = Literal["in hand", "kept", "arrived", "going back", "given back", "never seen"]

STATES: dict[State, str] = {
    "in hand": "the batch that the loop has now",
    "kept": "a batch that was kept",
    "arrived": "a batch that has come and was not taken yet",
    "going back": "dropped here; the worker is told with its next task",
    "given back": "the worker's: free, or being filled",
    "never seen": "not yet used for a batch that came here",
}
"""Who has a slot, and what that means."""


@dataclass(frozen=True)
class Slot:
    """A slot of an arena, as seen from the main process.

    Attributes:
        offset: its first byte in its segment.
        state: who has it.
        batches: the numbers of the batches that lie in it.
    """

    offset: int
    state: State
    batches: tuple[int, ...] = ()


@dataclass(frozen=True)
class Segment:
    """A segment with slots of one size, those that were never seen included."""

    number: int
    nbytes: int
    slot_bytes: int
    slots: tuple[Slot, ...]


@dataclass(frozen=True)
class Worker:
    """One worker's arena."""

    number: int
    segments: tuple[Segment, ...]

    def count(self, *states: State) -> int:
        """How many of its slots are in one of these states."""
        return sum(slot.state in states for each in self.segments for slot in each.slots)


class Known:
    """Remembers what was seen of some workers' arenas.

    Args:
        names: of these workers, as in the report.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        # By worker: the bytes of each slot that was ever seen.
        self._slot_bytes: dict[str, dict[SlotKey, int]] = {name: {} for name in names}

    def look(self, in_hand: Mapping[int, int], kept: Mapping[int, int]) -> list[Worker]:
        """The arenas now.

        Args:
            in_hand, kept: batch numbers by the address of their memory.
        """
        workers: list[Worker] = []
        for worker in report().workers:
            if worker.worker not in self._slot_bytes:
                continue
            seen = self._slot_bytes[worker.worker]
            seen |= {slot.key: slot.nbytes for slot in worker.held}
            states = dict.fromkeys(seen, Slot(0, "given back"))
            states |= {key: Slot(0, "going back") for key in worker.returning if key in seen}
            for slot in worker.held:
                span = range(slot.address, slot.address + slot.nbytes)
                states[slot.key] = _held(span, in_hand, kept)
            segments = [
                _segment(number, nbytes, seen, states)
                for number, nbytes in sorted(worker.segment_bytes.items())
                if any(key[0] == number for key in seen)
            ]
            workers.append(Worker(len(workers), tuple(segments)))
        return workers


def _held(span: range, in_hand: Mapping[int, int], kept: Mapping[int, int]) -> Slot:
    mine = tuple(number for address, number in in_hand.items() if address in span)
    others = tuple(number for address, number in kept.items() if address in span)
    if others:
        return Slot(0, "kept", others)
    return Slot(0, "in hand", mine) if mine else Slot(0, "arrived")


def _segment(
    number: int, nbytes: int, seen: Mapping[SlotKey, int], states: Mapping[SlotKey, Slot]
) -> Segment:
    slot_bytes = next(size for key, size in seen.items() if key[0] == number)
    slots = []
    for offset in range(0, nbytes - slot_bytes + 1, slot_bytes):
        state = states.get((number, offset), Slot(offset, "never seen"))
        slots.append(Slot(offset, state.state, state.batches))
    return Segment(number, nbytes, slot_bytes, tuple(slots))
