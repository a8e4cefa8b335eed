"""Run a command as if on Binder: one core, 2 GB of memory, 64 MB of /dev/shm, no network.

python -m scripts.small_machine COMMAND ...

`/dev/shm` and the network (only the loopback is left) are the command's own namespaces, the memory
is limited by a control group where one can be made, and otherwise for each process by itself. What
this system does not permit is left out; `Limits.here()` says what remains, for `conftest.py`, which
starts the notebooks' kernels so.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

MEMORY = 2 << 30  # bytes
SHM = 64 << 20  # bytes
NAMESPACES = ("--mount", "--net")
INSIDE = "--inside"
AS_ROOT = ("--user", "--map-root-user")  # for those who may make no others


@dataclass(frozen=True)
class Limits:
    """What can be limited on this system.

    Attributes:
        unshare: the command that starts another with namespaces of its own; empty if none can.
        group: the control group below which one with less memory can be made.
    """

    unshare: tuple[str, ...]
    group: Path | None

    @classmethod
    def here(cls) -> Limits:
        """Find out by trying."""
        commands = [("unshare", *NAMESPACES), ("unshare", *AS_ROOT, *NAMESPACES)]
        usable = [command for command in commands if _runs([*command, *_mount_command()])]
        return cls(usable[0] if usable else (), _memory_group())

    def __str__(self) -> str:
        own = f", {SHM >> 20} MB of /dev/shm, no network" if self.unshare else ""
        each = "" if self.group else " a process"
        return f"1 core, {MEMORY >> 30} GB of memory{each}{own}"

    def command(self, group: Group | None, core: int) -> list[str]:
        """What to write before a command that is to run so."""
        told = {
            "own": bool(self.unshare),
            "group": None if group is None else str(group.folder),
            "core": core,
        }
        return [*self.unshare, sys.executable, str(Path(__file__)), INSIDE, json.dumps(told)]


class Group:
    """A control group of this process's, with little memory; for the family of one command."""

    def __init__(self, above: Path, name: str) -> None:
        self.folder = above / f"labkit-{os.getpid()}-{name}"
        self.folder.mkdir()
        self._is_v1 = (self.folder / "memory.limit_in_bytes").exists()
        limit = "memory.limit_in_bytes" if self._is_v1 else "memory.max"
        (self.folder / limit).write_text(str(MEMORY))

    def used(self) -> int:
        """Bytes that its processes hold now; what the system caches of files is not theirs."""
        held = ("rss", "shmem") if self._is_v1 else ("anon", "shmem")
        lines = (self.folder / "memory.stat").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.split()[0] in held)

    def remove(self) -> None:
        """Remove it; its processes have ended, or are about to."""
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            with suppress(OSError):
                return self.folder.rmdir()
            time.sleep(0.05)


def main(command: Sequence[str]) -> int:
    """Run the command on a small machine. Returns its exit code."""
    limits = Limits.here()
    group = Group(limits.group, "command") if limits.group else None
    print(f"with {limits}", file=sys.stderr)
    try:
        core = max(os.sched_getaffinity(0))
        return subprocess.run([*limits.command(group, core), *command]).returncode
    finally:
        if group is not None:
            group.remove()


def become(command: Sequence[str], own: bool, group: str | None, core: int) -> NoReturn:
    """Limit this process, and become the command.

    Args:
        own: whether this process has namespaces of its own.
        group: the folder of its control group.
        core: the only one on which it may run.
    """
    if own:
        subprocess.run(_mount_command(), check=True)
        _raise_loopback()
    if group is not None:
        Path(group, "cgroup.procs").write_text(str(os.getpid()))
    else:
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    os.sched_setaffinity(0, {core})
    os.execvp(command[0], command)


def _mount_command() -> list[str]:
    return ["mount", "-t", "tmpfs", "-o", f"size={SHM},mode=1777", "tmpfs", "/dev/shm"]


def _runs(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _memory_group() -> Path | None:
    """The memory control group of this process, if one can be made below it."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("memory", ""):
            continue
        mount = Path("/sys/fs/cgroup", controllers)
        for above in (mount / path.lstrip("/"), mount):
            with suppress(OSError):
                Group(above, "trial").remove()
                return above
            with suppress(OSError):  # made, but without a limit on memory
                (above / f"labkit-{os.getpid()}-trial").rmdir()
    return None


def _raise_loopback() -> None:
    """Bring up the interface "lo" (SIOCGIFFLAGS, SIOCSIFFLAGS of netdevice(7))."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        name = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, 0x8913, name))[1]
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", flags | 1))


if __name__ == "__main__":
    if sys.argv[1] == INSIDE:
        become(sys.argv[3:], **json.loads(sys.argv[2]))
    sys.exit(main(sys.argv[1:]))
