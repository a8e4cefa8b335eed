"""Reducers: a tensor or an array → its geometry and a region of memory; and back.

A reducer returns (function, arguments) that make the object anew on the other side, where the
region among the arguments has become an `Opened` one: the same bytes, mapped there.

Mirrors: torch/multiprocessing/reductions.py (`reduce_tensor`, `rebuild_tensor`).
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from labkit.errors import BatchNotShareable
from labkit.sharing.segment import Exporter

__all__ = ["Opened", "Region", "opened", "reduce_array", "reduce_parameter", "reduce_tensor"]

Reduced = tuple[Any, ...]
RegionOf = Callable[[int, object, int, int], "Region"]
"""(address of a storage, what keeps it alive, first byte seen, last byte seen + 1) → its region."""

_ALIGNMENT = 16  # bytes of the largest element, complex128: offsets stay multiples of every dtype


class Region:
    """A storage's memory, and the part of it that a message's views can see.

    Attributes:
        start, end: the bytes [start, end) of the storage that are seen.
        foreign: whoever asks for it on the other side wants plain memory.
        token: stands for this memory in the stream.
    """

    __slots__ = ("address", "end", "foreign", "owner", "start", "token")

    def __init__(
        self, address: int, owner: object, start: int, end: int, foreign: bool = False
    ) -> None:
        self.address = address
        self.owner = owner  # keeps the memory alive while the message is being made
        self.start = start - start % _ALIGNMENT
        self.end = end
        self.foreign = foreign
        self.token: pickle.PickleBuffer | None = None

    def see(self, start: int, end: int) -> None:
        """Add the bytes [start, end) to what is seen."""
        self.start = min(self.start, start - start % _ALIGNMENT)
        self.end = max(self.end, end)


class Opened:
    """A received region: its memory, and where in the sender's storage it begins."""

    __slots__ = ("_first", "memory", "nbytes", "start")

    def __init__(self, memory: Exporter, start: int, nbytes: int) -> None:
        self.memory = memory
        self.start = start
        self.nbytes = nbytes
        self._first: torch.Tensor | None = None  # the tensor whose storage all others share

    def tensor(
        self, dtype: torch.dtype, start: int, size: tuple[int, ...], stride: tuple[int, ...]
    ) -> torch.Tensor:
        """A tensor that begins `start` bytes into the storage; stride in elements."""
        offset = (start - self.start) // dtype.itemsize
        if self._first is not None:
            tensor = torch.empty(0, dtype=dtype)
            return tensor.set_(self._first.untyped_storage(), offset, size, stride)
        if self.nbytes % dtype.itemsize:
            self._first = torch.frombuffer(self.memory, dtype=torch.uint8, count=self.nbytes)
            return self.tensor(dtype, start, size, stride)
        count = self.nbytes // dtype.itemsize
        tensor = self._first = torch.frombuffer(self.memory, dtype=dtype, count=count)
        if offset == 0 and count == math.prod(size) and size:
            tensor.resize_(*size)  # the same elements in another shape: the fast way to it
            if tensor.stride() == stride:
                return tensor
        return tensor.set_(tensor.untyped_storage(), offset, size, stride)


def opened(region: Opened) -> Opened:
    """What pickle calls with the buffer that it is given for a region."""
    return region


# Tensors


def reduce_tensor(region_of: RegionOf, tensor: torch.Tensor) -> Reduced:
    """A tensor in main memory → dtype, geometry, region; others are taken apart into such."""
    attributes = tensor.__dict__ or None
    grad, dtype = tensor.requires_grad, tensor.dtype
    if grad and not tensor.is_leaf:
        raise BatchNotShareable(
            "A tensor of the batch requires grad and was computed from others; its graph cannot "
            "cross to another process. Return `tensor.detach()` from the dataset or the collate "
            "function."
        )
    if type(tensor) is not torch.Tensor:
        plain = tensor.detach().as_subclass(torch.Tensor)
        return _rebuild_subclass, (plain, type(tensor), grad, attributes)
    if (
        tensor.layout is not torch.strided
        or not tensor.is_cpu
        or tensor.is_nested
        or tensor.is_quantized
    ):
        rebuild = _reduce_unusual(tensor)
        return (_rebuild_with, (rebuild, attributes)) if attributes else rebuild
    if dtype.is_complex and tensor.is_conj():
        return _rebuild_conj, (tensor.detach().conj(), grad, attributes)
    if tensor.is_neg():
        tensor = torch.resolve_neg(tensor.detach())
    size, stride, itemsize = tuple(tensor.size()), tensor.stride(), dtype.itemsize
    numel = tensor.numel()
    if numel == 0:
        return _rebuild_empty, (dtype, size, stride, grad, attributes)
    storage = tensor.untyped_storage()
    start = int(tensor.storage_offset()) * itemsize
    if tensor.is_contiguous():
        last = numel - 1
    else:
        last = sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    end = start + (last + 1) * itemsize
    region = region_of(storage.data_ptr(), storage, start, end)
    return _rebuild_tensor, (region, dtype, start, size, stride, grad, attributes)


def _rebuild_tensor(
    region: Opened,
    dtype: torch.dtype,
    start: int,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    grad: bool,
    attributes: dict[str, Any] | None,
) -> torch.Tensor:
    tensor = region.tensor(dtype, start, size, stride)
    if grad or attributes:
        return _with(tensor, grad, attributes)
    return tensor


def _with(tensor: torch.Tensor, grad: bool, attributes: dict[str, Any] | None) -> torch.Tensor:
    if grad:
        tensor.requires_grad_()
    if attributes:
        tensor.__dict__.update(attributes)
    return tensor


def _rebuild_with(rebuild: Reduced, attributes: dict[str, Any]) -> torch.Tensor:
    function, arguments = rebuild
    return _with(function(*arguments), False, attributes)


def _rebuild_empty(
    dtype: torch.dtype,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    grad: bool,
    attributes: dict[str, Any] | None,
) -> torch.Tensor:
    # No memory to map: an empty mapping is an error.
    return _with(torch.empty_strided(size, stride, dtype=dtype), grad, attributes)


def _rebuild_conj(
    plain: torch.Tensor, grad: bool, attributes: dict[str, Any] | None
) -> torch.Tensor:
    return _with(plain.conj(), grad, attributes)


def _rebuild_subclass(
    plain: torch.Tensor, cls: type[torch.Tensor], grad: bool, attributes: dict[str, Any] | None
) -> torch.Tensor:
    # Not by the constructor, which may want arguments that nobody here knows.
    return _with(plain.as_subclass(cls), grad, attributes)


def reduce_parameter(parameter: torch.nn.Parameter) -> Reduced:
    """A parameter → its data, and whether it is trained."""
    return torch.nn.Parameter, (parameter.detach(), parameter.requires_grad)


# What is no dense tensor in main memory

_COMPRESSED = {
    torch.sparse_csr: (torch.Tensor.crow_indices, torch.Tensor.col_indices),
    torch.sparse_bsr: (torch.Tensor.crow_indices, torch.Tensor.col_indices),
    torch.sparse_csc: (torch.Tensor.ccol_indices, torch.Tensor.row_indices),
    torch.sparse_bsc: (torch.Tensor.ccol_indices, torch.Tensor.row_indices),
}


def _reduce_unusual(tensor: Any) -> Reduced:
    grad, layout = tensor.requires_grad, tensor.layout
    tensor = tensor.detach()
    if tensor.is_nested:
        if layout is torch.jagged:
            parts = (tensor.values(), tensor.offsets(), tensor.lengths(), tensor._ragged_idx)
            return _rebuild_jagged, (*parts, grad)
        return _rebuild_nested, (list(tensor.unbind()), grad)
    size = tuple(tensor.size())
    if tensor.device.type == "meta":
        return _rebuild_meta, (tensor.dtype, size, tensor.stride(), grad)
    if layout is torch.sparse_coo and tensor.is_cpu:
        parts = (tensor._indices(), tensor._values(), size, tensor.is_coalesced())
        return _rebuild_coo, (*parts, grad)
    if layout in _COMPRESSED and tensor.is_cpu:
        compressed, plain = _COMPRESSED[layout]
        indices = compressed(tensor), plain(tensor)
        return _rebuild_compressed, (*indices, tensor.values(), size, str(layout), grad)
    if tensor.is_quantized:
        what, way_out = "is quantized", "Return `tensor.int_repr()` and scale and zero point"
    elif not tensor.is_cpu:
        what = f"lies on {tensor.device}"
        way_out = "Return it from the worker with `.cpu()`, and move it in the main process"
    else:
        what, way_out = f"has layout {layout}", "Return it with `.to_dense()`"
    raise BatchNotShareable(f"A tensor of the batch {what} and cannot be shared. {way_out}.")


def _rebuild_coo(
    indices: torch.Tensor, values: torch.Tensor, size: tuple[int, ...], coalesced: bool, grad: bool
) -> torch.Tensor:
    return torch.sparse_coo_tensor(
        indices, values, size, is_coalesced=coalesced, requires_grad=grad, check_invariants=False
    )


def _rebuild_compressed(
    compressed: torch.Tensor,
    plain: torch.Tensor,
    values: torch.Tensor,
    size: tuple[int, ...],
    layout: str,
    grad: bool,
) -> torch.Tensor:
    return torch.sparse_compressed_tensor(
        compressed,
        plain,
        values,
        size,
        layout=getattr(torch, layout.removeprefix("torch.")),
        requires_grad=grad,
        check_invariants=False,
    )


def _rebuild_jagged(
    values: torch.Tensor,
    offsets: torch.Tensor,
    lengths: torch.Tensor | None,
    ragged_dim: int,
    grad: bool,
) -> torch.Tensor:
    nested = torch.nested.nested_tensor_from_jagged(values, offsets, lengths, jagged_dim=ragged_dim)
    return nested.requires_grad_(grad)


def _rebuild_nested(parts: list[torch.Tensor], grad: bool) -> torch.Tensor:
    return torch.nested.as_nested_tensor(parts).requires_grad_(grad)


def _rebuild_meta(
    dtype: torch.dtype, size: tuple[int, ...], stride: tuple[int, ...], grad: bool
) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device="meta", requires_grad=grad)


# Arrays


def reduce_array(region_of: RegionOf, array: np.ndarray) -> Reduced:
    """An array of plain elements → dtype, geometry, region; one of objects as numpy does it."""
    if array.dtype.hasobject or array.nbytes == 0:
        return array.__reduce_ex__(5)  # type: ignore[return-value]
    first = array.ctypes.data
    if array.flags.c_contiguous:
        low, high = first, first + array.nbytes
    else:
        spans = [(n - 1) * step for n, step in zip(array.shape, array.strides, strict=True)]
        low = first + sum(span for span in spans if span < 0)
        high = first + sum(span for span in spans if span > 0) + array.itemsize
    address, owner = _storage_of(array)
    address = min(address, low)  # an owner of negative strides begins at its last element
    region = region_of(address, owner, low - address, high - address)
    return _rebuild_array, (
        region, array.dtype, first - address, array.shape, array.strides, array.flags.writeable,
    )  # fmt: skip


def _storage_of(array: np.ndarray) -> tuple[int, object]:
    """Where the memory begins that the array is a view of, and who owns it."""
    owner = array
    while type(owner.base) is np.ndarray:
        owner = owner.base
    base: object = owner.base
    if isinstance(base, torch.Tensor):  # made by `tensor.numpy()`
        storage = base.untyped_storage()
        return storage.data_ptr(), storage
    return owner.ctypes.data, owner


def _rebuild_array(
    region: Opened,
    dtype: np.dtype[Any],
    start: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    writeable: bool,
) -> np.ndarray:
    array: np.ndarray = np.ndarray(
        shape, dtype, buffer=region.memory, offset=start - region.start, strides=strides
    )
    if not writeable:
        array.flags.writeable = False
    return array
