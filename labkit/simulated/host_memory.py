"""Which memory of the host the simulated device counts as page-locked (pinned).

There are two kinds, as with CUDA. What `pin` gives out is the device's own: a copy that is under
way keeps it. What `lock_pages` was told of is somebody else's, and a copy has only its address:
whoever gives it to somebody else too early sends the wrong bytes.

Before it: `device.py` (of this package). Mirrors: cudaHostAlloc and cudaHostRegister. Leaves out:
locking pages for real, for nothing but the simulated device would profit.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable

import torch

from labkit.sharing.segment import Segment, bytes_type

__all__ = ["HostMemory"]


class HostMemory:
    """The ranges of addresses that are page-locked."""

    def __init__(self) -> None:
        # address → bytes; a finalizer may take one out at any time
        self._own: dict[int, int] = {}
        self._locked: dict[int, int] = {}

    def zeros(self, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
        """A tensor in page-locked memory of the device's own."""
        nbytes = max(shape.numel(), 1) * dtype.itemsize
        exporter = Segment.private(nbytes).exporter(0, nbytes)
        address = ctypes.addressof(exporter)
        self._own[address] = nbytes
        weakref.finalize(exporter, self._own.pop, address, None).atexit = False
        return torch.frombuffer(exporter, dtype=dtype)[: shape.numel()].view(shape)

    def lock(self, address: int, nbytes: int) -> bool:
        """Count memory of somebody else's as page-locked; False if some of it is already."""
        known = [*self._own.items(), *self._locked.items()]
        overlaps = any(start < address + nbytes and address < start + n for start, n in known)
        if nbytes <= 0 or overlaps:
            return False
        self._locked[address] = nbytes
        return True

    def unlock(self, address: int) -> None:
        """Undo `lock`."""
        self._locked.pop(address, None)

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        """Whether all of a tensor lies in memory that is page-locked here, or for a real device."""
        if tensor.layout is not torch.strided:
            return False
        first, extent = tensor.data_ptr(), _extent(tensor)
        if _is_within(self._own, first, extent) or _is_within(self._locked, first, extent):
            return True
        return torch.accelerator.is_available() and tensor.is_pinned()

    def reader(self, tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
        """What gives a contiguous pinned tensor's bytes when a copy runs."""
        first, extent, shape, dtype = tensor.data_ptr(), _extent(tensor), tensor.shape, tensor.dtype
        if extent == 0 or not _is_within(self._locked, first, extent):
            return lambda: tensor

        def by_address() -> torch.Tensor:
            if not _is_within(self._locked, first, extent):
                raise RuntimeError(
                    "its source was unlocked (unlock_pages) while the copy was under way: "
                    "synchronise with the copy's event first"
                )
            memory = bytes_type(extent).from_address(first)
            return torch.frombuffer(memory, dtype=dtype).view(shape)

        return by_address


def _is_within(ranges: dict[int, int], first: int, extent: int) -> bool:
    known = list(ranges.items())
    return any(start <= first and first + extent <= start + n for start, n in known)


def _extent(tensor: torch.Tensor) -> int:
    """Bytes from the first element of a tensor to the end of its last."""
    if tensor.numel() == 0:
        return 0
    steps = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return (steps + 1) * tensor.element_size()
