"""Keep batches where descriptors or /dev/shm are short: what fails, and what it says.

Each way runs in a child process whose limits are lowered: on open files by setrlimit(2), and for
/dev/shm by a private mount of a small tmpfs, which takes a mount namespace (unshare(2)) that many
containers refuse. Before it: notebook 05. After it: `ways`, `table`.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from labkit.lab.resources import running
from labkit.lab.shared_memory.holdings import DEV_SHM, remove_names
from labkit.lab.shared_memory.ways import LABKIT, PYTORCH, Bundles, Way, in_a_child
from labkit.lab.table import Table

__all__ = ["FullDevShm", "Outcome", "can_mount", "full_dev_shm", "keep_all"]

_LIMIT_S = 60.0
_GRACE_SECONDS = 0.5  # for whoever tidies up after a loader
_SMALL = 8 << 20  # bytes of the private mount
_BATCH = 12_000_000  # more than that
_NEWNS, _NEWUSER = 0x0002_0000, 0x1000_0000  # unshare(2)
_REC, _PRIVATE = 1 << 14, 1 << 18  # mount(2)


@dataclass(frozen=True)
class Outcome:
    """What came of an attempt to keep all batches.

    Attributes:
        batches: how many were had.
        wanted: of how many.
        error: the name of the exception's class; "" if there was none.
        message: what it says.
        left: how many names were left in /dev/shm when the loader was gone. They are removed.
    """

    batches: int
    wanted: int
    error: str = ""
    message: str = ""
    left: int = 0

    @property
    def words(self) -> str:
        """In a few words that are the same everywhere."""
        return self.error or f"all {self.wanted} batches"


def keep_all(
    ways: Sequence[Way],
    batches: int,
    tensors: int = 1,
    tensor_bytes: int = 8,
    *,
    descriptors: int | None = None,
    shm_bytes: int | None = None,
) -> dict[str, Outcome]:
    """Load so many batches and keep them all, each way in its turn, under lowered limits.

    Args:
        ways: what to try.
        batches: how many, of one sample each.
        tensors: in each.
        tensor_bytes: of each.
        descriptors: how many more may be opened than there are before the loader is made.
        shm_bytes: the size of /dev/shm.

    Returns:
        By the ways' labels, what came of it.

    Raises:
        PermissionError: this system lets nobody mount a /dev/shm of its own.
    """
    if shm_bytes is not None and not can_mount():
        raise PermissionError("a private /dev/shm cannot be mounted here: it takes a namespace")
    dataset = Bundles(batches, tensors, tensor_bytes)
    found = in_a_child(_keep_each, ways, dataset, descriptors, shm_bytes, seconds=_LIMIT_S)
    return {way.label: outcome for way, outcome in zip(ways, found, strict=True)}


def _keep_each(
    send: Callable[[Any], None],
    ways: Sequence[Way],
    dataset: Bundles,
    descriptors: int | None,
    shm_bytes: int | None,
) -> None:
    if shm_bytes is not None:
        _mount_dev_shm(shm_bytes)
    torch.set_num_threads(1)
    for way in ways:
        send(_kept(way, dataset, descriptors))


def _kept(way: Way, dataset: Bundles, descriptors: int | None) -> Outcome:
    kept: list[Any] = []
    pids = [os.getpid()]
    error: Exception | None = None
    with _at_most(descriptors):
        try:
            with running(way.loader(dataset, batch_size=1)) as batches:
                pids += [worker.pid for worker in multiprocessing.active_children() if worker.pid]
                kept.extend(batches)
        except (RuntimeError, OSError) as raised:
            error = raised.with_traceback(None)
        count = len(kept)
        kept.clear()
    left = remove_names(pids, grace_seconds=_GRACE_SECONDS)
    if error is None:
        return Outcome(count, len(dataset), left=left)
    return Outcome(count, len(dataset), type(error).__name__, str(error), left)


@contextmanager
def _at_most(descriptors: int | None) -> Iterator[None]:
    """Inside, no more than so many can be opened on top of those that there are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors is not None:
        there = len(os.listdir("/proc/self/fd")) - 1  # less the one that lists them
        resource.setrlimit(resource.RLIMIT_NOFILE, (there + descriptors, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@dataclass(frozen=True, repr=False)
class FullDevShm(Table):
    """What came of batches that are larger than /dev/shm, as a table.

    Attributes:
        outcomes: by the ways' labels.
        how: in words, how /dev/shm was made too small here.
    """

    outcomes: dict[str, Outcome]
    how: str


def full_dev_shm(ways: Sequence[Way] = (*LABKIT, *PYTORCH)) -> FullDevShm:
    """Load two batches, each larger than /dev/shm, each way.

    With a private mount of 8 MiB where that is allowed. Elsewhere with this machine's own, if it is
    small enough to be exceeded for real; if it is not, then only the ways that put batches there
    are asked for so much, which the system refuses at once, and the others load 12 MB.
    """
    size = _size_of_dev_shm()
    if can_mount():
        outcomes = keep_all(ways, 2, tensor_bytes=_BATCH, shm_bytes=_SMALL)
        how = f"a private /dev/shm of {_SMALL >> 20} MiB; each batch has {_BATCH:,} bytes"
    elif size <= 16 * _SMALL:
        outcomes = keep_all(ways, 2, tensor_bytes=size + _SMALL)
        how = f"this machine's /dev/shm of {size:,} bytes; each batch has {size + _SMALL:,}"
    else:
        there = [way for way in ways if way.package == "PyTorch" or way.strategy == "file_system"]
        others = [way for way in ways if way not in there]
        outcomes = keep_all(there, 2, tensor_bytes=size + _SMALL)
        outcomes |= keep_all(others, 2, tensor_bytes=_BATCH)
        how = (
            f"no private /dev/shm is allowed here, so {', '.join(way.label for way in there)} were "
            f"asked for more than its {size:,} bytes, and the others for {_BATCH:,}"
        )
    found = [(way.label, outcomes[way.label]) for way in ways]
    rows = [(name, tried.words, "names" if tried.left else "nothing") for name, tried in found]
    heading = ("/dev/shm is too small", "what came", "left in it")
    return FullDevShm(heading, rows, outcomes, how)


def _size_of_dev_shm() -> int:
    status = os.statvfs(DEV_SHM)
    return status.f_blocks * status.f_frsize


def can_mount() -> bool:
    """Whether a process may mount a /dev/shm of its own here; tried once, in a child."""
    global _can_mount
    if _can_mount is None:
        _can_mount = in_a_child(_try_to_mount, seconds=_LIMIT_S) == [True]
    return _can_mount


_can_mount: bool | None = None


def _try_to_mount(send: Callable[[Any], None]) -> None:
    try:
        _mount_dev_shm(_SMALL)
        send(_size_of_dev_shm() == _SMALL)
    except OSError:
        send(False)


def _mount_dev_shm(nbytes: int) -> None:
    """Give this process, which has one thread, and its children a /dev/shm of their own."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name: str, *arguments: Any) -> None:
        if getattr(libc, name)(*arguments) != 0:
            error = ctypes.get_errno()
            raise OSError(error, f"{name}: {os.strerror(error)}")

    user, group = os.geteuid(), os.getegid()
    try:
        call("unshare", _NEWNS)  # root may
    except OSError:
        call("unshare", _NEWNS | _NEWUSER)  # others, where the system has it
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"0 {user} 1"),
            ("gid_map", f"0 {group} 1"),
        ):
            Path("/proc/self", name).write_text(text)
    call("mount", None, b"/", None, _REC | _PRIVATE, None)  # or it would reach the other processes
    call("mount", b"tmpfs", str(DEV_SHM).encode(), b"tmpfs", 0, f"size={nbytes}".encode())
