"""What main process and workers say to each other, besides tasks: (batch number, indices)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["INTERRUPTED", "IterableEnd", "Printed", "Result", "Resume", "Unreadable"]

Result = tuple[int, Any, int]
"""Worker → main: (batch number, what came of it, samples in it). What came of a task is a batch, a
`WorkerException` or an `IterableEnd`. A plain tuple, for nothing is pickled faster.
"""


@dataclass
class Resume:
    """Main → worker: a new epoch begins; make a new fetcher. The worker sends it back."""

    serial: int  #: tells the answer to this one from a late answer to another
    epoch: int | None = None  #: passed to the dataset's `set_epoch`, if not None


@dataclass
class IterableEnd:
    """The worker's iterable dataset has ended."""

    dropped_samples: int  #: left out by `drop_last`
    asked_who_it_is: bool  #: whether the worker info was read, as a dataset must to shard itself


@dataclass
class Unreadable:
    """What stands in the main process for a message that it could not read."""

    error: Exception | None  #: None once it was taken: its traceback has frames that hold this


@dataclass
class Printed:
    """Worker → main: text that was written to stdout or stderr."""

    stream: str
    text: str


INTERRUPTED = 130
"""Exit code of a worker that Ctrl-C ended: 128 + SIGINT, as shells have it."""
