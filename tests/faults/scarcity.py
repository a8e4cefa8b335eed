"""Special episodes in which something runs out: descriptors, memory, disk. See `special`."""

from __future__ import annotations

import errno
import multiprocessing
import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import labkit
from labkit.errors import TooManyOpenFiles, WorkerDied
from scripts.small_machine import Group, Limits
from tests.datasets import Mapped, Samples

__all__ = [
    "NotHere",
    "address_space_ends",
    "disk_full",
    "huge_pages",
    "in_a_process",
    "memory_of_the_control_group_ends",
    "no_descriptor_for_workers",
]

_GROUP_BYTES = 64 << 20


class NotHere(Exception):
    """This system has not what the episode needs; says what."""


def no_descriptor_for_workers() -> float:
    """With 0, 1, 2 … descriptors left: an error that says so, until there are enough."""
    began = time.monotonic()
    for wrap in (lambda loader: loader, labkit.Preloader):
        failed = 0
        for left in range(60):
            loader: Any = labkit.DataLoader(Samples(4), 2, num_workers=2)
            with _descriptors(left):
                try:
                    batches = [batch.tolist() for batch in wrap(loader)]
                except TooManyOpenFiles:
                    failed += 1
                    continue
            assert batches == [[0, 1], [2, 3]]
            break
        assert failed > 2
    return time.monotonic() - began


@contextmanager
def _descriptors(left: int) -> Iterator[None]:
    """While it is active, this process may open so many more."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe = os.open("/dev/null", os.O_RDONLY)  # the lowest that is free
    held = []
    try:
        highest = max(int(fd) for fd in os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, limits[1]))
        while True:  # fill the gaps
            try:
                held.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                break
        os.close(probe)
        probe = -1
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + max(0, left - 1), limits[1]))
        if left == 0:
            held.append(os.open("/dev/null", os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for fd in (*held, *([probe] if probe >= 0 else [])):
            os.close(fd)


def memory_of_the_control_group_ends() -> float:
    """A worker takes more than its group has: the system kills it."""
    above = Limits.here().group
    if above is None:
        raise NotHere("no control group with a memory limit can be made")
    group = Group(above, "faults")
    try:
        limit = group.folder / "memory.limit_in_bytes"
        (limit if limit.exists() else group.folder / "memory.max").write_text(str(_GROUP_BYTES))
        return in_a_process(_iterate_with_little_memory, group.folder / "cgroup.procs")
    finally:
        group.remove()


def _iterate_with_little_memory(procs: Path) -> float:
    procs.write_text(str(os.getpid()))
    batches = iter(labkit.DataLoader(Mapped(_take_memory), None, num_workers=1))
    assert next(batches) == 0
    (worker,) = multiprocessing.active_children()
    descriptor = os.pidfd_open(worker.pid or 0)
    multiprocessing.connection.wait([descriptor], 60)
    began = time.monotonic()
    with pytest.raises(WorkerDied, match="memory runs out") as caught:
        next(batches)
    assert (caught.value.signal, caught.value.batch) == ("SIGKILL", 1)
    seconds = time.monotonic() - began
    os.close(descriptor)
    return seconds


def _take_memory(index: int) -> int:
    if index == 1:
        Path("/proc/self/oom_score_adj").write_text("1000")  # this one, not its parent
        time.sleep(0.2)  # what was made before is sent
        bytearray(os.urandom(1 << 20) * (4 * _GROUP_BYTES >> 20))
    return index


def address_space_ends() -> float:
    """A worker that limits itself, and asks for too much once."""

    def make(index: int) -> int:
        if index == 2:
            with _limited(resource.RLIMIT_AS, 0):
                bytearray(1 << 30)
        return index

    return _one_fails(make, MemoryError, "")


def disk_full() -> float:
    """`/dev/full` has no room, ever."""

    def make(index: int) -> int:
        if index == 2:
            with open("/dev/full", "w") as file:
                file.write("sample")
        return index

    return _one_fails(make, OSError, os.strerror(errno.ENOSPC))


@contextmanager
def _limited(what: int, most: int) -> Iterator[None]:
    limits = resource.getrlimit(what)
    resource.setrlimit(what, (most, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(what, limits)


def _one_fails(make: Callable[[int], int], expected: type[Exception], words: str) -> float:
    """Sample 2 fails in its worker; the seconds until all others have come."""
    began = time.monotonic()
    batches = iter(labkit.DataLoader(Mapped(make), None, num_workers=2))
    given, errors = [], []
    while True:
        try:
            given.append(next(batches))
        except StopIteration:
            break
        except Exception as error:
            errors.append(error.with_traceback(None))
    assert given == [0, 1, 3, 4, 5, 6, 7]
    assert [type(error) for error in errors] == [expected]
    assert words in str(errors[0])
    return time.monotonic() - began


def huge_pages() -> float:
    """Where the system gives shared memory huge pages: batches of several of them, and a death."""
    setting = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
    chosen = setting.read_text().split("[")[1].split("]")[0] if setting.exists() else "never"
    if chosen in ("never", "deny"):
        raise NotHere(f"this system gives shared memory none (shmem_enabled: {chosen})")

    def make(index: int) -> torch.Tensor:
        if index == 3:
            os._exit(7)
        return torch.full((3 << 20,), float(index))

    batches = iter(labkit.DataLoader(Mapped(make), None, num_workers=1))
    began, given = time.monotonic(), 0
    try:
        for batch in batches:
            assert (batch == given).all()
            given += 1
            began = time.monotonic()
    except WorkerDied:
        return time.monotonic() - began
    raise AssertionError("the worker lives")


def in_a_process(function: Callable[..., float], *args: Any) -> float:
    """What it returns, in a forked process."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)

    def run() -> None:
        theirs.send(function(*args))

    process = context.Process(target=run)
    process.start()
    theirs.close()
    try:
        if not ours.poll(60):
            raise AssertionError("no answer")
        return ours.recv()
    except EOFError:
        raise AssertionError("it failed: see above") from None
    finally:
        process.join(10)
        process.kill()
        process.join()
        process.close()
        ours.close()
