"""What a test leaves behind: processes, threads, descriptors, shared mappings, names.

`take()` lists what this process owns now; `since(before)` says in words what came on top. The
fixture in `conftest.py` asks both around every test. Linux tells all five through /proc.
"""

import gc
import io
import multiprocessing.process
import os
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import suppress
from multiprocessing import connection, resource_sharer
from pathlib import Path
from typing import NamedTuple

import psutil

SHARED_NAMES = Path("/dev/shm")

NAMES_ARE_OURS = "PYTEST_XDIST_WORKER" not in os.environ
"""Whether a new name must come from this process and its family. Where tests run beside each other
it may be another's; then `conftest.py` asks once, when all have ended."""

# Started once a process when first needed, by multiprocessing, by PyTorch and by the lab, and kept.
SERVERS = (
    "from multiprocessing.forkserver import main",
    "from multiprocessing.resource_tracker import main",
    "torch_shm_manager",
    "from labkit.lab.experiments.fresh_server import serve",
)
TORCH_SHM_SOCKET = "/torch-shm-dir-"


class Process(NamedTuple):
    pid: int
    started: float

    def __str__(self) -> str:
        names = {child.pid: child.name for child in multiprocessing.process._children}
        with_name = f" {names[self.pid]!r}" if self.pid in names else ""
        try:
            process = psutil.Process(self.pid)
            about = f"{process.status()}, child of {process.ppid()}: {_command(process)[:200]}"
        except psutil.Error:
            about = "has just ended"
        return f"process {self.pid}{with_name}, {about}"


class Thread(NamedTuple):
    ident: int
    name: str

    def __str__(self) -> str:
        frame = sys._current_frames().get(self.ident)
        at = ""
        while frame and Path(frame.f_code.co_filename).name in ("threading.py", "queue.py"):
            frame = frame.f_back
        if frame:
            at = f" at {frame.f_code.co_filename}:{frame.f_lineno}, in {frame.f_code.co_name}"
        return f"thread {self.name!r}{at}"


class Descriptor(NamedTuple):
    fd: int
    target: str

    def __str__(self) -> str:
        return f"file descriptor {self.fd} -> {self.target}{self._holder()}"

    def _holder(self) -> str:
        kinds = (io.IOBase, socket.socket, connection._ConnectionBase)
        for thing in gc.get_objects():
            try:
                # By type(): isinstance would ask proxies for __class__, which wakes some of them.
                if issubclass(type(thing), kinds) and thing.fileno() == self.fd:
                    return f", held by {thing!r}"
            except (ValueError, OSError):  # closed in the meantime
                continue
        return ""


class Mapping(NamedTuple):
    path: str
    inode: str
    size: int

    def __str__(self) -> str:
        return f"mapping of {self.size} bytes of {self.path} (inode {self.inode})"


class Name(NamedTuple):
    name: str

    def __str__(self) -> str:
        return f"name {SHARED_NAMES / self.name}"


Belongings = Counter[Hashable]


def take() -> Belongings:
    """List what this process owns, each thing as often as it owns it."""
    servers, children = _family()
    of_servers = (target for pid in servers for _, target in _descriptors_of(pid))
    pipes_to_servers = {t for t in of_servers if not t.startswith("/") or t.endswith("(deleted)")}
    mine: Belongings = Counter(children)
    mine.update(Thread(t.ident or 0, t.name) for t in threading.enumerate())
    mine.update(d for d in _descriptors() if d.target not in pipes_to_servers)
    mine.update(_shared_mappings())
    if NAMES_ARE_OURS:
        mine.update(names())
    return mine


def since(before: Belongings, grace: float = 2.0) -> list[str]:
    """Say what was left since `before`, after `grace` seconds in which it may still go.

    The first look is free of garbage collections, so that a clean test costs milliseconds.
    """
    deadline = time.monotonic() + grace
    left = take() - before
    while left:
        if resource_sharer._resource_sharer._thread is not None:
            resource_sharer.stop(timeout=1)  # sends descriptors of PyTorch's tensors on request
        gc.collect()
        left = take() - before
        for name in [thing for thing in left if isinstance(thing, Name)]:
            if is_another_programs(name):
                del left[name]
        if time.monotonic() > deadline:
            break
        if left:
            time.sleep(0.05)
    return [f"{thing}{f' ({n} times)' if n > 1 else ''}" for thing, n in left.items()]


def _family() -> tuple[set[int], list[Process]]:
    """Return the servers, which may stay, and all other descendants."""
    me = os.getpid()
    servers, others = set(), []
    for child in _descendants_of(me):
        try:
            # A worker that was forked by the fork server shows the same command line, but is
            # not our child; neither is a server that a worker started for itself.
            if child.ppid() == me and _is_server(child):
                servers.add(child.pid)
            else:
                others.append(Process(child.pid, child.create_time()))
        except psutil.NoSuchProcess:
            continue
    return servers, others


def _descendants_of(pid: int) -> list[psutil.Process]:
    """Ask the kernel, where it tells: psutil reads the parent of every process on the machine."""
    tasks = f"/proc/{pid}/task"
    try:
        families = [Path(tasks, thread, "children").read_text() for thread in os.listdir(tasks)]
    except OSError:  # a thread has just ended
        families = []
    if not families:
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(pid).children(recursive=True)
    found = []
    for child in map(int, " ".join(families).split()):
        with suppress(psutil.NoSuchProcess):
            found += [psutil.Process(child), *_descendants_of(child)]
    return found


def _is_server(process: psutil.Process) -> bool:
    command = _command(process)
    return any(server in command for server in SERVERS)


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.ZombieProcess:
        return process.name()


def _descriptors() -> Iterator[Descriptor]:
    for fd, target in _descriptors_of(os.getpid()):
        # The heap of multiprocessing.Value and .Array keeps its file for good, and PyTorch's
        # file_system strategy its connection.
        if not _is_multiprocessing_heap(target) and TORCH_SHM_SOCKET not in _peer(fd, target):
            yield Descriptor(fd, target)


def _peer(fd: int, target: str) -> str:
    if not target.startswith("socket:"):
        return ""
    try:
        with socket.socket(fileno=os.dup(fd)) as end:
            return str(end.getpeername())
    except OSError:
        return ""


def _descriptors_of(pid: int) -> Iterator[tuple[int, str]]:
    folder = Path(f"/proc/{pid}/fd")
    try:
        entries = os.listdir(folder)
    except OSError:
        return
    for entry in entries:
        try:
            yield int(entry), os.readlink(folder / entry)
        except OSError:  # the descriptor with which the folder was listed
            continue


def _shared_mappings() -> Iterator[Mapping]:
    """Yield what is mapped of memfds, of /dev/shm and of anonymous shared memory."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return
    starts = ("/memfd:", f"{SHARED_NAMES}/", "/dev/zero", "/SYSV")
    for line in lines:
        if not any(start in line for start in starts):
            continue  # most of thousands, and this is asked twice a test
        addresses, _, _, _, inode, where = line.split(maxsplit=5)
        if where.startswith(starts) and not _is_multiprocessing_heap(where):
            first, last = (int(address, 16) for address in addresses.split("-"))
            yield Mapping(where, inode, last - first)


def _is_multiprocessing_heap(path: str) -> bool:
    return Path(path).name.startswith(f"pym-{os.getpid()}-")


def names() -> list[Name]:
    """List what has a name in shared memory, whoever made it."""
    try:
        return [Name(name) for name in os.listdir(SHARED_NAMES)]
    except OSError:
        return []


def names_since(before: set[Name], grace: float = 5.0) -> list[Name]:
    """List the names that came since, and that are still there after `grace` seconds."""
    deadline = time.monotonic() + grace
    while left := [name for name in set(names()) - before if not is_another_programs(name)]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    return left


def is_another_programs(name: Name) -> bool:
    """Tell whether the name has gone meanwhile, or a process outside this family uses it."""
    try:
        inode = (SHARED_NAMES / name.name).stat().st_ino
    except OSError:
        return True
    family = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    return any(_uses(pid, inode) for pid in psutil.pids() if pid not in family)


def _uses(pid: int, inode: int) -> bool:
    """Tell whether a process maps or has open what the inode in /dev/shm stands for.

    A semaphore is mapped under another name: sem_open() makes it with a passing one.
    """
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError:
        return False
    mapped = (line.split(maxsplit=5) for line in lines if f"{SHARED_NAMES}/" in line)
    if any(fields[4] == str(inode) for fields in mapped):
        return True
    for fd, target in _descriptors_of(pid):
        with suppress(OSError):
            if (
                target.startswith(f"{SHARED_NAMES}/")
                and os.stat(f"/proc/{pid}/fd/{fd}").st_ino == inode
            ):
                return True
    return False
