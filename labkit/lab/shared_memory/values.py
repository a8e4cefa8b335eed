"""Programs of a child that looks at memory which its parent shares, before and after a change.

In a module, so that any start method finds them. Before it: notebook 05.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
import torch

from labkit.startup import prepare_start_method, starting

__all__ = ["add_to", "look_at_array", "look_at_tensor", "seen_by_a_child"]


def look_at_tensor(turn: Connection, tensor: torch.Tensor) -> None:
    """Tell what the tensor holds, each time when it is this side's turn."""
    while turn.recv():
        turn.send(tensor.tolist())


def look_at_array(turn: Connection, name: str, shape: tuple[int, ...], dtype: str) -> None:
    """The same for memory that has a name: attach first, and let go of it in the end."""
    memory = SharedMemory(name=name)
    array: Any = np.ndarray(shape, dtype, buffer=memory.buf)
    while turn.recv():
        turn.send(array.tolist())
    del array
    memory.close()


def add_to(turn: Connection, counts: dict[str, int], name: str) -> None:
    """Put a name into a dict, and tell what is in it."""
    while turn.recv():
        counts[name] = counts.get(name, 0) + 1
        turn.send(dict(counts))


def seen_by_a_child(
    look: Callable[..., None], *shared: Any, change: Callable[[], Any], start_method: str
) -> list[Any]:
    """What a child sees before and after a change in this process.

    Args:
        look: one of this module's functions, the child's program.
        *shared: its arguments.
        change: called here in between.
        start_method: of the child.

    Raises:
        RuntimeError: the child ended before it had looked twice.
    """
    context: Any = multiprocessing.get_context(start_method)
    prepare_start_method(context)
    ours, theirs = context.Pipe()
    child = context.Process(target=look, args=(theirs, *shared))
    with starting():
        child.start()
    theirs.close()
    try:
        seen = []
        for do in (lambda: None, change):
            do()
            ours.send(True)
            seen.append(ours.recv())
        ours.send(False)
        child.join()
        return seen
    except (EOFError, OSError) as error:
        raise RuntimeError("the child ended before it had told what it sees") from error
    finally:
        ours.close()
        child.kill()
        child.join()
