"""Every error of labkit's, really raised: when it comes, and what it says.

The broken loaders of notebook 11 have raised most of them. The others are raised here.

Before it: `outcome`, and `labkit.errors`. After it: notebook 11.
"""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import Dataset

import labkit
from labkit.errors import LabkitError
from labkit.lab.failures.outcome import Beside
from labkit.lab.shared_memory.holdings import remove_names
from labkit.lab.shared_memory.ways import in_a_child
from labkit.lab.table import Table

__all__ = ["Errors", "every_error"]

_LIMIT_S = 60.0
_NAMES_SECONDS = 20.0  # until a worker has made them
_HEADING = ("raised", "when", "what it says")
_WIDTH, _IN = 80, "    "


@dataclass(frozen=True, repr=False)
class Errors(Table):
    """Errors, as a table, whose text is for reading."""

    def __repr__(self) -> str:
        parts = []
        for error, when, said in self.rows:
            parts.append(f"{error}: {when}")
            for line in str(said).splitlines():
                parts += textwrap.wrap(line, _WIDTH, initial_indent=_IN, subsequent_indent=_IN)
        return "\n".join(parts)

    __str__ = __repr__

    def _repr_html_(self) -> str:
        # A time-out's message has lines of its own: where the worker is.
        return super()._repr_html_().replace('<td style="', '<td style="white-space: pre-line; ')


def every_error(*broken: Beside) -> Errors:
    """What labkit's side of these failures raised, and the errors that no failure leads to.

    Raises:
        RuntimeError: one of those was not raised; says what was written.
    """
    rows: dict[str, tuple[str, str]] = {}
    for side in (pair.labkit for pair in broken):
        if hasattr(labkit.errors, side.error):  # as KeyboardInterrupt is not
            rows.setdefault(side.error, (side.failure, side.says))
    found: list[tuple[str, str, str]] = in_a_child(_raise_each, seconds=_LIMIT_S)
    rows |= {error: (when, said) for error, when, said in found}
    return Errors(_HEADING, [(error, *rest) for error, rest in rows.items()])


def _raise_each(send: Callable[[Any], None]) -> None:
    for when, load in _LOADS.items():
        try:
            load()
        except LabkitError as error:
            send((type(error).__name__, when, str(error)))


def _two_shapes() -> None:
    next(iter(labkit.DataLoader([torch.zeros(2), torch.zeros(3)], batch_size=2)))  # type: ignore[arg-type]


def _any_object() -> None:
    next(iter(labkit.DataLoader([object()])))  # type: ignore[arg-type]


class _Loading(Dataset[Any]):
    """A dataset that loads its sample by workers of its own."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:
        return next(iter(labkit.DataLoader(range(1), num_workers=1)))  # type: ignore[arg-type]


def _workers_in_a_worker() -> None:
    next(iter(labkit.DataLoader(_Loading(), num_workers=1, multiprocessing_context="fork")))


def _removed_names() -> None:
    batches = iter(
        labkit.DataLoader(
            torch.zeros(2, 1 << 16),  # type: ignore[arg-type]
            num_workers=1,
            multiprocessing_context="fork",
            sharing_strategy="file_system",
            prefetch_factor=1,
        )
    )
    deadline = time.monotonic() + _NAMES_SECONDS
    while not remove_names([os.getpid()]) and time.monotonic() < deadline:
        time.sleep(0.01)
    next(batches)


_LOADS: dict[str, Callable[[], None]] = {
    "two samples of a batch differ in shape": _two_shapes,
    "a sample is an object that no tensor holds": _any_object,
    "a dataset in a worker starts workers": _workers_in_a_worker,
    "somebody empties /dev/shm": _removed_names,
}
