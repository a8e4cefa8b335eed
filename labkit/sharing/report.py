"""What the arenas hold in this process: for a look inside, and for whoever hunts a leak."""

from __future__ import annotations

import ctypes
import time
import weakref
from dataclasses import dataclass, field

from labkit.sharing.arena import Arena, SlotKey, SlotReport
from labkit.sharing.arena_strategy import ArenaReceiver, live_receivers
from labkit.sharing.segment import Segment

__all__ = ["HeldSlot", "SharingReport", "WorkerReport", "private_arena", "report"]


@dataclass(frozen=True)
class HeldSlot:
    """A slot that some view in this process keeps from being used again."""

    nbytes: int
    held_seconds: float  #: since it was received
    key: SlotKey  #: (number of its segment, its first byte in it)
    address: int  #: where this process sees its first byte


@dataclass(frozen=True)
class WorkerReport:
    """What this process has of one worker's arena."""

    worker: str
    segment_bytes: dict[int, int]  #: of each segment, by its number; untouched pages take no memory
    held: list[HeldSlot]  #: oldest first
    returning: list[SlotKey]  #: seen here no more; the worker is told with its next task
    refused_bytes: int = 0  #: of segments that were to be page-locked, and the system refused

    def __str__(self) -> str:
        text = (
            f"{self.worker}: {_count(len(self.segment_bytes), 'segment')}, "
            f"{_megabytes(self.mapped_bytes)} mapped, {_count(len(self.held), 'slot')} held with "
            f"{_megabytes(self.held_bytes)}"
        )
        if self.held:
            text += f", the oldest for {self.held[0].held_seconds:.1f} s"
        if self.refused_bytes:
            text += (
                f"; page-locking was refused for {_megabytes(self.refused_bytes)}, whose batches "
                "are copied into pinned memory instead"
            )
        return text

    @property
    def mapped_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(self.segment_bytes.values())

    @property
    def held_bytes(self) -> int:
        """Bytes of all slots that are held."""
        return sum(slot.nbytes for slot in self.held)


@dataclass(frozen=True)
class SharingReport:
    """The state of all arenas that this process can see; `print` it."""

    workers: list[WorkerReport] = field(default_factory=list)
    own: list[SlotReport] = field(default_factory=list)  #: of loaders with `num_workers=0`

    @property
    def held_bytes(self) -> int:
        """Bytes that views in this process keep from being used again."""
        own = sum(slots.building * slots.slot_bytes for slots in self.own)
        return own + sum(worker.held_bytes for worker in self.workers)

    def __str__(self) -> str:
        lines = [str(worker) for worker in self.workers]
        lines += [
            f"this process: {slots.slots} slots of {_megabytes(slots.slot_bytes)}, "
            f"{slots.building} held, {slots.free} free, {slots.warm} in memory"
            for slots in self.own
        ]
        return "\n".join(lines) or "no arena is in use in this process"


def report() -> SharingReport:
    """What the arenas hold now, seen from this process.

    A batch that is not dropped shows up as a slot whose `held_seconds` grow. What a worker has free
    or is building, only the worker knows.
    """
    workers = [
        WorkerReport(
            worker=receiver.worker,
            segment_bytes=receiver.segment_bytes,
            held=_held(receiver),
            returning=receiver.returning(),
            refused_bytes=receiver.refused_bytes,
        )
        for receiver in live_receivers()
    ]
    workers.sort(key=lambda worker: worker.worker)
    return SharingReport(workers, [slots for arena in list(_own) for slots in arena.report()])


def _held(receiver: ArenaReceiver) -> list[HeldSlot]:
    now, held = time.monotonic(), []
    for ref in sorted(receiver.held(), key=lambda ref: ref.arrived):
        memory = ref()
        if memory is not None:  # it has not died meanwhile, on another thread
            address = ctypes.addressof(memory)
            held.append(HeldSlot(ref.nbytes, now - ref.arrived, ref.key, address))
    return held


def private_arena() -> Arena:
    """An arena of this process's own memory, for a loader without workers."""
    arena = Arena(Segment.private)
    _own.add(arena)
    return arena


_own: weakref.WeakSet[Arena] = weakref.WeakSet()


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" + ("" if number == 1 else "s")


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:,.1f} MB"
