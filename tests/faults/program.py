"""The process that iterates: up to the fault, and on after it.

`Consumer` does that; where a worker is hit it works in the process that runs the episodes. Where
the main process itself is hit, that is a `Program`: a fork of the one that runs the episodes, which
has imported torch already. Before it: `running`. After it: `loading`.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.util
import os
import queue
import sys
import tempfile
import threading
import time
import traceback
import weakref
from multiprocessing.connection import Connection
from typing import Any

from tests.faults.episode import Episode
from tests.faults.gate import Hook
from tests.faults.loading import PlantedError, die_quietly, expected, make_loader

__all__ = ["Consumer", "Program"]

_LIMIT_SECONDS = 60.0


class Consumer:
    """Iterates over an episode's loader, and compares every batch with what it must be.

    Attributes:
        wrong: what was not as it must be.
        given: numbers of the batches of epoch 1 that came.
        errors: what was raised in epoch 1.
        raised_at: when the first of them was, on `time.monotonic()`.
    """

    def __init__(self, episode: Episode, hook: Hook) -> None:
        self.episode = episode
        self.loader = make_loader(episode, hook)
        self.wrong: list[str] = []
        self.given: list[int] = []
        self.errors: list[Exception] = []
        self.raised_at = 0.0
        self._kept: list[tuple[int, Any]] = []
        self._batches: Any = None

    def go_to_the_stage(self) -> None:
        """An epoch before, if workers stay; then the first batch of epoch 1 from each worker: the
        second ones are under way.
        """
        if self.episode.persistent:
            self._whole_epoch(0)
        self.loader.set_epoch(1)
        if self.episode.persistent and self.episode.stage == "idle":
            return  # between two epochs
        self._batches = iter(self.loader)
        for _ in range(self.episode.workers):
            self._take()

    def worker_pids(self) -> list[int]:
        """Of workers 0 and 1."""
        workers = {
            child.name: child.pid
            for child in multiprocessing.active_children()
            if child.name.startswith("DataLoader worker")
        }
        return [pid for _, pid in sorted(workers.items()) if pid is not None]

    def go_on(self) -> None:
        """To the end of epoch 1, or to the error that ends it."""
        while len(self.errors) < 10:
            try:
                if self._batches is None:
                    self._batches = iter(self.loader)
                self._take()
            except StopIteration:
                break
            except Exception as error:
                self.raised_at = self.raised_at or time.monotonic()
                self.errors.append(error.with_traceback(None))
                if not isinstance(error, PlantedError):
                    break  # it is final

    def look_after(self) -> None:
        """What was kept is as it was, and another epoch works. Where workers must be started anew
        for it, they are forked: that is seldom less, and takes no seconds.
        """
        for number, x in self._kept:
            self._compare(x, number, 1)
        self._kept.clear()
        self._batches = None
        if self.episode.start_method == "spawn" and not self._has_workers():
            self.loader.multiprocessing_context = "fork"
        self.loader.set_epoch(2)
        self._whole_epoch(2)

    def _has_workers(self) -> bool:
        return self.episode.persistent and len(self.worker_pids()) == self.episode.workers

    def close(self) -> float:
        """How many seconds it takes."""
        began = time.monotonic()
        self._kept.clear()
        self._batches = None
        self.loader.close()
        return time.monotonic() - began

    def _take(self) -> None:
        x = next(self._batches)["x"]
        number = self._number_of(x)
        self.given.append(number)
        self._compare(x, number, 1)
        self._kept.append((number, x))

    def _number_of(self, x: Any) -> int:
        first = int(x[0, 0])
        firsts = [batch[0] for batch in expected(self.episode, 1)]
        return firsts.index(first) if first in firsts else -1

    def _whole_epoch(self, epoch: int) -> None:
        batches = [batch["x"] for batch in self.loader]
        if len(batches) != len(expected(self.episode, epoch)):
            self.wrong.append(f"epoch {epoch} has {len(batches)} batches")
        for number, x in enumerate(batches):
            self._compare(x, number, epoch)

    def _compare(self, x: Any, number: int, epoch: int) -> None:
        wanted = expected(self.episode, epoch)[number]
        if x.shape != (2, 100) or x.tolist() != [[value] * 100 for value in wanted]:
            self.wrong.append(f"batch {number} of epoch {epoch} is {x[:, :1].tolist()}")


class Program:
    """A main process to be hit: a `Consumer` in a process and process group of its own.

    Attributes:
        worker_pids: its workers'.
    """

    def __init__(self, episode: Episode, hook: Hook) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)
        self._orders, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("fork")
        self._process = context.Process(target=_main, args=(episode, hook, theirs, self._errors))
        self._process.start()
        theirs.close()
        assert self._process.pid is not None
        self.pid = self._process.pid
        self.worker_pids: list[int] = self.answer()

    def order(self, what: str) -> None:
        """Tell it what to do: "go on", "raise", "exit" (of the interpreter), "_exit"."""
        self._orders.send(what)

    def answer(self) -> Any:
        """What it says next.

        Raises:
            TimeoutError: nothing.
        """
        if not self._orders.poll(_LIMIT_SECONDS):
            raise TimeoutError(f"the program says nothing; it wrote {self.written()!r}")
        return self._orders.recv()

    def written(self) -> str:
        """To stderr."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def exit_code(self) -> int | None:
        """Its exit code once it has ended; None if it does not within a minute."""
        self._process.join(_LIMIT_SECONDS)
        return self._process.exitcode

    def close(self) -> None:
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()
        self._orders.close()
        self._errors.close()


_at_exit: list[Any] = []  # what lives when the interpreter exits


def _main(episode: Episode, hook: Hook, orders: Connection, errors: Any) -> None:
    os.setsid()
    os.dup2(errors.fileno(), 2)
    sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 (for good)
    sys.stdout = sys.__stdout__
    die_quietly()
    _begin_as_new()
    try:
        _iterate(episode, hook, orders)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    if _at_exit:
        ctypes.pythonapi.Py_Exit(0)  # the interpreter's own end, with all it does then
    os._exit(0)


def _begin_as_new() -> None:
    """Forget what the process before would do at its exit, and let the fork server be shared: it is
    not this process's child, as multiprocessing would want it.
    """
    gc.freeze()  # for the end to be a quick one
    atexit._clear()
    weakref.finalize._registry.clear()  # type: ignore[attr-defined]
    atexit.register(multiprocessing.util._exit_function)
    atexit.register(weakref.finalize._exitfunc)  # type: ignore[attr-defined]
    server = multiprocessing.forkserver._forkserver  # type: ignore[attr-defined]
    if server._forkserver_address is not None:
        server.ensure_running = lambda: None
        multiprocessing.forkserver.ensure_running = lambda: None  # type: ignore[assignment]


def _iterate(episode: Episode, hook: Hook, orders: Connection) -> None:
    consumer = Consumer(episode, hook)
    consumer.go_to_the_stage()
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(orders, waiting), daemon=True).start()
    orders.send(consumer.worker_pids())
    what = waiting.get()
    if what == "raise":
        raise PlantedError("planted in the loop")
    if what == "exit":
        _at_exit.append(consumer)
        return
    consumer.go_on()
    consumer.look_after()
    seconds = consumer.close()
    told = [f"{type(error).__name__}: {error}" for error in consumer.errors]
    orders.send((consumer.given, consumer.wrong + told, seconds))


def _listen(orders: Connection, waiting: queue.SimpleQueue[str]) -> None:
    while (what := orders.recv()) != "_exit":
        waiting.put(what)
    os._exit(7)
