"""A dataset that takes a lock of its module for each sample, as one that fills a cache does; and a
thread that holds the lock for a while.

Every process that imports this module makes a lock of its own; a forked one inherits the lock as it
is at that moment. Before it: notebook 02.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch.utils.data import Dataset

__all__ = ["Locked", "held_by_a_thread", "lock"]

lock = threading.Lock()


class Locked(Dataset[int]):
    """Samples whose value is their index, each given while the module's lock is held."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        with lock:
            return index


@contextmanager
def held_by_a_thread() -> Iterator[None]:
    """Inside, another thread of this process holds the lock."""
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold, name="holds the lock")
    thread.start()
    held.wait()
    try:
        yield
    finally:
        done.set()
        thread.join()
