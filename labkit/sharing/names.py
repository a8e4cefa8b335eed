"""Named segments, and who removes their names.

A name is a file in /dev/shm (where there is none, in the folder for temporary files). It is not
removed when a process dies, so somebody must do it, and nobody too early. Each name has one owner,
whose process id is part of it:

- A block's own name belongs to the sender and goes when the sender lets go of the block.
- Each message that carries the block has a name of its own, a hard link; it belongs to the receiver
  and goes when the message is received. The file system does the counting.
- When a worker is dead, the main process removes what the worker made and nobody received.
- When both were killed, the next process that uses the strategy does: an owner that is dead will
  not come back for its names.

PyTorch has a process of its own for this, `torch_shm_manager`.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
import tempfile
from contextlib import suppress

import torch

from labkit.errors import SharedMemoryGone
from labkit.sharing.segment import Exporter, as_labkit_error, bytes_type

__all__ = ["create", "directory", "link", "map_named", "remove", "remove_made_by", "remove_orphans"]

_NAME = re.compile(r"labkit-(?P<pids>\d+)-(?P<owner>\d+)-(?P<maker>\d+)-[0-9a-f]{16}")


def directory() -> str:
    """Where the names are."""
    return "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()


def create(nbytes: int) -> str:
    """A new name of that many bytes, readable by this user only. Its pages are taken at once: a
    full /dev/shm would else be met at the first touch, as a SIGBUS that ends the process.

    Raises:
        SharedMemoryFull: there are not that many bytes.
        TooManyOpenFiles: this process may open no further descriptor.
    """
    name = _new_name(owner=os.getpid())
    try:
        fd = os.open(_path(name), os.O_RDWR | os.O_CREAT | os.O_EXCL, mode=0o600)
    except OSError as error:
        raise as_labkit_error(error, nbytes, directory()) from error
    try:
        os.ftruncate(fd, nbytes)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, nbytes)
    except OSError as error:
        refusal = as_labkit_error(error, nbytes, directory())
        remove(name)
        raise refusal from error
    finally:
        os.close(fd)
    return name


def map_named(name: str, nbytes: int) -> Exporter:
    """The memory behind a name. No descriptor stays open, as one would with `mmap.mmap`.

    Raises:
        SharedMemoryGone: somebody has removed the name.
    """
    try:
        fd = os.open(_path(name), os.O_RDWR)
    except FileNotFoundError as error:
        raise _gone(name) from error
    try:
        # By its descriptor, for a path that is missing would be made anew, and read as zeros.
        path = f"/proc/self/fd/{fd}" if sys.platform == "linux" else _path(name)
        tensor = torch.from_file(path, shared=True, size=nbytes, dtype=torch.uint8)
    finally:
        os.close(fd)
    return bytes_type(nbytes).from_buffer(tensor.numpy())


def link(name: str, owner: int) -> str:
    """A second name for the same memory, to be removed by the process `owner`.

    Raises:
        SharedMemoryGone: somebody has removed the first one.
    """
    other = _new_name(owner)
    try:
        os.link(_path(name), _path(other))
    except FileNotFoundError as error:
        raise _gone(name) from error
    return other


def _gone(name: str) -> SharedMemoryGone:
    return SharedMemoryGone(
        f"The shared memory {name!r} of a batch is gone: its name was removed from {directory()} "
        "before the batch was received. Nothing but labkit should remove such names. Use "
        "sharing_strategy='arena' or 'file_descriptor', which need none.",
        name=name,
    )


def remove(name: str) -> None:
    """Remove a name, if it is still there. Who has the memory mapped keeps it."""
    with suppress(FileNotFoundError):
        os.unlink(_path(name))


def remove_made_by(pid: int) -> None:
    """Remove what a dead process made and nobody received."""
    for match in _names():
        if match["pids"] == _pid_namespace() and int(match["maker"]) == pid:
            remove(match.string)


def remove_orphans() -> None:
    """Remove the names whose owners are dead."""
    for match in _names():
        # A process of another container is invisible here, and not dead.
        if match["pids"] == _pid_namespace() and not _is_alive(int(match["owner"])):
            with suppress(PermissionError):  # of another user
                remove(match.string)


def _new_name(owner: int) -> str:
    return f"labkit-{_pid_namespace()}-{owner}-{os.getpid()}-{secrets.token_hex(8)}"


def _path(name: str) -> str:
    return os.path.join(directory(), name)


def _names() -> list[re.Match[str]]:
    return [match for name in os.listdir(directory()) if (match := _NAME.fullmatch(name))]


def _pid_namespace() -> str:
    """Which process ids these are: containers may share /dev/shm and count processes each anew."""
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return "0"


def _is_alive(pid: int) -> bool:
    with suppress(OSError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        if file.read().rpartition(b")")[2].split()[0] in (b"Z", b"X"):
            return False  # nobody has asked for its exit code yet
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is another user's
    return True
