"""What breaks: datasets and collate functions, in a module that every worker can import.

Before it: nothing of this package. After it: `acts`, which load from them.
"""

from __future__ import annotations

import mmap
import os
import signal
import threading
import time
import warnings
from typing import Any

import torch
from torch.utils.data import Dataset

__all__ = [
    "BEGUN",
    "LOCK",
    "Locked",
    "OpenFile",
    "Pids",
    "Slow",
    "Small",
    "LargerThan",
    "with_a_generator",
]

LOCK = threading.Lock()
"""One a process: a forked worker inherits it as it is, a spawned one makes its own."""

BEGUN: Any = bytearray(1)
"""Becomes 1 when a worker has come to what breaks. A main process puts memory here that it shares
with its forked workers.
"""

_LONG_SECONDS = 60.0


class Pids(Dataset[int]):
    """The worker's process id, over and over. From sample `works_from` on a sample takes long.

    On SIGUSR1 the worker ends by `os._exit(0)`, as native code does that gives up.
    """

    def __init__(self, length: int, works_from: int) -> None:
        self.length, self.works_from = length, works_from

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        signal.signal(signal.SIGUSR1, lambda *_: os._exit(0))
        if index >= self.works_from:
            BEGUN[0] = 1
            time.sleep(_LONG_SECONDS)
        return os.getpid()


class Small(Dataset[torch.Tensor]):
    """Tensors of two numbers."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((2,), float(index))


class Slow(Small):
    """Sample 0 takes some time, the others none."""

    def __init__(self, length: int, seconds: float) -> None:
        super().__init__(length)
        self.seconds = seconds

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 0:
            BEGUN[0] = 1
            time.sleep(self.seconds)
        return super().__getitem__(index)


class Locked(Small):
    """Each sample is taken under the lock of this module."""

    def __getitem__(self, index: int) -> torch.Tensor:
        BEGUN[0] = 1
        with LOCK:
            return super().__getitem__(index)


class OpenFile(Small):
    """A dataset that has opened its file too early."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.file = open(os.devnull, "rb")  # noqa: SIM115 (that is the mistake)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((2,), float(len(self.file.readline())))


class LargerThan:
    """A collate function whose batch claims so many bytes, of which it touches none."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes

    def __call__(self, samples: Any) -> torch.Tensor:
        BEGUN[0] = 1
        # Read-only memory is not counted as long as nobody reads it, however much there is.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        memory = mmap.mmap(-1, self.nbytes, flags=flags, prot=mmap.PROT_READ)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given buffer is not writable")
            return torch.frombuffer(memory, dtype=torch.uint8)


def with_a_generator(sample: torch.Tensor) -> dict[str, Any]:
    """A collate function that puts into the batch what cannot be pickled."""
    BEGUN[0] = 1
    return {"x": sample, "squares": (value * value for value in sample)}
