"""What a loader costs besides time: memory, shared memory, page faults, descriptors, bytes sent.

Measured on a loader that nobody times, since looking takes time itself. Linux tells all of it
through /proc; elsewhere what cannot be known is None.

Memory is PSS, "proportional set size" (proc(5)): a page that n processes map counts as 1/n in each,
so a sum over processes counts every page once. PSS leaves out shared memory that a process holds
open without mapping it, as a batch under way is; so files are counted, too, by their blocks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_sharer
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

from labkit.lab import need
from labkit.sharing import BatchPickler, building_in, get_sharing_strategy, make_sender

__all__ = [
    "Resources",
    "end_epoch",
    "faults_a_batch",
    "labkit_message_bytes",
    "measure",
    "running",
    "shared_memory_bytes",
    "torch_message_bytes",
]

_SAMPLES = 5
_SETTLE_SECONDS = 0.05  # before each look, so that the workers have all ready that they may
_SHARED_FILES = ("/memfd:", "/dev/shm/")
_SYSTEM_HAS_PSS = Path("/proc/self/smaps_rollup").exists()


@dataclass
class Resources:
    """What one loader took; peaks are over this process and all that it started."""

    memory_bytes: int | None = None  #: peak
    memory_before_bytes: int | None = None  #: of this process, before the loader was made
    shared_bytes: int | None = None  #: peak of shared memory, part of `memory_bytes`
    minor_faults_a_batch: float | None = None
    fds: int | None = None  #: peak of this process's open descriptors, less those before
    worker_fds: int | None = None  #: peak, all other processes together
    message_bytes: int | None = None  #: from a worker to this process, a batch


def end_epoch(batches: Any) -> None:
    """End an epoch that may not have come to its end, workers and all, of either loader."""
    for name in ("close", "_shutdown_workers"):  # labkit's and a generator's; PyTorch's
        end = getattr(batches, name, None)
        if end is not None:
            end()
            return


@contextmanager
def running(loader: Iterable[Any]) -> Iterator[Iterator[Any]]:
    """One epoch of a loader, which is ended at the end, workers and all."""
    batches = iter(loader)
    try:
        yield batches
    finally:
        end_epoch(batches)


def measure(
    make_loader: Callable[[], Iterable[Any]], warmup: int, min_batches: int, seconds: float
) -> Resources:
    """Measure all but the message.

    Args:
        make_loader: gives a fresh loader.
        warmup: batches before anything is looked at.
        min_batches: over which page faults are counted, at least,
        seconds: and how long, at least.
    """
    memory_before, _ = _memory()
    fds_before = len(_fds(os.getpid()))
    with running(make_loader()) as batches:
        for _ in range(warmup):
            batch = next(batches)
        del batch  # a loop holds one batch, not two
        faults = faults_a_batch(batches, min_batches, seconds)
        looks = []
        for _ in range(_SAMPLES):
            batch = next(batches)
            time.sleep(_SETTLE_SECONDS)
            looks.append((*_memory(), len(_fds(os.getpid())), sum(map(len, map(_fds, _others())))))
        del batch
    memory, shared, fds, worker_fds = zip(*looks, strict=True)
    return Resources(
        memory_bytes=max(memory) if _SYSTEM_HAS_PSS else None,
        memory_before_bytes=memory_before if _SYSTEM_HAS_PSS else None,
        shared_bytes=max(shared) if _SYSTEM_HAS_PSS else None,
        minor_faults_a_batch=faults,
        fds=max(fds) - fds_before,
        worker_fds=max(worker_fds),
    )


def _others() -> list[int]:
    return [child.pid for child in need("psutil").Process().children(recursive=True)]


def _memory() -> tuple[int, int]:
    """Bytes of memory, and of shared memory in it, of this process and all that it started."""
    pids = [os.getpid(), *_others()]
    rollups = [_rollup(pid) for pid in pids]
    mapped = sum(rollup.get("Pss_Shmem", 0) for rollup in rollups)
    files: dict[tuple[int, int], int] = {}
    for pid in pids:
        files.update(_shared_files(pid))
    shared = max(mapped, sum(files.values()))  # the same pages, nearly all of them
    return sum(rollup.get("Pss", 0) for rollup in rollups) - mapped + shared, shared


def shared_memory_bytes() -> int:
    """Bytes of shared memory that this process and all that it started have between them."""
    return _memory()[1]


def _rollup(pid: int) -> dict[str, int]:
    """The sizes in smaps_rollup, in bytes by name; none for a process that is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return {}
    return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}


def _fds(pid: int) -> list[str]:
    try:
        return [f"/proc/{pid}/fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return []


def _shared_files(pid: int) -> dict[tuple[int, int], int]:
    """Bytes in memory of each shared file that the process holds open, by device and inode."""
    sizes = {}
    for fd in _fds(pid):
        with suppress(OSError):
            if os.readlink(fd).startswith(_SHARED_FILES):
                status = os.stat(fd)
                sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sizes


def faults_a_batch(batches: Iterator[Any], min_batches: int, seconds: float) -> float | None:
    """Minor page faults, a batch, of this process and its children; None where nobody tells.

    Args:
        batches: of enough batches.
        min_batches: counted over so many at least, and for `seconds` at least.
    """
    pids = [os.getpid(), *_others()]
    before = _minor_faults(pids)
    deadline = time.perf_counter() + seconds
    count = 0
    while count < min_batches or time.perf_counter() < deadline:
        batch = next(batches)
        count += 1
    after = _minor_faults(pids)
    del batch
    return None if before is None or after is None else (after - before) / count


def _minor_faults(pids: list[int]) -> int | None:
    try:
        stats = [Path(f"/proc/{pid}/stat").read_text() for pid in pids]
    except OSError:
        return None
    return sum(int(stat.rpartition(")")[2].split()[7]) for stat in stats)  # minflt of proc(5)


def labkit_message_bytes(samples: list[Any], collate_fn: Callable[[Any], Any]) -> int:
    """The length of what a labkit worker sends for these samples with the default strategy.

    It is the second message's: the first one also introduces the memory.
    """
    sender = make_sender(get_sharing_strategy())
    pickler = BatchPickler(sender)
    try:
        with building_in(sender.allocate):
            for number in range(2):
                parts, parcel = pickler.dumps((number, collate_fn(samples), 0))
                sender.withdraw(parcel)
                del parcel
    finally:
        sender.close()
    return sum(map(len, parts))


def torch_message_bytes(samples: list[Any], collate_fn: Callable[[Any], Any]) -> int:
    """The length of what PyTorch's worker puts on its result queue for these samples.

    The descriptors of its tensors come over further connections, which are not counted.
    """
    message = ForkingPickler.dumps((0, collate_fn(samples)))
    try:
        ForkingPickler.loads(message)  # takes the descriptors, which would stay open
    finally:
        resource_sharer.stop()  # the thread that gives them out, if there is one
    return len(message)
