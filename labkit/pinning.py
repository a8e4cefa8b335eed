"""Page-locked batches: what `pin_memory=True` does to a batch before it is given to the user.

Memory that is page-locked (pinned) can be copied to an accelerator while the program goes on. Where
there is no accelerator there is nothing to pin for, and the loader says so.

Before it: `iteration.py`. After it: the user.
Mirrors: torch/utils/data/_utils/pin_memory.py (`pin_memory`). Does better: containers keep their
type. Leaves out: the thread of its own.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch

from labkit.containers import like_mapping, like_sequence

__all__ = ["can_pin", "pin_batch"]


def can_pin() -> bool:
    """Whether there is an accelerator to pin memory for; warns, as PyTorch does, if not."""
    if torch.accelerator.is_available():
        return True
    warnings.warn(
        "'pin_memory' argument is set as true but no accelerator is found, then device pinned "
        "memory won't be used.",
        stacklevel=4,
    )
    return False


def pin_batch(batch: Any) -> Any:
    """The same batch with its tensors in page-locked memory; the given one is left as it is.

    Entered are mappings, sequences and dataclasses, which keep their types; what has a method
    `pin_memory` of its own is asked for it; all else, strings too, stays what it is.
    """
    if isinstance(batch, (str, bytes)):
        return batch
    if hasattr(batch, "pin_memory"):
        return batch.pin_memory()
    if isinstance(batch, Mapping):
        return like_mapping(batch, {key: pin_batch(value) for key, value in batch.items()})
    if isinstance(batch, tuple):
        pinned = [pin_batch(element) for element in batch]
        return type(batch)(*pinned) if hasattr(batch, "_fields") else type(batch)(pinned)
    if isinstance(batch, Sequence):
        return like_sequence(batch, [pin_batch(element) for element in batch])
    if is_dataclass(batch) and not isinstance(batch, type):
        clone = copy.copy(batch)
        for field in fields(batch):
            object.__setattr__(clone, field.name, pin_batch(getattr(batch, field.name)))
        return clone
    return batch
