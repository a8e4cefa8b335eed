"""The simulated device's memory, given out by a caching allocator with PyTorch's rules.

A block belongs to the stream that was current when it was allocated. When its tensor dies it is
free at once for new tensors of that stream, though work on it may still be waiting: on one stream
the new work comes after the old anyway. A block that another stream uses too must be kept from
that, by `record_stream`: then it is free when that stream has done what it was issued until then.

Mirrors: c10/cuda/CUDACachingAllocator.cpp. Leaves out: splitting blocks; a block serves whatever
needs more than half of it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import torch

from labkit.simulated.streams import SimulatedStream
from labkit.simulated.timeline import Timeline

__all__ = ["Allocator", "Block"]

GRANULE = 512
"""Bytes of which every block is a multiple, as in PyTorch."""


@dataclass(eq=False)
class Block:
    """A piece of device memory.

    Attributes:
        memory: its bytes, uint8, shape (nbytes,).
        stream: for whose tensors it is.
        users: other streams that work on it.
        held_until: what those must have completed before it is free.
    """

    memory: torch.Tensor
    stream: SimulatedStream
    users: set[SimulatedStream] = field(default_factory=set)
    held_until: list[tuple[SimulatedStream, int]] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        return self.memory.nbytes

    def is_free(self) -> bool:
        """Whether the streams that used it have done what they were to do with it."""
        return all(stream.completed >= count for stream, count in self.held_until)


class Allocator:
    """Device memory of `capacity` bytes.

    Attributes:
        allocated: bytes of the tensors that live.
        reserved, max_reserved: bytes of all blocks, also those kept for the next tensor.
    """

    def __init__(self, capacity: int, timeline: Timeline) -> None:
        self.capacity = capacity
        self.allocated = self.reserved = self.max_reserved = 0
        self._timeline = timeline
        self._freed: deque[Block] = deque()
        self._held: list[Block] = []
        self._cached: list[Block] = []

    def allocate(self, nbytes: int, stream: SimulatedStream) -> Block:
        """A block of at least that size. What it holds is what its last user left.

        Raises:
            torch.OutOfMemoryError: more than the capacity would be in use.
        """
        size = max(-(-nbytes // GRANULE), 1) * GRANULE
        with self._timeline.lock:
            self.collect()
            block = self._from_cache(size, stream) or self._new(size, stream)
            self.allocated += block.nbytes
            return block

    def free(self, block: Block) -> None:
        """Take back a block whose tensor has died. Called by finalizers: takes no lock."""
        block.held_until = [(stream, stream.issued) for stream in block.users]
        self._freed.append(block)

    def collect(self) -> None:
        """Make use of what was freed, and what streams have done, since the last call."""
        while self._freed:
            block = self._freed.popleft()
            self.allocated -= block.nbytes
            self._held.append(block)
        free = [block for block in self._held if block.is_free()]
        self._held = [block for block in self._held if block not in free]
        self._cached += free

    def empty_cache(self) -> None:
        """Give back the blocks that no tensor uses."""
        self.collect()
        self.reserved -= sum(block.nbytes for block in self._cached)
        self._cached.clear()

    def _from_cache(self, size: int, stream: SimulatedStream) -> Block | None:
        fitting = [
            block
            for block in self._cached
            if block.stream is stream and size <= block.nbytes < 2 * size
        ]
        if not fitting:
            return None
        block = min(fitting, key=lambda block: block.nbytes)
        self._cached.remove(block)
        block.users.clear()
        return block

    def _new(self, size: int, stream: SimulatedStream) -> Block:
        if self.reserved + size > self.capacity:
            self.empty_cache()
        if self.reserved + size > self.capacity and self._held:
            held = list(self._held)
            self._timeline.wait_until(lambda: all(b.is_free() for b in held), "device memory")
            self.empty_cache()
        if self.reserved + size > self.capacity:
            raise torch.OutOfMemoryError(self._out_of_memory(size))
        block = Block(torch.zeros(size, dtype=torch.uint8), stream)
        self.reserved += size
        self.max_reserved = max(self.max_reserved, self.reserved)
        return block

    def _out_of_memory(self, size: int) -> str:
        return (
            f"The simulated device is out of memory: {size:,} bytes are wanted, and of its "
            f"{self.capacity:,} bytes {self.allocated:,} are in use by tensors that live. Drop "
            "tensors, load smaller or fewer batches ahead, or make the device with a larger "
            "capacity_bytes (it lies in this machine's own memory)."
        )
