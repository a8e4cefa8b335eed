"""Memory that grows while a worker only reads: reference counts are written to copied pages.

A forked worker shares its parent's pages until one of them writes. CPython counts references in the
object itself, so that looking at a string writes to its page, and the system then copies that page.
An array of numpy's has one such count for all its elements.

Before it: `sides`. After it: `growth_picture`, which draws it, and notebook 11.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from labkit.lab.failures.sides import SIDES, Side
from labkit.lab.shared_memory.ways import in_a_child
from labkit.lab.table import Table

__all__ = ["KINDS", "Grown", "Growth", "Names", "grow", "private_bytes"]

KINDS = {"list": "a list", "array": "an array"}
_STRINGS = 400_000
_PARTS = 10
_LIMIT_S = 120.0
_MUCH = 8e6  # bytes; the list takes three times that, what a worker does besides a third
_ROLLUP = Path("/proc/self/smaps_rollup")


class Names(Dataset[int]):
    """Short strings. A sample reads a tenth of them, and gives the worker's private bytes."""

    def __init__(self, kind: str) -> None:
        names = [f"images/{number:07d}.jpg" for number in range(_STRINGS)]
        self.names: Any = names if kind == "list" else np.array(names)

    def __len__(self) -> int:
        return _PARTS + 1

    def __getitem__(self, index: int) -> int:
        size = _STRINGS // _PARTS
        for name in self.names[(index - 1) * size : index * size] if index else ():
            del name
        return private_bytes()


def private_bytes() -> int:
    """What this process has for itself alone (proc(5)); 0 where the system does not tell."""
    if not _ROLLUP.exists():
        return 0
    return 1024 * sum(map(int, re.findall(r"Private_\w+:\s+(\d+)", _ROLLUP.read_text())))


@dataclass(frozen=True)
class Growth:
    """A worker's private memory.

    Attributes:
        package: "PyTorch" or "labkit".
        kind: how the strings are kept, one of `KINDS`.
        megabytes: on top of what there was before the first was read, after each tenth.
    """

    package: str
    kind: str
    megabytes: tuple[float, ...]

    @property
    def grows(self) -> bool:
        """Whether it took far more than a worker takes anyway."""
        return self.megabytes[-1] * 1e6 > _MUCH


@dataclass(frozen=True, repr=False)
class Grown(Table):
    """Who grew, as a table."""

    growths: Sequence[Growth]


def grow() -> Grown:
    """Read 400,000 short strings once in a forked worker: as a list, as an array, both loaders.

    Raises:
        RuntimeError: the experiment did not come to its end, or the system does not tell how much
            memory a process has for itself.
    """
    if not private_bytes():
        raise RuntimeError(f"this system has no {_ROLLUP}: private memory cannot be told apart")
    found: list[Growth] = in_a_child(_grow_each, seconds=_LIMIT_S)
    rows = [(KINDS[one.kind], one.package, "yes" if one.grows else "no") for one in found]
    heading = ("400,000 strings in", "loader", "its worker's memory grows")
    return Grown(heading, rows, found)


def _grow_each(send: Callable[[Any], None]) -> None:
    for kind in KINDS:
        dataset = Names(kind)
        for package in SIDES:
            first, *later = Side(package, "fork").batches(dataset, prefetch_factor=1)
            send(Growth(package, kind, tuple((byte - first) / 1e6 for byte in later)))
        del dataset
