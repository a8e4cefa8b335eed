"""Main processes that are made to be killed: each loads some batches, keeps them, and waits.

Its worker makes the batches that are handed out ahead, and then waits too. All carry a mark in
their environment: by it PyTorch's manager of names is found, which leaves its starter's session.

Before it: `ways`, how batches come. After it: `killed`, which kills them and watches what is left.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import torch

from labkit.lab import need
from labkit.lab.shared_memory.holdings import names_of
from labkit.lab.shared_memory.ways import Bundles, Way

__all__ = [
    "BATCH_BYTES",
    "MANAGER",
    "MARK",
    "START_SECONDS",
    "Case",
    "end_managers",
    "managers",
    "started",
    "wait_until_ready",
]

BATCH_BYTES = 100_000
MARK = "LABKIT_KILLED_BY_THE_LAB"
START_SECONDS = 60.0
"""So long one may take until it is ready."""

_KEPT, _UNDER_WAY = 3, 2  # batches
_LOOKS, _LOOK_SECONDS = 5, 0.03  # that must agree before all is at rest
_END_SECONDS, _TIDY_SECONDS = 2.0, 5.0
MANAGER = "torch_shm_manag"  # the system cuts names after so many letters


@dataclass
class Case:
    """A main process, what belongs to it, and what was seen since it was killed.

    Attributes:
        way: how its batches come.
        main: the process.
        ready: on it come its workers' process ids, once all is at rest.
        mark: is in the environment of all that it starts.
        pids: its own, and its workers'.
        workers: as psutil knows them.
        killed: when, on `time.monotonic()`.
        names: in /dev/shm then.
        worker_s, names_s: seconds after which worker and names were seen to be gone.
    """

    way: Way
    main: Any
    ready: Connection
    mark: str
    pids: list[int]
    workers: list[Any] = field(default_factory=list)
    killed: float = 0.0
    names: int = 0
    worker_s: float | None = None
    names_s: float | None = None

    def look(self) -> bool:
        """Note what is gone; whether all is."""
        if self.worker_s is None and not any(map(_is_alive, self.workers)):
            self.worker_s = time.monotonic() - self.killed
        if self.names_s is None and not names_of(self.pids):
            self.names_s = time.monotonic() - self.killed
        return self.worker_s is not None and self.names_s is not None


def _is_alive(process: Any) -> bool:
    psutil = need("psutil")
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def started(way: Way, mark: str) -> Case:
    """A new main process, which is forked."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    main = context.Process(target=_main, args=(way, mark, theirs))
    main.start()
    theirs.close()
    return Case(way, main, ours, mark, [main.pid or 0])


def _main(way: Way, mark: str, ready: Connection) -> None:
    """A main process: it keeps some batches, and its worker has nothing more to do."""
    os.environ[MARK] = mark
    dataset = _Counted(1000, tensor_bytes=BATCH_BYTES)
    batches = iter(way.loader(dataset, batch_size=1, prefetch_factor=_UNDER_WAY))
    kept = [next(batches) for _ in range(_KEPT)]
    workers = [worker.pid for worker in multiprocessing.active_children() if worker.pid]
    names: list[int] = []
    while len(names) < _LOOKS or len(set(names[-_LOOKS:])) > 1:
        if dataset.given == _KEPT + _UNDER_WAY:
            names.append(len(names_of([os.getpid(), *workers])))
        time.sleep(_LOOK_SECONDS)
    ready.send(workers)
    signal.pause()
    del kept


class _Counted(Bundles):
    """Samples of which the process that forked a worker knows how many it has made."""

    def __init__(self, length: int, tensor_bytes: int) -> None:
        super().__init__(length, tensor_bytes=tensor_bytes)
        self._given = mmap.mmap(-1, 1)  # shared with forked processes

    def __getitem__(self, index: int) -> list[torch.Tensor]:
        self._given[0] += 1
        return super().__getitem__(index)

    @property
    def given(self) -> int:
        """How many were made so far."""
        return self._given[0]


def wait_until_ready(
    case: Case, send: Callable[[Any], None], meanwhile: Sequence[Case] = ()
) -> None:
    """Wait until its batches have come, and `send` its process ids.

    Args:
        case: the main process.
        send: called with the ids of it and its workers.
        meanwhile: others, which are looked at while this one is waited for.

    Raises:
        TimeoutError: that took more than `START_SECONDS`.
    """
    deadline = time.monotonic() + START_SECONDS
    while not case.ready.poll(0.01):
        for killed in meanwhile:
            killed.look()
        if time.monotonic() > deadline:
            raise TimeoutError(f"{case.way.label}: no batches after {START_SECONDS:g} s")
    workers = case.ready.recv()
    case.ready.close()
    case.pids += workers
    case.workers = [need("psutil").Process(pid) for pid in workers]
    send(case.pids)


def end_managers(mark: str) -> None:
    """End those of this mark and of all that begin with it. With nobody left to serve, they remove
    their names and end by themselves; the others are killed.
    """
    psutil = need("psutil")
    _, found = psutil.wait_procs(managers(mark), timeout=_END_SECONDS)
    for process in found:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(found, timeout=_TIDY_SECONDS)


def managers(mark: str) -> list[Any]:
    """PyTorch's managers of names: in sessions of their own, but with their starter's
    environment.
    """
    psutil = need("psutil")
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            marked = process.name().startswith(MANAGER) and process.environ().get(MARK, "")
            if marked and (marked == mark or marked.startswith(f"{mark}-")):
                found.append(process)
    return found
