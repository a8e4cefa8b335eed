"""Pickle by value what the other process could not import: a notebook's class, a lambda.

The standard pickle writes the name of a class or function and leaves its import to the reader;
`cloudpickle` writes the thing itself where the name leads nowhere. An instance that comes back
finds its class again: cloudpickle knows the classes that it sent.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import cloudpickle

__all__ = ["by_value_pickler", "by_value_reducers"]


def by_value_pickler(reducers: Mapping[Any, Any]) -> type[pickle.Pickler]:
    """A pickler class that works by value, with these reducers by type.

    The table belongs to the class, for cloudpickle's has one of its own, which would hide an
    instance's.
    """
    members = {"dispatch_table": reducers}
    pickler: type[pickle.Pickler] = type("ByValuePickler", (cloudpickle.Pickler,), members)
    return pickler


def by_value_reducers() -> Mapping[Any, Any]:
    """The reducers that cloudpickle needs, and all that are registered with copyreg."""
    table: Mapping[Any, Any] = cloudpickle.Pickler.dispatch_table
    return table
