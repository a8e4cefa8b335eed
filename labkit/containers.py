"""A user's container with another content: what collating, converting and pinning share."""

from __future__ import annotations

import copy
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

__all__ = ["like_mapping", "like_sequence"]


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
