"""How much memory is really there: of a mapping, of a process, of all that is shared."""

import ctypes
import mmap
import os
from pathlib import Path

import psutil

_libc = ctypes.CDLL(None, use_errno=True)


def resident(address: int, nbytes: int) -> int:
    """Bytes of the pages at [address, address + nbytes) that are in memory, whoever touched them.

    Of shared memory the resident set size tells only what this process has touched.
    """
    first = address // mmap.PAGESIZE * mmap.PAGESIZE
    length = address + nbytes - first
    pages = (ctypes.c_ubyte * -(-length // mmap.PAGESIZE))()
    if _libc.mincore(ctypes.c_void_p(first), ctypes.c_size_t(length), pages) != 0:
        raise OSError(ctypes.get_errno(), "mincore")
    return sum(page & 1 for page in pages) * mmap.PAGESIZE


def shared_mappings() -> list[tuple[int, int]]:
    """(address, bytes) of what this process maps of shared segments, each segment once."""
    found = {}
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, _, _, offset, inode, *path = line.split(maxsplit=5)
        if path and path[0].startswith(("/memfd:labkit", "/dev/shm/labkit")):
            start, end = (int(address, 16) for address in addresses.split("-"))
            found[inode, offset] = start, end - start
    return list(found.values())


def shared_resident() -> int:
    """Bytes of shared memory behind all segments that this process maps."""
    return sum(resident(address, nbytes) for address, nbytes in shared_mappings())


def descriptors(pid: int | None = None) -> int:
    return len(os.listdir(f"/proc/{pid or os.getpid()}/fd"))


def mappings(pid: int | None = None) -> int:
    """How many mappings of shared segments a process has."""
    return Path(f"/proc/{pid or os.getpid()}/maps").read_text().count("/memfd:labkit")


def trim_malloc() -> None:
    """Let glibc give freed memory back to the system, as far as it can."""
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(0)


def resident_bytes(pid: int | None = None) -> int:
    """The process's memory, all of what it shares included.

    (A share of what is shared would change when some other process that has it too ends.)
    """
    return psutil.Process(pid).memory_info().rss
