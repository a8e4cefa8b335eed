"""The arena: slots in a few long-lived segments, recycled.

On fresh memory each page costs a fault and a zeroing when it is first touched, and on shared memory
once more in the reader; for a large batch that is most of its time. An arena keeps its segments and
uses their memory again, so that once it is warm a batch costs no fault, no mapping, no descriptor.

Ownership is plain. A process owns its arena's segments and the list of free slots. A slot goes out
with a batch; when the last view of it has died in the receiving process, it comes back. So a user
may keep or drop batches at will, and nobody ever sees a slot twice at once. If all slots are held,
the arena grows; what a burst has left idle is given back to the system.

The strategy `arena` runs it over shared memory, the collate of `num_workers=0` over private memory.
PyTorch has nothing like it.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from labkit.errors import SharedMemoryFull
from labkit.sharing.segment import Exporter, Segment

__all__ = ["Arena", "Slot", "SlotKey", "SlotReport", "slot_size"]

_ALIGNMENT = 64  # bytes: a cache line, and more than any element needs
_FIRST_SEGMENT_BYTES = 1 << 18  # small slots share one segment of that size
_DISCARD_BYTES = 1 << 16  # slots smaller than this keep their pages when they are idle
_SWEEP_EVERY = 256  # allocations


@functools.lru_cache(maxsize=1024)
def slot_size(nbytes: int) -> int:
    """The size class for `nbytes`: at most an eighth more, in eight steps an octave."""
    if nbytes <= _ALIGNMENT:
        return _ALIGNMENT
    step = max(_ALIGNMENT, 1 << ((nbytes - 1).bit_length() - 4))
    return -(-nbytes // step) * step


SlotKey = tuple[int, int]
"""(number of the segment in its arena, offset in it): what travels back when a slot is returned."""


class Slot:
    """A place in a segment. Free when no view of it lives here and none that was lent out.

    Attributes:
        lent: messages with it that have not come back.
        is_used_here: its exporter in this process is alive.
        is_warm: its pages have been touched since it was made or discarded.
    """

    __slots__ = ("is_used_here", "is_warm", "key", "lent", "nbytes", "offset", "segment")

    def __init__(self, key: SlotKey, segment: Segment, offset: int, nbytes: int) -> None:
        self.key = key
        self.segment = segment
        self.offset = offset
        self.nbytes = nbytes
        self.lent = 0
        self.is_used_here = False
        self.is_warm = False


class _SlotRef(weakref.ref[Any]):
    """A reference to a slot's exporter that remembers the slot."""

    __slots__ = ("address", "slot")
    slot: Slot
    address: int


class _SizeClass:
    """The slots of one size. They are made one by one when needed, out of the latest segment."""

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self.segment_id = -1
        self.next_offset = 0  # in that segment
        self.room = 0  # slots that can still be made in it
        self.free: list[Slot] = []  # the last one returned is used first: it is the warmest
        self.idle = 0  # how many at the bottom of `free` were not needed since the last sweep


@dataclass(frozen=True)
class SlotReport:
    """The slots of one size, for `labkit.sharing.report`."""

    slot_bytes: int
    slots: int
    building: int  #: in use in the process that owns them
    lent: int  #: with the receiver, or under way to it
    free: int
    warm: int  #: slots whose pages are in memory


class Arena:
    """Gives out memory and takes it again.

    Args:
        make_segment: nbytes → Segment, shared or private.
        limit_bytes: the slots in use never take more than that; None: as much as there is.
        keeps_pages: idle slots keep their pages, because another process has them page-locked.

    Threads may use it at the same time.
    """

    def __init__(
        self,
        make_segment: Callable[[int], Segment],
        limit_bytes: int | None = None,
        keeps_pages: bool = False,
    ) -> None:
        self._make_segment = make_segment
        self._limit_bytes = limit_bytes
        self._keeps_pages = keeps_pages
        self._classes: dict[int, _SizeClass] = {}
        self._segments: list[Segment] = []
        self._slots: dict[SlotKey, Slot] = {}
        self._used: dict[int, _SlotRef] = {}  # by address of the exporter
        # Exporters may die anywhere, also in the middle of the methods below: that is only noted.
        self._dead: deque[_SlotRef] = deque()
        self._lock = threading.Lock()
        self._in_use_bytes = 0
        self._allocations = 0
        _arenas.add(self)

    def allocate(self, nbytes: int) -> Exporter:
        """Memory of `slot_size(nbytes)` bytes, uninitialised; a free slot is taken again.

        Raises:
            SharedMemoryFull: the limit is met, or the system has no more.
        """
        size = slot_size(nbytes)
        with self._lock:
            if self._dead:
                self._collect()
            if self._limit_bytes is not None:
                self._check_limit(size, self._limit_bytes)
            size_class = self._classes.get(size)
            if size_class is None:
                size_class = self._classes[size] = _SizeClass()
            slot = size_class.free.pop() if size_class.free else self._new_slot(size, size_class)
            if len(size_class.free) < size_class.idle:
                size_class.idle = len(size_class.free)
            self._in_use_bytes += size
            self._allocations += 1
            if self._allocations % _SWEEP_EVERY == 0:
                self._sweep()
            return self._export(slot)

    def _export(self, slot: Slot) -> Exporter:
        memory = slot.segment.exporter(slot.offset, slot.nbytes)
        ref = _SlotRef(memory, self._dead.append)
        ref.slot = slot
        ref.address = address = ctypes.addressof(memory)
        self._used[address] = ref
        slot.is_used_here = slot.is_warm = True
        return memory

    def exporter_at(self, address: int) -> Exporter | None:
        """The living memory that begins at `address`, if it is from here."""
        ref = self._used.get(address)
        return ref() if ref is not None else None

    def lend(self, memory: Exporter) -> Slot | None:
        """Note that a message goes out with this memory; None if it is not from here.

        Every `lend` wants one `take_back`.
        """
        ref = self._used.get(ctypes.addressof(memory))
        if ref is None or ref() is not memory:
            return None
        with self._lock:
            ref.slot.lent += 1
        return ref.slot

    def take_back(self, keys: Iterable[SlotKey]) -> None:
        """Note that the receivers of messages with these slots see them no more."""
        with self._lock:
            for key in keys:
                slot = self._slots[key]
                slot.lent -= 1
                self._free_if_unused(slot)

    def _collect(self) -> None:
        """Free what died here since the last time."""
        while self._dead:
            ref = self._dead.popleft()
            del self._used[ref.address]
            ref.slot.is_used_here = False
            self._free_if_unused(ref.slot)

    def _free_if_unused(self, slot: Slot) -> None:
        if slot.lent == 0 and not slot.is_used_here:
            self._classes[slot.nbytes].free.append(slot)
            self._in_use_bytes -= slot.nbytes

    def _check_limit(self, size: int, limit: int) -> None:
        held = self._in_use_bytes
        if held + size > limit:
            raise SharedMemoryFull(
                f"The arena's limit is met: a batch wants {size:,} bytes, batches that are in use "
                f"hold {held:,} of {limit:,}, and {limit - held:,} are free. Keep fewer batches "
                "(or copies of what you need of them), lower prefetch_factor, or raise "
                "`arena_limit_bytes`.",
                wanted=size,
                held=held,
                free=limit - held,
            )

    def _new_slot(self, size: int, size_class: _SizeClass) -> Slot:
        if not size_class.room:
            # A segment as large as all of this size before it: so there are few, and what is never
            # used of it costs nothing, for the system gives pages when they are touched.
            room = max(len(size_class.slots), _FIRST_SEGMENT_BYTES // size, 1)
            self._segments.append(self._make_segment(room * size))
            size_class.segment_id = len(self._segments) - 1
            size_class.next_offset, size_class.room = 0, room
        offset = size_class.next_offset
        n = size_class.segment_id
        slot = Slot((n, offset), self._segments[n], offset, size)
        size_class.next_offset += size
        size_class.room -= 1
        size_class.slots.append(slot)
        self._slots[slot.key] = slot
        return slot

    def _sweep(self) -> None:
        """Give the pages back of slots that were not needed since the last sweep."""
        for size, size_class in self._classes.items():
            if size >= _DISCARD_BYTES and not self._keeps_pages:
                for slot in size_class.free[: size_class.idle]:
                    if slot.is_warm:
                        slot.segment.discard(slot.offset, slot.offset + slot.nbytes)
                        slot.is_warm = False
            size_class.idle = len(size_class.free)

    def report(self) -> list[SlotReport]:
        """What there is, by slot size."""
        with self._lock:
            self._collect()
            return [
                SlotReport(
                    slot_bytes=size,
                    slots=len(c.slots),
                    building=sum(slot.is_used_here for slot in c.slots),
                    lent=sum(slot.lent > 0 for slot in c.slots),
                    free=len(c.free),
                    warm=sum(slot.is_warm for slot in c.slots),
                )
                for size, c in sorted(self._classes.items())
            ]

    def close(self) -> None:
        """Close the segments' descriptors. The memory stays as long as somebody has it mapped."""
        for segment in self._segments:
            segment.close()

    def unlock_in_child(self) -> None:
        """In a forked child: the thread that held the lock at the fork is not here."""
        self._lock = threading.Lock()


_arenas: weakref.WeakSet[Arena] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for arena in list(_arenas):
        arena.unlock_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
