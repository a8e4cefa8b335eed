"""What the doctor says of the system: cores, memory, `/dev/shm`, open files, and what else runs.

Before it: `limits`, which has the numbers. After it: `doctor`.
"""

from __future__ import annotations

import os

from labkit.lab import need
from labkit.lab.doctor.findings import Finding
from labkit.lab.doctor.limits import Limits

__all__ = ["cores", "load", "memory", "open_files", "shared_memory"]

_GIB = 2**30
_MIB = 2**20
_LITTLE_MEMORY = _GIB
_LITTLE_SHM = 512 * _MIB
_FEW_FILES = 4096
_BUSY_SECONDS = 0.25
_BUSY_SHARE = 0.25


def cores(limits: Limits) -> Finding:
    """How many cores' worth of time there is for this process and its workers."""
    usable = limits.usable_cores
    value = f"{limits.affinity} by affinity"
    if limits.cpu_quota is None:
        value += ", no quota"
    else:
        value += f", {limits.cpu_quota:g} by the cgroup's quota: {usable:g} to use"
    meaning = (
        "This loop and all its workers share them. Workers that compute gain up to about one a "
        "core; workers that wait (for a disk, a network) may be more."
    )
    advice = None
    if limits.cpu_quota is not None and limits.cpu_quota < limits.affinity:
        meaning += " os.cpu_count() does not know of the quota."
        advice = (
            f"Start with num_workers={max(1, int(usable))}, or raise the quota (docker run --cpus)."
        )
    elif usable < 2:
        meaning = (
            "This loop and all its workers take turns on one core: workers can hide waiting, but "
            "not computing."
        )
        advice = "Expect workers to gain little here; a second core lets one load ahead."
    raw = {"affinity": limits.affinity, "quota": limits.cpu_quota, "usable": usable}
    return Finding("cores", value, raw, "cores", meaning, advice, concern=usable < 2)


def memory(limits: Limits) -> Finding:
    """How much memory there is for them."""
    total, limit = limits.memory_total, limits.memory_limit
    available = limits.memory_available
    parts = [f"{_binary(total)} in the machine"] if total is not None else []
    parts.append("no limit" if limit is None else f"limit {_binary(limit)}")
    if available is not None:
        parts.append(f"{_binary(available)} available")
    concern = available is not None and available < _LITTLE_MEMORY
    return Finding(
        name="memory",
        value=", ".join(parts),
        raw={"total": total, "limit": limit, "available": available},
        unit="bytes",
        meaning="Each spawned worker imports torch anew, some 150 to 400 MiB; a forked one shares "
        "pages with this process until either writes. Batches under way and shared memory count "
        "too, and who goes over the limit is killed.",
        advice="Take fewer workers and smaller batches, or raise the limit (docker run --memory)."
        if concern
        else None,
        concern=concern,
    )


def shared_memory(limits: Limits) -> Finding:
    """How much room there is for shared memory that has a name."""
    size, free = limits.shm_size, limits.shm_free
    raw = {"size": size, "free": free, "used": None}
    if size is None or free is None:
        meaning = "Here named shared memory has no directory of its own, and no limit of this kind."
        return Finding("/dev/shm", "there is none", raw, "bytes", meaning)
    concern = free < _LITTLE_SHM
    return Finding(
        name="/dev/shm",
        value=f"{_binary(size)}, {_binary(size - free)} in use",
        raw={**raw, "used": size - free},
        unit="bytes",
        meaning="Batches lie here with sharing_strategy='file_system', and PyTorch's DataLoader "
        "always puts them here. When it is full, loading fails. labkit's arena and "
        "file_descriptor need no room here.",
        advice="Keep labkit's default strategy; for others make it larger: docker run "
        "--shm-size=2g, or mount -o remount,size=2G /dev/shm."
        if concern
        else None,
        concern=concern,
    )


def open_files(limits: Limits) -> Finding:
    """How many descriptors this process may hold."""
    soft, hard = limits.open_files, limits.open_files_hard
    value = f"soft limit {_count(soft)}, hard limit {_count(hard)}"
    few = soft is not None and soft < _FEW_FILES
    advice = None
    if few and (hard is None or hard > (soft or 0)):
        to = min(hard or 65536, 65536)
        advice = f"ulimit -n {to} in the shell before Python is started."
    elif few:
        advice = "Keep labkit's default strategy, or have the hard limit raised (ulimit -Hn)."
    return Finding(
        name="open files",
        value=value,
        raw={"soft": soft, "hard": hard},
        unit="descriptors",
        meaning="With file_descriptor, PyTorch's default on Linux, every tensor that is kept holds "
        "one open; a list of batches reaches the soft limit soon. The arena holds a few a worker.",
        advice=advice,
        concern=few,
    )


def load() -> Finding:
    """How busy all cores of the machine are, in this moment in which the doctor only waits."""
    share = need("psutil").cpu_percent(interval=_BUSY_SECONDS) / 100
    average = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    busy = share > _BUSY_SHARE
    value = f"{share:.0%} busy"
    if average is not None:
        value += f"; load {average:.1f} over the last minute"
    return Finding(
        name="load",
        value=value,
        raw={"busy": round(share, 3), "load_average": average},
        unit=None,
        meaning="What else runs here makes times longer and spreads them; small differences drown "
        "in that."
        if busy
        else "Little else runs here, which is good for measuring.",
        advice="Stop what else computes, or measure later; look at the intervals."
        if busy
        else None,
        concern=busy,
    )


def _binary(nbytes: int) -> str:
    for unit, size in (("GiB", _GIB), ("MiB", _MIB), ("KiB", 1024)):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes} bytes"


def _count(limit: int | None) -> str:
    return "none" if limit is None else f"{limit:,}"
