"""How the bytes of a batch reach the other process: one small interface, and three strategies.

A worker has a `Sender`, the main process a `Receiver` for each worker. Both know memory only, no
tensors: a sender gives out blocks of memory and turns a block into a *handle*, something small that
travels in the message; the receiver turns the handle back into memory.

- `copy`: the handle is the bytes themselves. Everything goes through the channel.
- `file_descriptor`: one anonymous segment a block, whose descriptor rides with the message.
- `file_system`: one named segment a block; the name travels.

The fourth, `arena`, has a module of its own.
Mirrors: torch/multiprocessing/reductions.py (`reduce_storage`, `rebuild_storage_fd`,
`rebuild_storage_filename`).
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pickle import PickleBuffer
from typing import Any, Generic, TypeVar

from labkit.sharing import names
from labkit.sharing.segment import Exporter, Segment, bytes_type

__all__ = [
    "CopyReceiver",
    "CopySender",
    "FileDescriptorReceiver",
    "FileDescriptorSender",
    "FileSystemReceiver",
    "FileSystemSender",
    "Handle",
    "Parcel",
    "Receiver",
    "Sender",
]

T = TypeVar("T")

Handle = Any
"""Whatever a sender wants its receiver to know of a block; pickled with the message."""


@dataclass
class Parcel:
    """What goes beside a message, gathered while the message is pickled."""

    fds: list[int] = field(default_factory=list)  #: descriptors that ride with the message
    kept: list[Exporter] = field(default_factory=list)  #: blocks that must live until it is sent
    names: list[str] = field(default_factory=list)  #: names that the receiver is to remove
    lent: list[Any] = field(default_factory=list)  #: slots that the receiver is to return
    shared_bytes: int = 0  #: of memory whose handle is in the message


class Sender:
    """The worker's half of a strategy. The methods that return nothing may do nothing."""

    def allocate(self, nbytes: int) -> Exporter:
        """New memory of at least `nbytes` > 0 bytes, the place where a batch is best built.

        It is given back by dropping every reference to it.
        """
        raise NotImplementedError

    def block_at(self, address: int) -> Exporter | None:
        """The living memory from `allocate` that begins at `address`, if there is one."""
        raise NotImplementedError

    def handle(self, memory: Exporter, parcel: Parcel) -> Handle:
        """What the receiver needs to see `memory`, which is copied first if it is no block."""
        raise NotImplementedError

    def take_back(self, returned: list[Any]) -> None:
        """Called with what the receiver's `returned` gave."""

    def withdraw(self, parcel: Parcel) -> None:
        """Called when a message for which handles were made will not be sent."""

    def close(self, receiver_is_gone: bool = False) -> None:
        """Called when the worker ends; if the receiver is not gone, messages may be under way."""


class Receiver:
    """The main process's half of a strategy, for what one worker sends."""

    def open(self, handle: Handle, fds: list[int]) -> Exporter:
        """The memory behind `handle`. Takes its descriptors off the front of `fds`."""
        raise NotImplementedError

    def returned(self) -> list[Any]:
        """What to tell the sender: the blocks that nobody here sees any more."""
        return []

    def close(self, worker_pid: int) -> None:
        """Called when the worker is gone. Batches may still be in use."""


class CopySender(Sender):
    """`copy`: the bytes travel in the message."""

    def allocate(self, nbytes: int) -> Exporter:
        return bytes_type(nbytes)()

    def block_at(self, address: int) -> Exporter | None:
        return None

    def handle(self, memory: Exporter, parcel: Parcel) -> Handle:
        return PickleBuffer(memory)  # written into the pickle; it comes out as a bytearray


class CopyReceiver(Receiver):
    """`copy`: the bytes have come with the message."""

    def open(self, handle: Handle, fds: list[int]) -> Exporter:
        return bytes_type(len(handle)).from_buffer(handle)


class _Blocks(Generic[T]):
    """A sender's blocks that are alive, by address, each with what it is known by outside.

    Args:
        release: called with that when the block has died.
    """

    def __init__(self, release: Callable[[T], None]) -> None:
        self._release = release
        self._exporters: weakref.WeakValueDictionary[int, Exporter] = weakref.WeakValueDictionary()
        self._known_by: dict[int, T] = {}

    def add(self, memory: Exporter, known_by: T) -> Exporter:
        address = ctypes.addressof(memory)
        self._exporters[address] = memory
        self._known_by[address] = known_by
        weakref.finalize(memory, self._drop, address).atexit = False
        return memory

    def at(self, address: int) -> Exporter | None:
        return self._exporters.get(address)

    def known_by(self, memory: Exporter) -> T:
        return self._known_by[ctypes.addressof(memory)]

    def release_all(self) -> None:
        while self._known_by:
            self._release(self._known_by.popitem()[1])

    def _drop(self, address: int) -> None:
        if address in self._known_by:  # not after `release_all`
            self._release(self._known_by.pop(address))


def as_block(memory: Exporter, sender: Sender) -> Exporter:
    """The memory itself if it is one of the sender's blocks, else a copy that is one."""
    if sender.block_at(ctypes.addressof(memory)) is memory:
        return memory
    nbytes = ctypes.sizeof(memory)
    block = sender.allocate(nbytes)
    ctypes.memmove(block, memory, nbytes)
    return block


class FileDescriptorSender(Sender):
    """`file_descriptor`: each block is a segment of its own, known by its descriptor.

    What it costs: for each storage of each batch a mapping and its page faults, in both processes,
    and a descriptor in the receiver for as long as the batch is alive.
    """

    def __init__(self) -> None:
        self._blocks: _Blocks[Segment] = _Blocks(release=Segment.close)

    def allocate(self, nbytes: int) -> Exporter:
        segment = Segment.create(nbytes)
        return self._blocks.add(segment.exporter(0, nbytes), segment)

    def block_at(self, address: int) -> Exporter | None:
        return self._blocks.at(address)

    def handle(self, memory: Exporter, parcel: Parcel) -> Handle:
        block = as_block(memory, self)
        parcel.kept.append(block)  # its descriptor is closed when it dies
        parcel.fds.append(self._blocks.known_by(block).fd)
        return ctypes.sizeof(block)


class FileDescriptorReceiver(Receiver):
    """`file_descriptor`: maps what the descriptor names."""

    def open(self, handle: Handle, fds: list[int]) -> Exporter:
        segment = Segment(fds.pop(0), handle)
        segment.close()  # Python's mapping keeps a descriptor of its own
        return segment.exporter(0, segment.nbytes)


class FileSystemSender(Sender):
    """`file_system`: each block is a named segment.

    What it costs: the same mappings and page faults as `file_descriptor`, no descriptors that
    stay, but names that somebody must remove, and room in /dev/shm.
    """

    def __init__(self, receiver_pid: int) -> None:
        names.remove_orphans()
        self._receiver_pid = receiver_pid
        self._blocks: _Blocks[str] = _Blocks(release=names.remove)

    def allocate(self, nbytes: int) -> Exporter:
        name = names.create(nbytes)
        return self._blocks.add(names.map_named(name, nbytes), name)

    def block_at(self, address: int) -> Exporter | None:
        return self._blocks.at(address)

    def handle(self, memory: Exporter, parcel: Parcel) -> Handle:
        block = as_block(memory, self)
        parcel.kept.append(block)  # its name is removed when it dies
        name = names.link(self._blocks.known_by(block), owner=self._receiver_pid)
        parcel.names.append(name)
        return name, ctypes.sizeof(block)

    def withdraw(self, parcel: Parcel) -> None:
        for name in parcel.names:
            names.remove(name)

    def close(self, receiver_is_gone: bool = False) -> None:
        if receiver_is_gone:
            names.remove_made_by(os.getpid())
        self._blocks.release_all()


class FileSystemReceiver(Receiver):
    """`file_system`: maps what the name names, and removes the name."""

    def open(self, handle: Handle, fds: list[int]) -> Exporter:
        name, nbytes = handle
        try:
            return names.map_named(name, nbytes)
        finally:
            names.remove(name)

    def close(self, worker_pid: int) -> None:
        names.remove_made_by(worker_pid)
