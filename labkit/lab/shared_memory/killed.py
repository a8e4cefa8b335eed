"""Kill the main process with SIGKILL, which it cannot catch, and see what it leaves behind.

For each way, a main process loads some batches, keeps them, and lets its worker make those that are
handed out ahead. Then it is killed: alone, or with its worker and PyTorch's manager of names. All
cases run side by side in one child. What is left is removed in the end, whatever happens.

Before it: notebook 05; `main_processes`, which are killed. After it: `killed_picture`, which draws
it.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from labkit.lab.experiments.measuring import at_most
from labkit.lab.shared_memory.holdings import names_of, remove_names
from labkit.lab.shared_memory.main_processes import (
    BATCH_BYTES,
    MARK,
    START_SECONDS,
    Case,
    end_managers,
    managers,
    started,
    wait_until_ready,
)
from labkit.lab.shared_memory.ways import LABKIT, PYTORCH, Bundles, Way, in_a_child
from labkit.lab.table import Table
from labkit.sharing.names import remove_orphans

__all__ = ["Killed", "Left", "kill_main"]

_SOON_SECONDS = 3.0
_WATCH_SECONDS = 8.0


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
    limit = 2 * START_SECONDS + watch

    def tidy(messages: list[Any]) -> None:
        end_managers(mark)
        remove_orphans()  # also of those that were ended before they had told their process ids
        remove_names([pid for message in messages if isinstance(message, list) for pid in message])

    *_, left = in_a_child(_kill_each, ways, mark, watch, seconds=limit, tidy=tidy)
    soon = f"after {_SOON_SECONDS:g} s"
    heading = (
        "kill -9",
        f"worker {soon}",
        f"names {soon}",
        "all killed: names",
        "after the next loader",
    )
    return Killed(heading, [(one.way.label, *one.words) for one in left], left)


def _kill_each(send: Callable[[Any], None], ways: Sequence[Way], mark: str, watch: float) -> None:
    os.environ[MARK] = mark
    cases: list[Case] = []
    try:
        with_all = [started(way, f"{mark}-all-{n}") for n, way in enumerate(ways)]
        cases += with_all
        for case in with_all:
            wait_until_ready(case, send)
            _kill(case, [case.main, *case.workers, *managers(case.mark)])
        by_all = [len(names_of(case.pids)) for case in with_all]
        alone = [started(way, f"{mark}-alone-{n}") for n, way in enumerate(ways)]
        cases += alone
        for number, case in enumerate(alone):
            wait_until_ready(case, send, meanwhile=alone[:number])
            _kill(case, [case.main])  # at once: how long its worker has waited matters
        _watch(alone, watch)
        _load_another(ways)
        to_next = [len(names_of(case.pids)) for case in with_all]
        counts = zip(alone, by_all, to_next, strict=True)
        send(tuple(_left(case, now, later, watch) for case, now, later in counts))
    finally:
        for case in cases:
            case.main.kill()


def _left(case: Case, by_all: int, to_next: int, watched_s: float) -> Left:
    return Left(
        way=case.way,
        names=case.names,
        worker_s=case.worker_s,
        names_s=case.names_s,
        names_left_by_all=by_all,
        names_left_to_next=to_next,
        watched_s=watched_s,
    )


def _kill(case: Case, processes: Sequence[Any]) -> None:
    """Kill these at the same time: they are stopped first, so that none sees another's end."""
    case.names = len(names_of(case.pids))
    for number in (signal.SIGSTOP, signal.SIGKILL):
        case.killed = time.monotonic()
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)
    case.main.join()
    case.look()


def _watch(cases: Sequence[Case], seconds: float) -> None:
    """Note when workers and names are gone."""
    end = max(case.killed for case in cases) + seconds
    while time.monotonic() < end and sum(case.look() for case in cases) < len(cases):
        time.sleep(0.01)


def _load_another(ways: Sequence[Way]) -> None:
    """A further loader of each kind, in a process of its own, that comes and goes in peace."""
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_load_two, args=(way,)) for way in ways]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def _load_two(way: Way) -> None:
    for _ in way.loader(Bundles(2, tensor_bytes=BATCH_BYTES), batch_size=1):
        pass
