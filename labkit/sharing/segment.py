"""A piece of memory that two processes map.

A segment is an open file without a name: a memfd where the system has it (Linux), else a file whose
name is removed at once. Whoever is given the descriptor can map it; when the last mapping and the
last descriptor are gone, so is the memory, whatever was killed meanwhile.

Memory is handed on as an *exporter*: a ctypes array over the mapping. torch and numpy both keep the
exporter itself alive as long as any view of it lives, and it takes a `weakref` callback, so its
death is the news that nobody sees that memory any more. (A memoryview would not do: numpy keeps
the mapping below it and lets the memoryview go.)

PyTorch does this in C++: aten/src/ATen/MapAllocator.cpp.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import mmap
import os
import tempfile
from contextlib import suppress
from multiprocessing import reduction
from typing import Any, Protocol

from labkit.errors import SharedMemoryFull, too_many_open_files

__all__ = ["Exporter", "PageLocker", "Segment", "as_labkit_error", "bytes_type"]

Exporter = Any
"""A ctypes array of bytes; `ctypes.addressof` tells where it lies. (ctypes types have no names.)"""


class PageLocker(Protocol):
    """What can page-lock memory that is mapped already, so that a device copies straight from it.

    `labkit.device.Device` is one.
    """

    def lock_pages(self, address: int, nbytes: int) -> bool:
        """Page-lock it; False where that is refused."""

    def unlock_pages(self, address: int) -> None:
        """Undo it, for memory that is about to be unmapped."""


class _Mapping(mmap.mmap):
    """A mapping that is unlocked before it goes, whoever saw it last."""

    locker: PageLocker | None = None
    address: int
    owner_pid: int

    def __del__(self) -> None:
        # At the interpreter's end the device, or all that is named here, may be gone already.
        with suppress(Exception):
            if self.locker is not None and os.getpid() == self.owner_pid:
                self.locker.unlock_pages(self.address)


class Segment:
    """Shared memory of a fixed size, mapped in this process.

    Args:
        fd: the descriptor of the memory, or -1 for memory that is this process's own.
        nbytes: its size in bytes.

    Attributes:
        fd: to be sent to another process; this object owns it.
    """

    def __init__(self, fd: int, nbytes: int) -> None:
        self.nbytes = nbytes
        self.fd = fd
        self._is_private = fd == -1
        try:
            self._mapping = _Mapping(fd, nbytes, **_PRIVATE if self._is_private else {})
        except OSError as error:
            self.close()
            raise as_labkit_error(error, nbytes) from error

    @classmethod
    def create(cls, nbytes: int) -> Segment:
        """New anonymous memory, all zero. The system gives its pages when they are first touched.

        Raises:
            TooManyOpenFiles: this process may open no further descriptor.
            SharedMemoryFull: the system refused the memory.
        """
        return cls(_file_of_size(nbytes), nbytes)

    @classmethod
    def private(cls, nbytes: int) -> Segment:
        """New memory of this process alone, for an arena that nobody else reads."""
        return cls(-1, nbytes)

    def __reduce__(self) -> tuple[Any, ...]:
        # Works only while a process is being spawned: multiprocessing then hands the file over.
        return _received, (reduction.DupFd(self.fd), self.nbytes)

    def exporter(self, offset: int, nbytes: int) -> Exporter:
        """The bytes [offset, offset + nbytes), as an exporter that keeps the mapping alive."""
        return bytes_type(nbytes).from_buffer(self._mapping, offset)

    def lock_pages(self, locker: PageLocker) -> bool:
        """Page-lock all of it for as long as it is mapped here; False where that is refused."""
        address = ctypes.addressof(self.exporter(0, self.nbytes))
        if not locker.lock_pages(address, self.nbytes):
            return False
        self._mapping.address, self._mapping.owner_pid = address, os.getpid()
        self._mapping.locker = locker
        return True

    @property
    def is_page_locked(self) -> bool:
        """Whether `lock_pages` has worked."""
        return self._mapping.locker is not None

    def discard(self, start: int, end: int) -> None:
        """Give whole pages within [start, end) back to the system; they read as zero afterwards.

        Not those that are page-locked: a device would go on reading the old ones.
        """
        if self.is_page_locked:
            return
        start = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        end = end // mmap.PAGESIZE * mmap.PAGESIZE
        advice = getattr(mmap, "MADV_DONTNEED" if self._is_private else "MADV_REMOVE", None)
        if advice is not None and start < end:
            with suppress(OSError):  # an advice: a system that cannot take it keeps the pages
                self._mapping.madvise(advice, start, end - start)

    def close(self) -> None:
        """Close the descriptor. The memory stays mapped until the last exporter is gone."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _received(dup: Any, nbytes: int) -> Segment:
    return Segment(dup.detach(), nbytes)


# A forked child gets its own copy of private memory; by default `mmap` would share it.
_PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


@functools.lru_cache(maxsize=256)
def bytes_type(nbytes: int) -> Any:
    """The ctypes array type of that size. Kept, for making one takes longer than using it."""
    return ctypes.c_char * nbytes


def _file_of_size(nbytes: int) -> int:
    fd = -1
    try:
        fd = _anonymous_file()
        os.ftruncate(fd, nbytes)
    except OSError as error:
        if fd >= 0:
            os.close(fd)
        raise as_labkit_error(error, nbytes) from error
    return fd


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("labkit", os.MFD_CLOEXEC)
        os.fchmod(fd, 0o600)  # as of `mkstemp`; a memfd begins with 0777
        return fd
    fd, path = tempfile.mkstemp(prefix="labkit-")
    os.unlink(path)
    return fd


def as_labkit_error(error: OSError, nbytes: int, directory: str | None = None) -> Exception:
    """What a system's refusal of `nbytes` (in `directory`, if it has a name) means to the user."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return too_many_open_files(in_whole_system=error.errno == errno.ENFILE)
    if error.errno not in (errno.ENOMEM, errno.ENOSPC):
        return error
    free = None
    if directory is not None:
        status = os.statvfs(directory)
        free = status.f_bavail * status.f_frsize
    there = "" if free is None else f" and {directory} has {free:,} bytes free"
    ways_out = [
        "smaller batches, or fewer of them under way (`num_workers`, `prefetch_factor`)",
        "a higher memory limit for this machine or container",
    ]
    if directory is not None:
        ways_out[1:] = [
            "sharing_strategy='arena' or 'file_descriptor', which need no room there",
            f"more room there (`mount -o remount,size=2G {directory}`, or `docker run "
            "--shm-size=2g`)",
        ]
    return SharedMemoryFull(
        f"No shared memory left: {nbytes:,} bytes are wanted{there} ({error.strerror}). Ways out: "
        f"{'; '.join(ways_out)}.",
        wanted=nbytes,
        free=free,
    )
