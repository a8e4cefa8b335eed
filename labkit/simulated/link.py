"""The link between the host's memory and the simulated device's: what a copy takes, and does.

Before it: `device.py` (of this package), which issues the copies. After it: `host_memory.py`, which
knows what is pinned.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

import torch

from labkit.simulated.host_memory import HostMemory
from labkit.simulated.timeline import TO_DEVICE, TO_HOST

__all__ = ["Copy", "Link", "check_dense"]


@dataclass(frozen=True)
class Copy:
    """A copy that can be issued."""

    engine: str  #: that makes it
    seconds: float  #: that it takes
    read: Callable[[], torch.Tensor]  #: gives the bytes when it runs
    to: torch.Tensor
    pinned: bool  #: the host's side of it: else the caller waits

    def carry_out(self) -> None:
        """Move the bytes, in one thread: PyTorch's own copy takes all cores."""
        source = self.read()
        ctypes.memmove(self.to.data_ptr(), source.data_ptr(), self.to.nbytes)


class Link:
    """Makes the copies between two memories.

    Args:
        h2d_gb_per_s, d2h_gb_per_s: 10⁹ bytes a second, to the device and back, of pinned memory.
        pageable_gb_per_s: at most, of memory that is not pinned.
        host: where pinned memory comes from.

    Raises:
        ValueError: a rate that is not above 0.
    """

    def __init__(
        self,
        h2d_gb_per_s: float,
        pageable_gb_per_s: float,
        d2h_gb_per_s: float,
        host: HostMemory,
    ) -> None:
        rates = {"h2d": h2d_gb_per_s, "pageable": pageable_gb_per_s, "d2h": d2h_gb_per_s}
        for name, rate in rates.items():
            if not rate > 0:
                raise ValueError(f"{name}_gb_per_s is {rate}: write a number above 0.")
        self.h2d_gb_per_s = h2d_gb_per_s
        self._rates = {TO_DEVICE: h2d_gb_per_s, TO_HOST: d2h_gb_per_s}
        self._pageable_rate = pageable_gb_per_s
        self._host = host

    def to_device(self, to: torch.Tensor, source: torch.Tensor) -> Copy:
        """A copy of a host tensor into the device's memory `to`, of the same shape.

        Raises:
            TypeError, ValueError: `source` is not dense, or of another shape.
        """
        check_dense(source)
        if source.shape != to.shape:
            raise ValueError(f"{tuple(source.shape)} does not fit into {tuple(to.shape)}.")
        host, pinned = source.detach(), self._host.is_pinned(source)
        if not host.is_contiguous() or host.is_conj() or host.is_neg() or host.dtype != to.dtype:
            # As in PyTorch: made ready on the host first, in memory that is not pinned.
            host, pinned = host.to(to.dtype).resolve_conj().resolve_neg().contiguous(), False
        read = self._host.reader(host) if pinned else lambda: host
        return self._copy(TO_DEVICE, to, read, pinned)

    def to_host(self, source: torch.Tensor, pinned: bool) -> Copy:
        """A copy of the device's memory `source` into a new tensor of the host."""
        if pinned:
            host = self._host.zeros(source.shape, source.dtype)
        else:
            host = torch.empty(source.shape, dtype=source.dtype)
        return self._copy(TO_HOST, host, lambda: source, pinned)

    def _copy(
        self, engine: str, to: torch.Tensor, read: Callable[[], torch.Tensor], pinned: bool
    ) -> Copy:
        rate = self._rates[engine] if pinned else min(self._rates[engine], self._pageable_rate)
        return Copy(engine, to.nbytes / (rate * 1e9), read, to, pinned)


def check_dense(tensor: torch.Tensor) -> None:
    """Refuse what is not a dense host tensor."""
    kind = getattr(tensor, "layout", type(tensor).__name__)
    if kind == torch.strided:
        if tensor.device.type != "cpu":
            kind = f"tensor of {tensor.device}"
        elif tensor.is_quantized or tensor.is_nested:
            kind = "quantized tensor" if tensor.is_quantized else "nested tensor"
    if kind != torch.strided:
        raise TypeError(f"The simulated device takes dense host tensors, and was given a {kind}.")
