"""Page-locked batches: what `pin_memory=True` does to a batch before it is given to the user.

Memory that is page-locked (pinned) can be copied to an accelerator while the program goes on. Where
there is no accelerator there is nothing to pin for, and the loader says so. On CUDA the arena's
segments are page-locked themselves, once each, so that a batch in them is pinned already; all else
is copied into page-locked memory, with workers on a thread of its own.

Before it: `pool.py`, whose messages the thread takes. After it: `multiprocess.py`.
Mirrors: torch/utils/data/_utils/pin_memory.py (`pin_memory`, `_pin_memory_loop`). Does better:
containers keep their type; an error says which part of the batch could not be pinned; nothing is
copied that is page-locked already.
"""

from __future__ import annotations

import queue
import threading
import traceback
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, Protocol

import numpy as np
import torch

from labkit.containers import map_leaves
from labkit.errors import WorkerException, rebuilt
from labkit.messages import IterableEnd
from labkit.recording import Source, step
from labkit.spans import span

__all__ = ["PinThread", "can_pin", "pin_batch", "warn_of_unpinned"]

_END_SECONDS = 1.0  # pinning a batch takes less; a `pin_memory` that hangs is not waited for

Arrived = list[tuple[int, Any]]
"""What a pool receives: (worker id, message)."""


def can_pin() -> bool:
    """Whether there is an accelerator to pin memory for; warns, as PyTorch does, if not."""
    if torch.accelerator.is_available():
        return True
    warnings.warn(
        "'pin_memory' argument is set as true but no accelerator is found, then device pinned "
        "memory won't be used.",
        stacklevel=4,
    )
    return False


def pin_batch(batch: Any) -> Any:
    """The same batch with its tensors in page-locked memory; the given one is left as it is.

    Entered are mappings, sequences and dataclasses, which keep their types; what has a method
    `pin_memory` of its own is asked for it; all else, strings too, stays what it is.

    Raises:
        Exception: of the class that a `pin_memory` raised; says what of the batch that was.
    """
    return map_leaves(batch, _pinned, _can_be_pinned)


def _can_be_pinned(part: Any) -> bool:
    return hasattr(part, "pin_memory")


def warn_of_unpinned(batch: Any) -> None:
    """Warn of what `pin_batch` left in the batch though it has memory to pin: numpy's arrays of
    numbers, and tensors in sets and in objects without a method `pin_memory`.
    """
    parts: list[str] = []
    map_leaves(batch, lambda leaf, path: parts.append(f"batch{path} ({_name_of(leaf)})"), _is_left)
    if parts:
        warnings.warn(
            f"pin_memory=True does not reach {', '.join(parts)}: a copy from there to the device "
            "blocks. Make it a tensor in the collate function, or give its class a method "
            "pin_memory() that returns a pinned one.",
            stacklevel=2,
        )


def _is_left(part: Any) -> bool:
    if _can_be_pinned(part):
        return False
    if isinstance(part, np.ndarray):
        return part.size > 0 and part.dtype.kind in "biufc"  # of texts there are no tensors
    within = part if isinstance(part, (set, frozenset)) else getattr(part, "__dict__", {}).values()
    is_entered = isinstance(part, (Mapping, Sequence)) or is_dataclass(part)
    return not is_entered and any(isinstance(inner, torch.Tensor) for inner in within)


def _name_of(leaf: Any) -> str:
    return f"{type(leaf).__module__}.{type(leaf).__qualname__}".removeprefix("builtins.")


def _pinned(leaf: Any, path: str) -> Any:
    try:
        return leaf.pin_memory()
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        where = f"while pinning batch{path} ({type(leaf).__name__})"
        raise rebuilt(type(error), type(error).__name__, text, where) from error


class _Pool(Protocol):
    """What the thread needs of a `WorkerPool`."""

    def receive(self, timeout: float | None = None, likely: int | None = None) -> Arrived: ...
    def interrupt(self) -> None: ...


class PinThread:
    """Receives from a pool, pins, and hands on; it stands between a pool and its iterator.

    It ends at `close`, after a message that cannot be read, after a worker's death, or when it is
    collected. That is its done event's work, with the pool's `interrupt`.

    Args:
        pool: nobody else may receive from it.
        source: the iterator, in a trace.
    """

    def __init__(self, pool: _Pool, source: Source) -> None:
        self._arrived: queue.SimpleQueue[Arrived | Exception] = queue.SimpleQueue()
        done = threading.Event()
        # It must not know `self`, which would never be collected.
        thread = threading.Thread(
            target=_pin, args=(pool, source, self._arrived, done), name="pin", daemon=True
        )
        self._end = weakref.finalize(self, _end, thread, done, pool.interrupt)
        thread.start()

    def receive(self, timeout: float | None = None, likely: int | None = None) -> Arrived:
        """As the pool's `receive`, with the batches pinned."""
        with span("wait", batch=-1):
            try:
                arrived = self._arrived.get(timeout=timeout)
            except queue.Empty:
                return []
        if isinstance(arrived, Exception):
            raise arrived
        return arrived

    def close(self) -> None:
        """End the thread, and wait until it has ended; not for a `pin_memory` that hangs, after
        which it will end by itself. Safe to repeat.
        """
        self._end()


def _end(thread: threading.Thread, done: threading.Event, interrupt: Callable[[], None]) -> None:
    done.set()
    interrupt()
    if thread.is_alive() and thread is not threading.current_thread():
        thread.join(_END_SECONDS)


def _pin(
    pool: _Pool,
    source: Source,
    arrived: queue.SimpleQueue[Arrived | Exception],
    done: threading.Event,
) -> None:
    try:
        while not done.is_set():
            with step(source):
                messages = [(id, _with_pinned(id, message)) for id, message in pool.receive()]
            arrived.put(messages)  # also none: the pool's `interrupt` is for all who wait
    except Exception as error:  # such as a batch that cannot be unpickled here
        arrived.put(error)
    except BaseException as error:  # a SystemExit would end the thread without a word
        arrived.put(RuntimeError(f"{type(error).__name__}: {error}"))


def _with_pinned(worker_id: int, message: Any) -> Any:
    if not isinstance(message, tuple) or isinstance(message[1], (WorkerException, IterableEnd)):
        return message
    batch, data, n_samples = message
    with span("pin", batch):
        try:
            pinned = pin_batch(data)
            if batch == 0:
                warn_of_unpinned(pinned)
            return batch, pinned, n_samples
        except Exception as error:
            return batch, WorkerException(error, worker_id, where="in pin thread"), n_samples
