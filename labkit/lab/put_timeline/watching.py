"""Put a tensor into a queue, and note what happens: `watch()`.

Two marks ride in the same message, before and behind the tensor: pickle asks each how it is
reduced, and each notes when and on which thread. A second process receives, and writes into what it
got.

Before it: `multiprocessing.Queue` and PyTorch's reducers. After it: `drawing`.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
import warnings
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from labkit.lab.doctor import sizes
from labkit.lab.explain.wording import duration

__all__ = ["Put", "watch"]

_MOST_BYTES = 8_000_000  # of the tensor: enough to see, and little for a small /dev/shm
_LIMIT_S = 30.0
_WRITTEN = 7


@dataclass(frozen=True)
class Put:
    """One `put`, in seconds since it was called.

    Attributes:
        nbytes: of the tensor.
        returned: `put` came back.
        pickling, pickled: the feeder thread's pickler was at the tensor, and past it.
        last_private, first_shared: `is_shared()` was last False, and first True.
        received: the other process had the tensor.
        shared_at_return: what `is_shared()` said right after `put` had come back.
        thread: the name of the thread that pickled.
        written_there_seen_here: what the other process wrote was in this process's tensor.
    """

    nbytes: int
    returned: float
    pickling: float
    pickled: float
    last_private: float
    first_shared: float
    received: float
    shared_at_return: bool
    thread: str
    written_there_seen_here: bool

    @property
    def sentence(self) -> str:
        """What was seen, in words."""
        right_after = "already shared" if self.shared_at_return else "not shared"
        there = "saw" if self.written_there_seen_here else "did not see"
        return (
            f"put() came back after {duration(self.returned)}; the tensor was {right_after} then. "
            f"The thread {self.thread} was at it from {duration(self.pickling)} to "
            f"{duration(self.pickled)}. is_shared() was last seen False at "
            f"{duration(self.last_private)} and first seen True at {duration(self.first_shared)}; "
            f"the other process had it after {duration(self.received)}. This process {there} what "
            "the other wrote into it."
        )


def watch(nbytes: int | None = None) -> Put:
    """Put a tensor of so many bytes into a queue, and watch; by default as large as suits here.

    Raises:
        TimeoutError: the tensor was not shared, or not received.
    """
    nbytes = nbytes or min(sizes().batch_bytes, _MOST_BYTES)
    methods = multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("fork" if "fork" in methods else "spawn")
    queue = context.Queue()
    ours, theirs = context.Pipe()
    process = context.Process(target=_receive, args=(queue, theirs), daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that this process has threads
        process.start()
    theirs.close()
    try:
        queue.put("a first message, for which the feeder thread is started")
        _answer(ours)  # it has come, so both sides are there
        return _watched(queue, ours, torch.zeros(nbytes, dtype=torch.uint8))
    finally:
        process.terminate()
        process.join()
        process.close()
        ours.close()
        queue.close()
        queue.cancel_join_thread()  # what nobody received would be waited for


def _receive(queue: Any, report: Connection) -> None:
    """In the other process."""
    queue.get()
    report.send(time.monotonic())
    _, tensor, _ = queue.get()
    report.send(time.monotonic())
    tensor[0] = _WRITTEN
    report.send(time.monotonic())
    report.poll(None)  # the tensor's memory is kept until this process is ended


def _answer(report: Connection) -> float:
    if not report.poll(_LIMIT_S):
        raise TimeoutError(f"the process that receives said nothing for {_LIMIT_S:g} s")
    moment: float = report.recv()
    return moment


def _watched(queue: Any, report: Connection, tensor: torch.Tensor) -> Put:
    before, behind = _Mark(), _Mark()
    called = time.monotonic()
    queue.put((before, tensor, behind))
    returned = time.monotonic()
    shared_at_return = tensor.is_shared()  # type: ignore[no-untyped-call]
    last_private = returned
    while not tensor.is_shared():  # type: ignore[no-untyped-call]
        last_private = time.monotonic()
        if last_private > called + _LIMIT_S:
            raise TimeoutError(f"the tensor was not shared after {_LIMIT_S:g} s")
        time.sleep(0)  # the feeder thread wants the interpreter's lock
    first_shared = time.monotonic()
    received = _answer(report)
    _answer(report)  # it has written
    return Put(
        nbytes=tensor.nbytes,
        returned=returned - called,
        pickling=before.moment - called,
        pickled=behind.moment - called,
        last_private=last_private - called,
        first_shared=first_shared - called,
        received=received - called,
        shared_at_return=shared_at_return,
        thread=before.thread,
        written_there_seen_here=int(tensor[0]) == _WRITTEN,
    )


@dataclass
class _Mark:
    """Notes when, and on which thread, it was pickled."""

    moment: float = 0.0
    thread: str = ""

    def __reduce__(self) -> tuple[type[str], tuple[()]]:
        self.moment = time.monotonic()
        self.thread = threading.current_thread().name
        return str, ()
