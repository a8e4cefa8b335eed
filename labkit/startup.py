"""What a worker needs at its start, and how it gets there under each start method.

Under `fork` a worker simply inherits it. Under `spawn` and `forkserver` it is pickled, and what
the worker could not import (a class from a notebook's cell, a lambda) goes by value, which the
standard pickle cannot do and `cloudpickle` can. Locks, queues and shared tensors go as they
always go to a new process.

`forkserver` forks its workers from a server process. Here it has torch and labkit imported already,
so a worker need not.

Mirrors: the `Process(target=_worker_loop, args=…)` of torch/utils/data/dataloader.py.
"""

from __future__ import annotations

import io
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from multiprocessing.context import BaseContext, get_spawning_popen
from multiprocessing.reduction import ForkingPickler
from typing import Any, ClassVar

from labkit.by_value import by_value_pickler, by_value_reducers
from labkit.errors import StartupNotPicklable

__all__ = [
    "Startup",
    "interrupts_held_back",
    "prepare_start_method",
    "resolve_context",
    "starting",
]


@dataclass
class Startup:
    """What every worker gets: DataLoader's arguments, and what the main process knows."""

    dataset: Any
    auto_collation: bool
    collate_fn: Callable[[Any], Any]
    drop_last: bool
    worker_init_fn: Callable[[int], None] | None
    base_seed: int
    num_workers: int
    sharing_strategy: str
    arena_limit_bytes: int | None
    keeps_pages: bool  #: the main process page-locks the arena
    main_pid: int  #: the process that iterates
    forward_output: bool  #: send what is printed to the main process
    start_method: str

    _by_the_user: ClassVar = ("dataset", "collate_fn", "worker_init_fn")

    def __reduce__(self) -> tuple[Any, ...]:
        # Called while a process is being spawned: only then do locks and queues let themselves be
        # pickled.
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        try:
            return _load, (_dumps(values),)
        except Exception as error:
            raise self._explain(error) from error

    def _explain(self, error: Exception) -> StartupNotPicklable:
        """Find the argument, and the attribute of it, that cannot be pickled."""
        argument = next((a for a in self._by_the_user if not _can_pickle(getattr(self, a))), "?")
        value = getattr(self, argument, None)
        attributes = getattr(value, "__dict__", {})
        attribute = next((name for name in attributes if not _can_pickle(attributes[name])), None)
        what = f"{argument} ({type(value).__name__})" + (f".{attribute}" if attribute else "")
        if attribute:
            what += f" ({type(attributes[attribute]).__name__})"
        return StartupNotPicklable(
            f"DataLoader argument {what} cannot be pickled, which the start method "
            f"{self.start_method!r} needs: {str(error).rstrip('.')}. Open or make such an object "
            "in the worker (at the first `__getitem__`, in `__iter__` or in `worker_init_fn`), or "
            "leave it out in `__getstate__`, or start the workers with "
            'multiprocessing_context="fork".',
            argument=argument,
            attribute=attribute,
            start_method=self.start_method,
        )


def _load(payload: bytes) -> Startup:
    return Startup(**pickle.loads(payload))


def _can_pickle(value: Any) -> bool:
    try:
        _dumps(value)
    except Exception:
        return False
    return True


def _dumps(obj: Any) -> bytes:
    """Pickle by reference what a new process can import, else by value."""
    # What was handed over to the new process (descriptors) by an attempt that fails half-way would
    # be handed over twice, which multiprocessing takes for an error.
    handed_over = getattr(get_spawning_popen(), "_fds", [])
    before = len(handed_over)
    if _main_can_be_imported():
        try:
            return bytes(ForkingPickler.dumps(obj))
        except (pickle.PicklingError, AttributeError, TypeError):
            del handed_over[before:]  # a lambda, or a class made inside a function
    file = io.BytesIO()
    # How locks, queues and shared tensors go to a new process, ForkingPickler knows.
    reducers = {**by_value_reducers(), **ForkingPickler(io.BytesIO()).dispatch_table}
    by_value_pickler(reducers)(file, protocol=pickle.HIGHEST_PROTOCOL).dump(obj)
    return file.getvalue()


def _main_can_be_imported() -> bool:
    """Whether a spawned process will run this process's main module again; not so in a notebook.

    Mirrors: multiprocessing.spawn.get_preparation_data.
    """
    main = sys.modules["__main__"]
    return getattr(main, "__spec__", None) is not None or (
        getattr(main, "__file__", None) is not None and not _came_from_standard_input()
    )


def _came_from_standard_input() -> bool:
    return getattr(sys.modules["__main__"], "__file__", None) == "<stdin>"


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """A Ctrl-C that comes while this is active comes at its end: what is half made by then, a
    process above all, would be known to nobody.
    """
    # Only the main thread is ever interrupted, and only by a handler that is written in Python.
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or not callable(signal.getsignal(signal.SIGINT)):
        yield
        return
    came: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def starting() -> Iterator[None]:
    """To be active while a worker is started: SIGINT is held back in this thread, and in what it
    starts (see `worker.accept_interrupts`).
    """
    if not hasattr(signal, "pthread_sigmask"):
        with _unchanged():
            yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with _unchanged():
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextmanager
def _unchanged() -> Iterator[None]:
    """While it is active, multiprocessing does not fix the process's default start method by using
    it, and tells no new process to look for a file named "<stdin>".
    """
    main = sys.modules["__main__"]
    from_standard_input = _came_from_standard_input()
    default_method: Any = multiprocessing.get_start_method(allow_none=True)
    if from_standard_input:
        main.__file__ = None
    try:
        yield
    finally:
        if default_method is None:
            multiprocessing.set_start_method(None, force=True)
        if from_standard_input:
            main.__file__ = "<stdin>"


def resolve_context(context: BaseContext | None) -> BaseContext:
    """The multiprocessing context; for None the process's default one, which stays unfixed."""
    if context is not None and context.get_start_method(allow_none=True) is not None:
        return context
    method = multiprocessing.get_start_method(allow_none=True)
    return multiprocessing.get_context(method or multiprocessing.get_all_start_methods()[0])


def prepare_start_method(context: BaseContext) -> str:
    """Let the fork server, if it is one, import what workers need. Returns the method's name."""
    method: str = context.get_start_method()
    if method == "forkserver":
        asked_for = multiprocessing.forkserver._forkserver._preload_modules  # type: ignore[attr-defined]
        ours = [name for name in ("torch", "labkit.worker") if name not in asked_for]
        context.set_forkserver_preload([*asked_for, *ours])
    # What multiprocessing starts once a process and keeps is started here, and not inside
    # `starting`: the tracker would let SIGINT in again, and the server would hand a SIGINT that is
    # held back on to every process that it forks, for whomever.
    with _unchanged():
        if method != "fork":
            multiprocessing.resource_tracker.ensure_running()
        if method == "forkserver":
            multiprocessing.forkserver.ensure_running()
    return method
