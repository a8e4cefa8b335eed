"""What a batch is made of, and how many bytes that is.

Before it: a batch. After it: `probe`.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch

__all__ = ["bytes_of", "kinds_of"]


def _parts(batch: Any) -> Iterator[Any]:
    if isinstance(batch, Mapping):
        for value in batch.values():
            yield from _parts(value)
    elif isinstance(batch, list | tuple | set | frozenset):
        for value in batch:
            yield from _parts(value)
    elif is_dataclass(batch) and not isinstance(batch, type):
        for one in fields(batch):
            yield from _parts(getattr(batch, one.name))
    else:
        yield batch


def bytes_of(batch: Any) -> int:
    """How much memory a batch takes, without what containers add."""
    return sum(map(_bytes_of_part, _parts(batch)))


def _bytes_of_part(part: Any) -> int:
    if isinstance(part, torch.Tensor):
        return part.numel() * part.element_size() if part.layout is torch.strided else 0
    if isinstance(part, np.ndarray) and part.dtype != object:
        return int(part.nbytes)
    if isinstance(part, str | bytes | bytearray | int | float | complex | bool | None):
        return sys.getsizeof(part)
    try:
        return len(pickle.dumps(part))
    except Exception:
        return sys.getsizeof(part)


def kinds_of(batch: Any) -> Iterator[str]:
    """What its parts are, such as "tensor (32, 3, 224, 224) float32"."""
    for part in _parts(batch):
        if isinstance(part, torch.Tensor | np.ndarray):
            kind = "tensor" if isinstance(part, torch.Tensor) else "array"
            yield f"{kind} {tuple(part.shape)} {str(part.dtype).removeprefix('torch.')}"
        else:
            yield type(part).__name__
