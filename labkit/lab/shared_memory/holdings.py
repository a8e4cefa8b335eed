"""What a process holds for shared memory: open descriptors, mappings, and names in /dev/shm.

Linux tells all of it (proc(5)). Before it: a notebook, or `experiments.quantities`, which look
before and after batches are kept.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from labkit.lab import need

__all__ = ["DEV_SHM", "Holdings", "holdings", "names_of", "remove_names"]

DEV_SHM = Path("/dev/shm")
_SHARED = ("/memfd:", f"{DEV_SHM}/")
_NAME = re.compile(r"labkit-\d+-(\d+)-(\d+)-[0-9a-f]+|torch_(\d+)_\d+_\d+")


@dataclass(frozen=True)
class Holdings:
    """What is held; the difference of two of them is what came on top."""

    descriptors: int  #: of memfds and of files in /dev/shm, open in this process
    mappings: int  #: of memfds and of files in /dev/shm, in this process
    names: int  #: in /dev/shm, made by this process and those that it started, or left to them

    def __sub__(self, before: Holdings) -> Holdings:
        return Holdings(
            self.descriptors - before.descriptors,
            self.mappings - before.mappings,
            self.names - before.names,
        )


def holdings() -> Holdings:
    """What this process holds now."""
    family = [os.getpid(), *(p.pid for p in need("psutil").Process().children(recursive=True))]
    with open("/proc/self/maps") as maps:
        paths = (line.split(maxsplit=5)[5:] for line in maps)
        mappings = sum(path[0].startswith(_SHARED) for path in paths if path)
    descriptors = sum(path.startswith(_SHARED) for path in _open_files())
    return Holdings(descriptors, mappings, len(names_of(family)))


def _open_files() -> Iterator[str]:
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # that of the listing itself, and what another thread has closed
            yield os.readlink(f"/proc/self/fd/{number}")


def names_of(pids: Collection[int]) -> list[str]:
    """The names in /dev/shm of labkit and PyTorch that carry one of these process ids."""
    found = filter(None, map(_NAME.fullmatch, os.listdir(DEV_SHM)))
    wanted = set(map(str, pids))
    return [match.string for match in found if wanted & set(match.groups())]


def remove_names(pids: Collection[int], grace_seconds: float = 0.0) -> int:
    """Remove these names, if they do not go by themselves; returns how many there were then."""
    deadline = time.monotonic() + grace_seconds
    while (left := names_of(pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    for name in left:
        with suppress(FileNotFoundError):
            os.unlink(DEV_SHM / name)
    return len(left)
