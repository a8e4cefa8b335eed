"""A user's container with another content, for collating, converting, pinning, preloading."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

__all__ = ["like_mapping", "like_sequence", "map_leaves"]


def map_leaves(
    batch: Any,
    change: Callable[[Any, str], Any],
    is_leaf: Callable[[Any], bool],
    path: str = "",
) -> Any:
    """The same batch with its leaves changed; the given one is left as it is.

    Entered are mappings, sequences and dataclasses, which keep their types. What is neither a leaf
    nor a container stays what it is, and so do strings.

    Args:
        batch: whatever a loader gives.
        change: (leaf, its path in the batch, such as "['image'][0]") → what takes its place.
        is_leaf: asked of everything first, so that a container may be a leaf, too.
        path: of `batch` in something larger.
    """
    if isinstance(batch, (str, bytes)):
        return batch
    if is_leaf(batch):
        return change(batch, path)

    def inner(part: Any, step: str) -> Any:
        return map_leaves(part, change, is_leaf, path + step)

    if isinstance(batch, Mapping):
        return like_mapping(batch, {key: inner(batch[key], f"[{key!r}]") for key in batch})
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(inner(getattr(batch, name), f".{name}") for name in batch._fields))
    if isinstance(batch, Sequence):
        elements = [inner(element, f"[{i}]") for i, element in enumerate(batch)]
        return type(batch)(elements) if isinstance(batch, tuple) else like_sequence(batch, elements)
    if is_dataclass(batch) and not isinstance(batch, type):
        clone = copy.copy(batch)
        for field in fields(batch):
            name = field.name
            object.__setattr__(clone, name, inner(getattr(batch, name), f".{name}"))
        return clone
    return batch


def like_mapping(model: Mapping[Any, Any], entries: dict[Any, Any]) -> Any:
    """A mapping of the model's type with these entries, as well as that type allows."""
    try:
        if isinstance(model, MutableMapping):
            clone = copy.copy(model)  # the type may carry more than its entries
            clone.update(entries)
            return clone
        return type(model)(entries)  # type: ignore[call-arg]
    except TypeError:
        return entries


def like_sequence(model: Sequence[Any], elements: list[Any]) -> Any:
    """A sequence of the model's type with these elements, as well as that type allows."""
    try:
        if isinstance(model, MutableSequence):
            clone = copy.copy(model)
            for i, element in enumerate(elements):
                clone[i] = element
            return clone
        return type(model)(elements)  # type: ignore[call-arg]
    except TypeError:
        return elements  # such as range
