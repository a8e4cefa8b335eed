"""Kill the main process with SIGKILL, which it cannot catch, and see what it leaves behind.

For each way, a main process loads some batches, keeps them, and lets its worker make those that are
handed out ahead. Then it is killed: alone, or with its worker and PyTorch's manager of names. All
cases run side by side in one child. What is left is removed in the end, whatever happens.

Before it: notebook 05. After it: `killed_picture`, which draws it.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import secrets
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import torch

from labkit.lab import need
from labkit.lab.experiments.measuring import at_most
from labkit.lab.shared_memory.holdings import names_of, remove_names
from labkit.lab.shared_memory.table import Table
from labkit.lab.shared_memory.ways import LABKIT, PYTORCH, Bundles, Way, in_a_child

__all__ = ["Killed", "Left", "kill_main"]

_KEPT = 3
_UNDER_WAY = 2
_LOOKS, _LOOK_SECONDS = 5, 0.03  # that must agree before all is at rest
_START_SECONDS = 60.0
_TIDY_SECONDS = 5.0
_SOON_SECONDS = 3.0
_WATCH_SECONDS = 8.0
_BYTES = 100_000  # of a batch
_MARK = "LABKIT_KILLED_BY_THE_LAB"  # in the environment of what a main process starts
_MANAGER = "torch_shm_manag"  # the system cuts names after so many letters


@dataclass(frozen=True)
class Left:
    """What one main process left.

    Attributes:
        way: how its batches came.
        names: in /dev/shm, when it was killed.
        worker_s: seconds after which its worker was gone; None: not while it was watched.
        names_s: seconds after which its names were gone; None likewise.
        names_left_by_all: that were left where worker and manager were killed at the same time,
        names_left_to_next: and that were left when another loader of this kind had come and gone.
        watched_s: for so long it was watched.
    """

    way: Way
    names: int
    worker_s: float | None
    names_s: float | None
    names_left_by_all: int
    names_left_to_next: int
    watched_s: float

    @property
    def words(self) -> tuple[str, str, str, str]:
        """In words that are the same on every machine."""

        def is_soon(seconds: float | None) -> bool:
            return seconds is not None and seconds <= _SOON_SECONDS

        return (
            "gone" if is_soon(self.worker_s) else "still there",
            "none" if is_soon(self.names_s) else "some",
            "some" if self.names_left_by_all else "none",
            "some" if self.names_left_to_next else "none",
        )


@dataclass(frozen=True, repr=False)
class Killed(Table):
    """What each of them left, as a table. `left` has it in numbers."""

    left: Sequence[Left]


def kill_main(ways: Sequence[Way] = (*LABKIT, *PYTORCH)) -> Killed:
    """Kill main processes, and watch what becomes of their workers and names.

    Raises:
        RuntimeError: the experiment did not come to its end; says what it wrote.
    """
    mark = secrets.token_hex(8)
    watch = _SOON_SECONDS + 0.1 if at_most() < _WATCH_SECONDS else _WATCH_SECONDS
    limit = 2 * _START_SECONDS + watch

    def tidy(messages: list[Any]) -> None:
        _end_managers(mark)
        remove_names([pid for message in messages if isinstance(message, list) for pid in message])

    *_, left = in_a_child(_kill_each, ways, mark, watch, seconds=limit, tidy=tidy)
    soon = f"after {_SOON_SECONDS:g} s"
    heading = ("kill -9", f"worker {soon}", f"names {soon}", "all killed: names", "a loader later")
    return Killed(heading, [(one.way.label, *one.words) for one in left], left)


@dataclass
class _Case:
    """A main process, what belongs to it, and what was seen since it was killed."""

    way: Way
    main: Any
    ready: Connection
    mark: str
    pids: list[int]
    workers: list[Any] = field(default_factory=list)  # psutil.Process
    killed: float = 0.0
    names: int = 0
    worker_s: float | None = None
    names_s: float | None = None


def _kill_each(send: Callable[[Any], None], ways: Sequence[Way], mark: str, watch: float) -> None:
    os.environ[_MARK] = mark
    cases: list[_Case] = []
    try:
        with_all = [_started(way, f"{mark}-all-{n}") for n, way in enumerate(ways)]
        cases += with_all
        for case in with_all:
            _wait_until_ready(case, send)
            _kill(case, [case.main, *case.workers, *_managers(case.mark)])
        by_all = [len(names_of(case.pids)) for case in with_all]
        alone = [_started(way, f"{mark}-alone-{n}") for n, way in enumerate(ways)]
        cases += alone
        for number, case in enumerate(alone):
            _wait_until_ready(case, send, meanwhile=alone[:number])
            _kill(case, [case.main])  # at once: how long its worker has waited matters
        _watch(alone, watch)
        _load_another(ways)
        to_next = [len(names_of(case.pids)) for case in with_all]
        counts = zip(alone, by_all, to_next, strict=True)
        send(tuple(_left(case, now, later, watch) for case, now, later in counts))
    finally:
        for case in cases:
            case.main.kill()


def _left(case: _Case, by_all: int, to_next: int, watched_s: float) -> Left:
    return Left(
        way=case.way,
        names=case.names,
        worker_s=case.worker_s,
        names_s=case.names_s,
        names_left_by_all=by_all,
        names_left_to_next=to_next,
        watched_s=watched_s,
    )


def _started(way: Way, mark: str) -> _Case:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    main = context.Process(target=_main, args=(way, mark, theirs))
    main.start()
    theirs.close()
    return _Case(way, main, ours, mark, [main.pid or 0])


def _main(way: Way, mark: str, ready: Connection) -> None:
    """A main process: it keeps some batches, and its worker has nothing more to do."""
    os.environ[_MARK] = mark
    dataset = _Counted(1000, tensor_bytes=_BYTES)
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


def _wait_until_ready(
    case: _Case, send: Callable[[Any], None], meanwhile: Sequence[_Case] = ()
) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not case.ready.poll(0.01):
        for killed in meanwhile:
            _look(killed)
        if time.monotonic() > deadline:
            raise TimeoutError(f"{case.way.label}: no batches after {_START_SECONDS:g} s")
    workers = case.ready.recv()
    case.ready.close()
    case.pids += workers
    case.workers = [need("psutil").Process(pid) for pid in workers]
    send(case.pids)


def _kill(case: _Case, processes: Sequence[Any]) -> None:
    """Kill these at the same time: they are stopped first, so that none sees another's end."""
    case.names = len(names_of(case.pids))
    for number in (signal.SIGSTOP, signal.SIGKILL):
        case.killed = time.monotonic()
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)
    case.main.join()
    _look(case)


def _watch(cases: Sequence[_Case], seconds: float) -> None:
    """Note when workers and names are gone."""
    end = max(case.killed for case in cases) + seconds
    while time.monotonic() < end and sum(map(_look, cases)) < len(cases):
        time.sleep(0.01)


def _look(case: _Case) -> bool:
    """Note what is gone; whether all is."""
    if case.worker_s is None and not any(map(_is_alive, case.workers)):
        case.worker_s = time.monotonic() - case.killed
    if case.names_s is None and not names_of(case.pids):
        case.names_s = time.monotonic() - case.killed
    return case.worker_s is not None and case.names_s is not None


def _is_alive(process: Any) -> bool:
    psutil = need("psutil")
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def _load_another(ways: Sequence[Way]) -> None:
    """A further loader of each kind, in a process of its own, that comes and goes in peace."""
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_load_two, args=(way,)) for way in ways]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def _load_two(way: Way) -> None:
    for _ in way.loader(Bundles(2, tensor_bytes=_BYTES), batch_size=1):
        pass


def _end_managers(mark: str) -> None:
    psutil = need("psutil")
    managers = _managers(mark)
    for process in managers:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(managers, timeout=_TIDY_SECONDS)


def _managers(mark: str) -> list[Any]:
    """PyTorch's managers of names: in sessions of their own, but with their starter's
    environment.
    """
    psutil = need("psutil")
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            marked = process.name().startswith(_MANAGER) and process.environ().get(_MARK, "")
            if marked and (marked == mark or marked.startswith(f"{mark}-")):
                found.append(process)
    return found
