"""Sharing strategies by name: what this platform offers, and the default.

Read on in the order of a batch's way: `segment` (memory that two processes map), `strategies` and
`arena` (what of it travels), `pickling` with `reducers` (a batch as a message), `report`.

Mirrors: torch.multiprocessing (`get_sharing_strategy`, `set_sharing_strategy`,
`get_all_sharing_strategies`).
"""

from __future__ import annotations

import math
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from labkit.sharing.arena import Arena
from labkit.sharing.arena_strategy import ArenaReceiver, ArenaSender
from labkit.sharing.pickling import BatchPickler, loads
from labkit.sharing.report import private_arena, report
from labkit.sharing.segment import PageLocker, Segment
from labkit.sharing.strategies import (
    CopyReceiver,
    CopySender,
    FileDescriptorReceiver,
    FileDescriptorSender,
    FileSystemReceiver,
    FileSystemSender,
    Receiver,
    Sender,
)

__all__ = [
    "Arena",
    "BatchPickler",
    "PageLocker",
    "Receiver",
    "Segment",
    "Sender",
    "building_in",
    "check_sharing_strategy",
    "empty_shared",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "loads",
    "make_receiver",
    "make_sender",
    "private_arena",
    "report",
    "set_sharing_strategy",
]

_STRATEGIES = ("copy", "file_descriptor", "file_system", "arena")


def _works_here(strategy: str) -> bool:
    if strategy in ("arena", "file_descriptor"):
        return hasattr(socket, "send_fds")  # descriptors cannot travel on Windows
    if strategy == "file_system":
        return hasattr(os, "link") and sys.platform != "win32"  # which removes no name in use
    return True


_chosen: str | None = None


class _Building(threading.local):
    allocate: Callable[[int], object] | None = None


_building = _Building()


def get_all_sharing_strategies() -> set[str]:
    """The names of the strategies that work on this platform."""
    return {strategy for strategy in _STRATEGIES if _works_here(strategy)}


def get_sharing_strategy() -> str:
    """The strategy of loaders that name none: the one that was set, else "arena" where it works,
    else "copy".
    """
    return _chosen or ("arena" if _works_here("arena") else "copy")


def set_sharing_strategy(new_strategy: str) -> None:
    """Set the strategy of loaders that name none; loaders that run keep theirs.

    Raises:
        ValueError: no such strategy here.
    """
    global _chosen
    check_sharing_strategy(new_strategy)
    _chosen = new_strategy


def check_sharing_strategy(name: str) -> None:
    """Raise a ValueError that says what there is, if there is no such strategy here."""
    if name not in get_all_sharing_strategies():
        known = ", ".join(repr(known) for known in sorted(get_all_sharing_strategies()))
        raise ValueError(
            f"unknown sharing_strategy {name!r}: on this machine write one of {known}, or None for "
            f"the default ({get_sharing_strategy()!r})"
        )


def make_sender(
    strategy: str,
    receiver_pid: int | None = None,
    arena_limit_bytes: int | None = None,
    keeps_pages: bool = False,
) -> Sender:
    """The worker's half of the strategy of that name.

    Args:
        strategy: one of `get_all_sharing_strategies()`.
        receiver_pid: the process that receives; this one if None.
        arena_limit_bytes: for "arena": how much may be in use at once.
        keeps_pages: for "arena": the receiver page-locks what it gets.
    """
    if strategy == "arena":
        return ArenaSender(arena_limit_bytes, keeps_pages)
    if strategy == "file_system":
        return FileSystemSender(receiver_pid or os.getpid())
    return FileDescriptorSender() if strategy == "file_descriptor" else CopySender()


def make_receiver(
    strategy: str, worker: str = "a worker", page_locker: PageLocker | None = None
) -> Receiver:
    """The main process's half, for one worker; `worker` is its name in a report.

    With "arena", `page_locker` page-locks the memory that it gives out, where it can.
    """
    if strategy == "arena":
        return ArenaReceiver(worker, page_locker)
    if strategy == "file_system":
        return FileSystemReceiver()
    return FileDescriptorReceiver() if strategy == "file_descriptor" else CopyReceiver()


@contextmanager
def building_in(allocate: Callable[[int], object] | None) -> Iterator[None]:
    """While it is active, `empty_shared` on this thread takes its memory from `allocate`."""
    before = _building.allocate
    _building.allocate = allocate
    try:
        yield
    finally:
        _building.allocate = before


def empty_shared(shape: Sequence[int] | int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """An uninitialised tensor where a batch is best built: in a worker, in the memory that its
    strategy shares, so that nothing is copied when the batch is sent; elsewhere, as `torch.empty`.

    A collate function that knows this one is as fast as the default one:

        def my_collate(samples):
            batch = labkit.empty_shared((len(samples), 3, 224, 224), torch.float32)
            return torch.stack(samples, out=batch)

    Args:
        shape: of the batch, for instance (batch, channels, height, width).
        dtype: `torch.get_default_dtype()` if None.
    """
    if isinstance(shape, int):
        shape = (shape,)
    dtype = dtype or torch.get_default_dtype()
    count = math.prod(shape)
    if _building.allocate is None or count == 0:
        return torch.empty(tuple(shape), dtype=dtype)
    memory = _building.allocate(count * dtype.itemsize)
    flat = torch.frombuffer(memory, dtype=dtype, count=count)
    return flat.resize_(*shape) if len(shape) else flat.resize_(())
