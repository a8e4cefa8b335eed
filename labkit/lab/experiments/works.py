"""Works for a thread: functions whose one call takes some milliseconds.

Some are done outside of Python and some in it. Before it: `decoding`, which has one. After it:
`beside`, which looks at what Python code loses beside them.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from labkit.lab.decoding import decoded, jpeg_bytes

__all__ = ["WORKS", "Work", "count", "known", "make"]

Work = Callable[[], Any]

_READ_BYTES = 4 * 2**20


def _numpy_dot() -> Work:
    square = np.ones((400, 400))
    return lambda: np.dot(square, square)


def _torch_matmul() -> Work:
    square = torch.ones(400, 400, dtype=torch.float64)
    return lambda: torch.matmul(square, square)


def _read_a_file() -> Work:
    """From the page cache, since it has just been written: no disk is waited for."""
    file = _file(_READ_BYTES)
    return lambda: os.pread(file.fileno(), _READ_BYTES, 0)


def _decode_a_jpeg() -> Work:
    file = jpeg_bytes(512)
    return lambda: decoded(file)


def _hash_bytes() -> Work:
    data = bytes(4 * 2**20)
    return lambda: hashlib.sha256(data).digest()


def _pickle_a_list() -> Work:
    numbers = [i / 7 for i in range(600_000)]
    return lambda: pickle.dumps(numbers)


def _python_loop() -> Work:
    return lambda: count(200_000)


def count(steps: int) -> None:
    """Python code that does nothing but run."""
    for _ in range(steps):
        pass


WORKS: dict[str, Callable[[], Work]] = {
    "sleep": lambda: lambda: time.sleep(0.01),
    "read a file": _read_a_file,
    "numpy dot": _numpy_dot,
    "torch matmul": _torch_matmul,
    "decode a JPEG": _decode_a_jpeg,
    "hash bytes": _hash_bytes,
    "pickle a list": _pickle_a_list,
    "Python loop": _python_loop,
}
"""By name, what makes the work: a function whose one call takes some milliseconds."""


def _file(nbytes: int) -> Any:
    file = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the work that reads it)
    file.write(bytes(nbytes))
    file.flush()
    return file


@functools.cache
def make(name: str) -> Work:
    """The work of this name, made once.

    Raises:
        ValueError: there is none.
    """
    return WORKS[known(name)]()


def known(name: str) -> str:
    """The name itself, if there is a work of that name.

    Raises:
        ValueError: there is none.
    """
    if name not in WORKS:
        raise ValueError(f"no work {name!r}: write one of {', '.join(map(repr, WORKS))}")
    return name
