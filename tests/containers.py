"""Containers as users write them: what a sample, a batch or a message may be made of."""

from collections import namedtuple
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, MutableSequence, Sequence
from dataclasses import dataclass
from typing import Any

Point = namedtuple("Point", ["x", "y"])


class Record(dict):
    """A dict with an attribute and a method."""

    source = "made here"

    def first(self) -> Any:
        return next(iter(self.values()))


class Row(list):
    """A list with an attribute."""


class FrozenRecord(Mapping):
    """A mapping that cannot be changed."""

    def __init__(self, entries: Mapping[Any, Any]) -> None:
        self._entries = dict(entries)

    def __getitem__(self, key: Any) -> Any:
        return self._entries[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class WordyRecord(FrozenRecord, MutableMapping):
    """A mapping whose constructor is its own affair and which refuses to be copied."""

    def __init__(self, *, entries: Mapping[Any, Any]) -> None:
        self._entries = dict(entries)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._entries[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._entries[key]

    def __copy__(self) -> "WordyRecord":
        raise TypeError("there is only one")


class FrozenRow(Sequence):
    """A sequence that cannot be changed."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = list(items)

    def __getitem__(self, i: Any) -> Any:
        return self._items[i]

    def __len__(self) -> int:
        return len(self._items)


class ElementwiseRow(FrozenRow, MutableSequence):
    """A sequence that takes an element at a time, and no slices."""

    def __setitem__(self, i: Any, item: Any) -> None:
        if not isinstance(i, int):
            raise TypeError("one at a time")
        self._items[i] = item

    def __delitem__(self, i: Any) -> None:
        del self._items[i]

    def insert(self, i: int, item: Any) -> None:
        self._items.insert(i, item)

    def __copy__(self) -> "ElementwiseRow":
        return ElementwiseRow(self._items)


@dataclass
class Pair:
    """A dataclass."""

    left: Any
    right: Any


@dataclass(frozen=True)
class FrozenPair:
    """A dataclass that cannot be changed."""

    left: Any
    right: Any
