"""Whether two batches are the same: values to the bit, dtypes, shapes, types, structure."""

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch


def differences(
    ours: Any, theirs: Any, where: str = "batch", strides: bool = False
) -> Iterator[str]:
    """Say in what `ours` differs from `theirs`; nothing if they are the same.

    Args:
        ours: what is looked at.
        theirs: what it should be.
        where: what both are called.
        strides: whether tensors must lie in memory in the same way, too.
    """
    if type(ours) is not type(theirs):
        yield f"{where}: {type(ours).__name__}, not {type(theirs).__name__}"
    elif isinstance(theirs, torch.Tensor):
        yield from _of_tensors(ours, theirs, where, strides)
    elif isinstance(theirs, np.ndarray | np.generic):
        yield from _of_arrays(ours, theirs, where)
    elif isinstance(theirs, Mapping):
        if list(ours) != list(theirs):
            yield f"{where}: keys {list(ours)}, not {list(theirs)}"
        else:
            for key in theirs:
                yield from differences(ours[key], theirs[key], f"{where}[{key!r}]", strides)
    elif isinstance(theirs, Sequence) and not isinstance(theirs, str | bytes):
        if len(ours) != len(theirs):
            yield f"{where}: {len(ours)} elements, not {len(theirs)}"
        for i, (our, their) in enumerate(zip(ours, theirs, strict=False)):
            yield from differences(our, their, f"{where}[{i}]", strides)
    elif is_dataclass(theirs):
        for field in fields(theirs):
            our, their = getattr(ours, field.name), getattr(theirs, field.name)
            yield from differences(our, their, f"{where}.{field.name}", strides)
    elif isinstance(theirs, float):
        if ours.hex() != theirs.hex():  # nan is nan here
            yield f"{where}: {ours!r}, not {theirs!r}"
    elif ours != theirs:
        yield f"{where}: {ours!r}, not {theirs!r}"


def _of_tensors(
    ours: torch.Tensor, theirs: torch.Tensor, where: str, strides: bool
) -> Iterator[str]:
    for fact in ("dtype", "layout", "device", "requires_grad", "is_nested"):
        if getattr(ours, fact) != getattr(theirs, fact):
            yield f"{where}.{fact}: {getattr(ours, fact)}, not {getattr(theirs, fact)}"
            return
    if theirs.is_nested:
        yield from differences(list(ours.unbind()), list(theirs.unbind()), where, strides)
    elif ours.shape != theirs.shape:
        yield f"{where}.shape: {ours.shape}, not {theirs.shape}"
    elif strides and theirs.layout is torch.strided and ours.stride() != theirs.stride():
        yield f"{where}.stride(): {ours.stride()}, not {theirs.stride()}"
    elif theirs.device.type != "meta" and not torch.equal(_as_bytes(ours), _as_bytes(theirs)):
        yield f"{where}: {ours}, not {theirs}"


def _of_arrays(ours: Any, theirs: Any, where: str) -> Iterator[str]:
    if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
        yield f"{where}: {ours.dtype}{ours.shape}, not {theirs.dtype}{theirs.shape}"
    elif theirs.dtype.hasobject:
        yield from differences(ours.tolist(), theirs.tolist(), where)
    elif ours.tobytes() != theirs.tobytes():
        yield f"{where}: {ours}, not {theirs}"


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    values = tensor.detach()
    if values.layout is not torch.strided:
        values = values.to_dense()
    if type(values) is not torch.Tensor:
        values = values.as_subclass(torch.Tensor)
    values = values.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    return values.flatten().view(torch.uint8)


def in_any_order(batches: list[Any]) -> list[Any]:
    """Return the same batches in an order that depends on nothing but what they are."""
    return sorted(batches, key=_fingerprint)


def _fingerprint(value: Any) -> bytes:
    if isinstance(value, torch.Tensor):
        return repr((value.dtype, value.shape)).encode() + _as_bytes(value).numpy().tobytes()
    if isinstance(value, Mapping):
        return b"".join(map(_fingerprint, value.values()))
    if isinstance(value, list | tuple):
        return b"".join(map(_fingerprint, value))
    return pickle.dumps(value)
