"""`arena`, the fourth strategy and the default: what travels is the place of a slot.

The worker's half owns an `Arena`; the main process's half maps its segments, once each, and notes
which slots nobody sees any more. That list rides along with the next task.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from contextlib import suppress
from typing import Any

from labkit.sharing.arena import Arena, SlotKey
from labkit.sharing.segment import Exporter, PageLocker, Segment
from labkit.sharing.strategies import Handle, Parcel, Receiver, Sender, as_block

__all__ = ["ArenaReceiver", "ArenaSender", "live_receivers"]


class ArenaSender(Sender):
    """`arena`, the worker's half: a handle is (slot's key, its bytes, the segment's bytes if new).

    The descriptor of a segment goes over once, with the first message that names it.
    """

    def __init__(self, limit_bytes: int | None = None, keeps_pages: bool = False) -> None:
        self.arena = Arena(Segment.create, limit_bytes, keeps_pages)
        self._introduced: set[int] = set()

    def allocate(self, nbytes: int) -> Exporter:
        return self.arena.allocate(nbytes)

    def block_at(self, address: int) -> Exporter | None:
        return self.arena.exporter_at(address)

    def handle(self, memory: Exporter, parcel: Parcel) -> Handle:
        slot = self.arena.lend(memory)
        if slot is None:
            memory = as_block(memory, self)
            slot = self.arena.lend(memory)
            assert slot is not None, "it has just been allocated there"
        parcel.kept.append(memory)
        parcel.lent.append(slot.key)
        segment_id = slot.key[0]
        if segment_id in self._introduced:
            return slot.key, slot.nbytes, 0
        self._introduced.add(segment_id)
        parcel.fds.append(slot.segment.fd)
        return slot.key, slot.nbytes, slot.segment.nbytes

    def take_back(self, returned: list[Any]) -> None:
        if returned:
            self.arena.take_back(returned)

    def withdraw(self, parcel: Parcel) -> None:
        self.take_back(parcel.lent)
        # Whether a segment was introduced in just this message is not worth knowing: it may go
        # over once more.
        self._introduced.difference_update(segment_id for segment_id, _ in parcel.lent)

    def close(self, receiver_is_gone: bool = False) -> None:
        self.arena.close()


# NOTE [ Who else may see a slot ]
#
# A slot is used again when its last view in the main process has died. Could anybody see it still?
#
# - A view in another thread, a numpy view, a view inside another object: each keeps the exporter.
# - Another process that was sent the batch: pickling copies it.
# - A process that was *forked* while the batch was alive maps the same memory and has views of its
#   own, of which nobody here knows. So a slot that is held at a fork is returned only when that
#   child has ended or become another program: the child holds the writing end of a pipe, and its
#   closing can be read here. (A child that closes descriptors which are not its own, as a daemon
#   does, looks gone.)


class _Child:
    """A forked process that may see what was held at its fork."""

    def __init__(self) -> None:
        self._reads = self._writes = -1
        with suppress(OSError):  # no descriptor is left: then it is never known to be gone
            self._reads, self._writes = os.pipe()
            os.set_blocking(self._reads, False)

    def only_theirs(self) -> None:
        """In the parent, after the fork: only the child holds the writing end now."""
        if self._writes >= 0:
            os.close(self._writes)
            self._writes = -1

    def is_gone(self) -> bool:
        """Whether it has ended, or replaced itself by another program."""
        try:
            return self._reads >= 0 and os.read(self._reads, 1) == b""
        except BlockingIOError:
            return False

    def __del__(self) -> None:
        if self._reads >= 0:
            os.close(self._reads)


class _HeldRef(weakref.ref[Any]):
    """A reference to the exporter of a received slot."""

    __slots__ = ("arrived", "children", "key", "nbytes")
    key: SlotKey
    nbytes: int
    arrived: float  #: `time.monotonic()`
    children: tuple[_Child, ...]  #: forked while it was held


class ArenaReceiver(Receiver):
    """`arena`, the main process's half: maps segments once, and notes which slots died.

    Args:
        worker: its name in a report.
        page_locker: page-locks each segment when it comes; None leaves them as they are.
    """

    def __init__(self, worker: str = "a worker", page_locker: PageLocker | None = None) -> None:
        self.worker = worker
        self._page_locker = page_locker
        self.refused_bytes = 0  #: of segments whose page-locking was refused
        self._segments: dict[int, Segment] = {}
        self._held: dict[int, _HeldRef] = {}  # by id
        self._dead: deque[_HeldRef] = deque()
        self._seen_by_children: list[_HeldRef] = []  # dead here
        self._pid = os.getpid()
        self._closed = False
        _receivers.add(self)

    def open(self, handle: Handle, fds: list[int]) -> Exporter:
        key, nbytes, new_bytes = handle
        segment_id, offset = key
        if new_bytes:
            segment = self._segments[segment_id] = Segment(fds.pop(0), new_bytes)
            segment.close()  # Python's mapping keeps a descriptor of its own
            if self._page_locker is not None and not segment.lock_pages(self._page_locker):
                self.refused_bytes += new_bytes
        memory = self._segments[segment_id].exporter(offset, nbytes)
        ref = _HeldRef(memory, self._note_death)
        ref.key = key
        ref.nbytes = nbytes
        ref.arrived = time.monotonic()
        ref.children = ()
        self._held[id(ref)] = ref
        return memory

    def _note_death(self, ref: _HeldRef) -> None:
        # Runs wherever the last view dies: on any thread, and in a forked child too.
        del self._held[id(ref)]
        if not self._closed:
            self._dead.append(ref)
        elif self._pid == os.getpid():
            self._discard(ref)
            self._release()

    def returned(self) -> list[Any]:
        keys = []
        while self._dead:
            ref = self._dead.popleft()
            if ref.children:
                self._seen_by_children.append(ref)
            else:
                keys.append(ref.key)
        if self._seen_by_children:
            keys += self._take_unseen()
        return keys

    def _take_unseen(self) -> list[SlotKey]:
        """The slots that died here and that no child sees any more."""
        still_seen: list[_HeldRef] = []
        keys: list[SlotKey] = []
        for ref in self._seen_by_children:
            if _is_seen_by_a_child(ref):
                still_seen.append(ref)
            else:
                keys.append(ref.key)
        self._seen_by_children = still_seen
        return keys

    def close(self, worker_pid: int) -> None:
        """The worker is gone, so every slot that nobody sees is free: give its pages back."""
        self._closed = True
        self._seen_by_children = [
            ref for ref in [*self._dead, *self._seen_by_children] if _is_seen_by_a_child(ref)
        ]
        self._dead.clear()
        seen = sorted((ref.key, ref.nbytes) for ref in self._all_seen())
        for segment_id, segment in list(self._segments.items()):
            start = 0
            for (_, offset), nbytes in (place for place in seen if place[0][0] == segment_id):
                segment.discard(start, offset)
                start = offset + nbytes
            if start:
                segment.discard(start, segment.nbytes)
            else:
                del self._segments[segment_id]  # nobody sees any of it
        _closed_with_batches.add(self)  # until the last batch dies, something must keep this alive
        self._release()

    def _discard(self, ref: _HeldRef) -> None:
        """A view died after the worker did: give the slot's pages back, if nobody sees them."""
        if _is_seen_by_a_child(ref):
            self._seen_by_children.append(ref)
            return
        segment_id, offset = ref.key
        others = [other.key for other in self._all_seen() if other.key[0] == segment_id]
        if not others:
            self._segments.pop(segment_id, None)  # its mapping goes with the exporter
        elif ref.key not in others:
            self._segments[segment_id].discard(offset, offset + ref.nbytes)

    def _all_seen(self) -> list[_HeldRef]:
        return [*self._held.values(), *self._seen_by_children]

    def _release(self) -> None:
        if not self._held:
            _closed_with_batches.discard(self)
            self._seen_by_children.clear()  # their memory is theirs now; closes the pipes

    def note_fork(self, child: _Child) -> None:
        """Another process is about to see what is held now."""
        for ref in [*self._held.values(), *self._dead]:
            # Those that are gone are forgotten here, or a batch that is kept through many forks
            # would collect a descriptor for each.
            ref.children = (*(other for other in ref.children if not other.is_gone()), child)

    def held(self) -> list[_HeldRef]:
        """The slots that views in this process hold."""
        return list(self._held.values())

    def returning(self) -> list[SlotKey]:
        """The slots that died here and of which the worker is not told yet."""
        return [ref.key for ref in [*self._dead, *self._seen_by_children]]

    @property
    def segment_bytes(self) -> dict[int, int]:
        """Bytes of each segment; pages that were never touched are not in memory."""
        return {number: segment.nbytes for number, segment in list(self._segments.items())}


def _is_seen_by_a_child(ref: _HeldRef) -> bool:
    return not all(child.is_gone() for child in ref.children)


def live_receivers() -> list[ArenaReceiver]:
    """The receivers of loaders that run, and of those that are gone but whose batches are not."""
    return list(_receivers)


_receivers: weakref.WeakSet[ArenaReceiver] = weakref.WeakSet()
_closed_with_batches: set[ArenaReceiver] = set()
_forking = threading.local()


def _before_fork() -> None:
    holding = [receiver for receiver in live_receivers() if receiver.held()]
    _forking.child = _Child() if holding else None
    for receiver in holding:
        receiver.note_fork(_forking.child)


def _after_fork() -> None:
    if getattr(_forking, "child", None) is not None:
        _forking.child.only_theirs()
        _forking.child = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork)
