"""Where two batches part: the first difference in types, shapes, dtypes or values, in words.

Before it: the checks on collate functions.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["first_difference"]


def first_difference(got: Any, expected: Any, at: str = "batch") -> str | None:
    """A sentence on the first difference, or None if there is none.

    Args:
        at: how to call `got`; its parts are called `at[0]`, `at['key']`.
    """
    if type(got) is not type(expected):
        return f"{at} is {_kind(got)} where {_kind(expected)} was expected"
    if isinstance(expected, torch.Tensor):
        return _tensor_difference(got, expected, at)
    if isinstance(expected, dict):
        if got.keys() != expected.keys():
            return f"{at} has the keys {list(got)}, expected were {list(expected)}"
        return _first(got, expected, list(expected), at)
    if isinstance(expected, list):
        if len(got) != len(expected):
            return f"{at} has {_entries(len(got))}, expected were {len(expected)}"
        return _first(got, expected, range(len(expected)), at)
    return None if got == expected else f"{at} is {got!r}, expected was {expected!r}"


def _first(got: Any, expected: Any, keys: Any, at: str) -> str | None:
    for key in keys:
        found = first_difference(got[key], expected[key], f"{at}[{key!r}]")
        if found:
            return found
    return None


def _tensor_difference(got: torch.Tensor, expected: torch.Tensor, at: str) -> str | None:
    for name in ("shape", "dtype"):
        mine, wanted = getattr(got, name), getattr(expected, name)
        if mine != wanted:
            mine, wanted = (tuple(x) if name == "shape" else x for x in (mine, wanted))
            return f"{at} has the {name} {mine}, expected was {wanted}"
    if torch.equal(got, expected):
        return None
    return f"{at} is {got.tolist()}, expected was {expected.tolist()}"


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
