"""A tensor in the simulated device's memory.

It is no torch.Tensor: nothing can be computed with it but by a step (`SimulatedDevice.run`), and
nothing can be read but by a copy to the host. So whoever forgets to wait sees what was there.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import torch

from labkit.simulated.memory import Block
from labkit.simulated.streams import SimulatedStream

if TYPE_CHECKING:
    from labkit.simulated.device import SimulatedDevice

__all__ = ["SimulatedTensor"]


class SimulatedTensor:
    """Values in device memory. Made by `to_device`, `empty` and `run` of the device.

    Attributes:
        memory: a host tensor of the same shape over that memory. Only the engines may use it.
    """

    def __init__(
        self, device: SimulatedDevice, block: Block, shape: torch.Size, dtype: torch.dtype
    ) -> None:
        self.device, self.shape, self.dtype = device, shape, dtype
        self.nbytes = shape.numel() * dtype.itemsize
        self.memory = block.memory[: self.nbytes].view(dtype).view(shape)
        self._block = block
        # The memory outlives this object in the work that is under way; the right to it does not.
        weakref.finalize(self, device.allocator.free, block).atexit = False

    def __repr__(self) -> str:
        return f"SimulatedTensor(shape={tuple(self.shape)}, dtype={self.dtype})"

    def numel(self) -> int:
        """How many elements it has."""
        return self.shape.numel()

    def record_stream(self, stream: SimulatedStream) -> None:
        """Keep this memory, once the tensor is dropped, until `stream` has done its work so far."""
        if stream is not self._block.stream:
            self._block.users.add(stream)

    def copy_(self, source: torch.Tensor, non_blocking: bool = False) -> SimulatedTensor:
        """Copy a host tensor of the same shape here, on the current stream."""
        self.device.copy_to_device(self, source, non_blocking)
        return self

    def to_host(self, non_blocking: bool = False) -> torch.Tensor:
        """A host tensor, copied on the current stream.

        With `non_blocking` it is pinned, and zero until the copy lands: whoever reads it before
        the stream is synchronised reads zeros. (PyTorch's holds what was there before.)
        """
        return self.device.copy_to_host(self, non_blocking)

    def cpu(self) -> torch.Tensor:
        """A host tensor, copied on the current stream; the caller waits for it."""
        return self.to_host()

    def item(self) -> bool | int | float | complex:
        """The value of a tensor of one element; the caller waits for it."""
        return self.cpu().item()
