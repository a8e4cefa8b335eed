"""What the system lets this process have: cores, memory, shared memory, open files.

A container's share is set by control groups (cgroups), and what the usual calls tell (cores, total
memory) is the whole machine's. So both kinds are read: version 1 (a tree for each controller) and
version 2 (one tree). A limit on a group holds for all below it, so the smallest on the way up
counts.

Source: the kernel's admin-guide/cgroup-v2, admin-guide/cgroup-v1/memory and
scheduler/sched-bwc; cgroups(7), proc_pid_mountinfo(5).

After it: `system` and `loading`, which say what it means, and `sizing`, which follows from it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from labkit.lab import need
from labkit.lab.machine import cores

try:
    import resource
except ImportError:  # Windows has no resource limits
    resource = None  # type: ignore[assignment]

__all__ = ["Limits", "read_limits"]

_UNLIMITED = 2**60  # version 1 writes "no limit" as the largest number of whole pages


@dataclass(frozen=True)
class Limits:
    """What this process may use; None where the system does not tell, or sets no limit.

    Attributes:
        affinity: cores on which it may run.
        cpu_quota: cores' worth of time that its cgroups grant, such as 1.5.
        memory_total: bytes of memory in the machine.
        memory_limit: bytes that its cgroups grant.
        memory_available: bytes that can still be had, by the machine and the limit.
        shm_size: bytes that fit into `/dev/shm`,
        shm_free: and that still fit.
        open_files: how many descriptors it may hold (the soft limit),
        open_files_hard: and up to which number it may raise that itself.
    """

    affinity: int
    cpu_quota: float | None = None
    memory_total: int | None = None
    memory_limit: int | None = None
    memory_available: int | None = None
    shm_size: int | None = None
    shm_free: int | None = None
    open_files: int | None = None
    open_files_hard: int | None = None

    @property
    def usable_cores(self) -> float:
        """Cores' worth of time that this process and its workers get together."""
        return self.affinity if self.cpu_quota is None else min(self.affinity, self.cpu_quota)


def read_limits(root: Path = Path("/")) -> Limits:
    """Read them now.

    Args:
        root: where `/proc`, `/sys` and `/dev` are looked for.
    """
    memory_groups = _groups(root, "memory")
    total, free = _machine_memory(root)
    limit, left = _group_memory(memory_groups, total)
    available = [nbytes for nbytes in (free, left) if nbytes is not None]
    shm_size, shm_free = _shared_memory(root / "dev" / "shm")
    open_files, open_files_hard = _open_files()
    return Limits(
        affinity=cores(),
        cpu_quota=_cpu_quota(_groups(root, "cpu")),
        memory_total=total,
        memory_limit=limit,
        memory_available=min(available) if available else None,
        shm_size=shm_size,
        shm_free=shm_free,
        open_files=open_files,
        open_files_hard=open_files_hard,
    )


def _groups(root: Path, controller: str) -> list[Path]:
    """The folders of this process's cgroup and of those above it, from the inside out."""
    path, is_v2 = _membership(root, controller)
    mount = _mount(root, controller, is_v2)
    if path is None or mount is None:
        return []
    mount_root, mount_point = mount
    inside = path.removeprefix(mount_root.rstrip("/")).strip("/")
    if not path.startswith(mount_root) or ".." in inside.split("/"):
        inside = ""  # its group is not in what is mounted here, as in some containers
    top = root / mount_point.lstrip("/")
    folder = top / inside
    return [folder, *folder.parents][: len(folder.parts) - len(top.parts) + 1]


def _membership(root: Path, controller: str) -> tuple[str | None, bool]:
    """The path of this process's group, and whether it is of version 2."""
    unified = None
    for line in _lines(root / "proc" / "self" / "cgroup"):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controller in controllers.split(","):
            return path, False
        if number == "0" and controllers == "":
            unified = path
    return unified, True


def _mount(root: Path, controller: str, is_v2: bool) -> tuple[str, str] | None:
    """Which part of the tree of groups is mounted, and where."""
    for line in _lines(root / "proc" / "self" / "mountinfo"):
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(), after.split()
        if len(fields) < 5 or len(kinds) < 3:
            continue
        is_it = kinds[0] == "cgroup" and controller in kinds[2].split(",")
        if kinds[0] == "cgroup2" if is_v2 else is_it:
            return _unescaped(fields[3]), _unescaped(fields[4])
    return None


def _unescaped(path: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)


def _cpu_quota(groups: list[Path]) -> float | None:
    quotas = []
    for folder in groups:
        quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
        fields = " ".join(_lines(folder / "cpu.max")).split()
        if len(fields) == 2:
            quota, period = map(_as_number, fields)
        if quota is not None and period is not None and quota > 0 and period > 0:
            quotas.append(quota / period)
    return min(quotas, default=None)


def _machine_memory(root: Path) -> tuple[int | None, int | None]:
    """Bytes in the machine, and of them available."""
    found = {}
    for line in _lines(root / "proc" / "meminfo"):
        name, _, rest = line.partition(":")
        kilobytes = _as_number(rest.removesuffix("kB"))
        found[name] = None if kilobytes is None else kilobytes * 1024
    if not found:  # no Linux
        memory = need("psutil").virtual_memory()
        return memory.total, memory.available
    return found.get("MemTotal"), found.get("MemAvailable")


def _group_memory(groups: list[Path], total: int | None) -> tuple[int | None, int | None]:
    """The limit in bytes, and what is left below it, of the groups in which each is smallest."""
    limits, lefts = [], []
    for folder in groups:
        limit = _first_number(folder, "memory.max", "memory.limit_in_bytes")
        if limit is None or limit >= min(_UNLIMITED, total or _UNLIMITED):
            continue
        limits.append(limit)
        used = _first_number(folder, "memory.current", "memory.usage_in_bytes")
        if used is not None:
            lefts.append(max(0, limit - max(0, used - _reclaimable(folder))))
    return min(limits, default=None), min(lefts, default=None)


def _reclaimable(folder: Path) -> int:
    """Bytes of file cache that count as used, but that the kernel gives up when asked."""
    stat = dict(line.split()[:2] for line in _lines(folder / "memory.stat") if " " in line)
    key = "total_inactive_file" if "total_inactive_file" in stat else "inactive_file"
    return _as_number(stat.get(key, "")) or 0


def _shared_memory(folder: Path) -> tuple[int | None, int | None]:
    """Bytes that the file system of this folder has, and that are free."""
    if not hasattr(os, "statvfs"):
        return None, None
    try:
        status = os.statvfs(folder)
    except OSError:
        return None, None
    return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize


def _open_files() -> tuple[int | None, int | None]:
    if resource is None:
        return None, None  # type: ignore[unreachable]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    return (None if soft == unlimited else soft), (None if hard == unlimited else hard)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _first_number(folder: Path, *names: str) -> int | None:
    numbers = (_number(folder / name) for name in names)
    return next((number for number in numbers if number is not None), None)


def _number(path: Path) -> int | None:
    return _as_number(" ".join(_lines(path)))


def _as_number(text: str) -> int | None:
    """The whole number; None for "max" and whatever else."""
    return int(text) if re.fullmatch(r"\s*-?\d+\s*", text, re.ASCII) else None
