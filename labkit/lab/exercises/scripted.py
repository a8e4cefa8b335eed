"""What a worker loop is given in the exercise: queues that follow a script, a parent that may die.

Nothing here waits: a `get()` that could wait for ever says so at once, and one with a timeout comes
back empty. Before it: `checks_03_worker_loop`, which writes the scripts.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data._utils.fetch import _BaseDatasetFetcher
from torch.utils.data._utils.worker import _IterableDatasetStopIteration, _ResumeIteration
from torch.utils.data.dataloader import _DatasetKind, default_collate

__all__ = ["DONE", "WORKER_ID", "CreateFetcher", "Parent", "Run", "as_text"]

WORKER_ID = 3

DONE = object()
"""In a script: here `done_event` is set."""

_PATIENCE = 100  # looks into an empty queue


class Run:
    """One life of the loop, by a script.

    Attributes:
        results: what is in the data queue.
        trouble: in words, how it left the script, or None.
    """

    def __init__(
        self,
        worker_loop: Callable[..., None],
        create_fetcher: CreateFetcher,
        script: Sequence[Any],
        parent_answers: int | None = None,
    ) -> None:
        data_queue, done_event = DataQueue(), threading.Event()
        self.create_fetcher, self.trouble = create_fetcher, None
        self.index_queue = IndexQueue(script, done_event, data_queue)
        parent = Parent(parent_answers)
        queues = (self.index_queue, data_queue)
        try:
            worker_loop(create_fetcher, *queues, done_event, WORKER_ID, parent)
        except OffScript as found:
            self.trouble = str(found)
        self.results = [_readable(result) for result in data_queue.results]


def _readable(result: Any) -> Any:
    """Batches as lists, so that they can be compared and read."""
    if isinstance(result, tuple):
        return tuple(_readable(part) for part in result)
    return result.tolist() if isinstance(result, torch.Tensor) else result


def as_text(result: Any) -> str:
    """Results as text, without what differs from run to run."""
    if isinstance(result, (list, tuple)):
        parts = ", ".join(map(as_text, result))
        return f"[{parts}]" if isinstance(result, list) else f"({parts})"
    if isinstance(result, ExceptionWrapper):
        return f"ExceptionWrapper(where={result.where!r})"
    if isinstance(result, _IterableDatasetStopIteration):
        return f"IterableEnd({result.worker_id!r})"
    if isinstance(result, _ResumeIteration):
        return "resume"
    return repr(result)


class OffScript(BaseException):
    """The loop does what it should not. No `Exception`: loops catch those of the dataset."""


class IndexQueue:
    """Gives the entries of a script: tasks, `ResumeIteration`s, `None`; sets the event at `DONE`.

    Attributes:
        ended: `None` was taken.
        late: when more was asked for, a task taken before had no result yet.
    """

    def __init__(
        self, script: Sequence[Any], done_event: threading.Event, data_queue: DataQueue
    ) -> None:
        self._script = list(script)
        self._done_event, self._data_queue = done_event, data_queue
        self._empty_looks = self._taken = 0
        self.ended = self.late = False

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """The next entry.

        Raises:
            queue.Empty: there is none, and a timeout was given.
            OffScript: there is none, and the loop would wait or look for ever.
        """
        if self.ended:
            raise OffScript("after `None` it asked the index queue for more")
        self.late |= len(self._data_queue.results) < self._taken
        if self._script and self._script[0] is DONE:
            self._script.pop(0)
            self._done_event.set()
        if self._script:
            entry = self._script.pop(0)
            self.ended = entry is None
            self._taken += 1
            return entry
        if block and timeout is None:
            raise OffScript("it waits for ever: `get()` without a timeout, and nobody is there")
        self._empty_looks += 1
        if self._empty_looks > _PATIENCE:
            raise OffScript("it looks into the empty index queue for ever")
        raise queue.Empty

    def get_nowait(self) -> Any:
        """As `get`, without waiting."""
        return self.get(block=False)

    def empty(self) -> bool:
        """Whether a `get` would have to wait."""
        return not self._script


class DataQueue:
    """Keeps what is put into it, in `results`."""

    def __init__(self) -> None:
        self.results: list[Any] = []

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Keep an item."""
        self.results.append(item)


class Parent:
    """`parent_is_alive`: says yes so many times, then no for good; None: always yes."""

    def __init__(self, answers: int | None = None) -> None:
        self._answers = answers

    def __call__(self) -> bool:
        if self._answers is None:
            return True
        self._answers -= 1
        return self._answers >= 0


class CreateFetcher:
    """`create_fetcher`: makes PyTorch's fetcher for a dataset, and counts.

    Attributes:
        made: how many fetchers were made.
        fetched: the indices of every fetch.
    """

    def __init__(self, dataset: Any, is_iterable: bool = False) -> None:
        self._dataset = dataset
        self._kind = _DatasetKind.Iterable if is_iterable else _DatasetKind.Map
        self.made = 0
        self.fetched: list[Any] = []

    def __call__(self) -> CountedFetcher:
        self.made += 1
        fetcher = _DatasetKind.create_fetcher(  # type: ignore[no-untyped-call]
            self._kind, self._dataset, True, default_collate, False
        )
        return CountedFetcher(fetcher, self.fetched)


class CountedFetcher:
    """A fetcher of PyTorch's that notes what it was asked for."""

    def __init__(self, fetcher: _BaseDatasetFetcher, fetched: list[Any]) -> None:
        self._fetcher, self._fetched = fetcher, fetched

    def fetch(self, indices: Any) -> Any:
        """The batch of these indices."""
        self._fetched.append(indices)
        return self._fetcher.fetch(indices)
