"""Where a failure is played: a main process of its own for each side, watched from outside.

`play` forks the main processes, each the first of a process group of its own, and takes what they
tell: when it broke, what was raised, what they still have when all is closed. A side that says
nothing is given up after a while. In the end every group is killed.

Before it: `acts`. After it: `outcome`. It runs in a child process (`ways.in_a_child`) or in a fresh
one (`experiments.fresh`), whose end is the end of everything that was started.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import re
import signal
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO

import torch

from labkit.lab import need
from labkit.lab.failures.acts import Failure
from labkit.lab.failures.main_process import STACK_SIGNAL, Told, main_process, members
from labkit.lab.failures.outcome import Left, Outcome
from labkit.lab.failures.sides import Side
from labkit.lab.shared_memory.holdings import names_of, remove_names
from labkit.lab.shared_memory.main_processes import MARK, end_managers

__all__ = ["Scene", "play"]

Scene = tuple[Failure, Side]

_LIMIT_SECONDS = 30.0  # for what comes at once, on a machine that has much else to do
_START_SECONDS = 60.0
_LOOK_SECONDS = 0.02
_STACK_SECONDS = 0.3
_TIDY_SECONDS = 2.0
_MOST_BYTES = 20_000
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)


def play(scenes: Sequence[Scene], patience_s: float, mark: str) -> list[Outcome]:
    """Break these loaders, all at the same time.

    Args:
        scenes: what is broken, and which loader.
        patience_s: after so long a side is given up that is known to wait.
        mark: is in the environment of all that is started.
    """
    os.environ[MARK] = mark
    with suppress(OSError, AttributeError):  # else whom a main process leaves would go to init
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    torch.set_num_threads(1)
    plays = [_Play(failure, side, patience_s) for failure, side in scenes]
    outcomes: dict[_Play, Outcome] = {}
    try:
        while len(outcomes) < len(plays):
            for play in plays:
                if play not in outcomes and play.look():
                    outcomes[play] = play.outcome()
            time.sleep(_LOOK_SECONDS)
        return [outcomes[play] for play in plays]
    finally:
        for play in plays:
            play.end()
        end_managers(mark)


@dataclass
class _Seen:
    """What a main process has told so far."""

    broke: float | None = None
    batches: int = 0
    workers: list[int] = field(default_factory=list)
    servers: list[int] = field(default_factory=list)
    exit_codes: list[int | None] = field(default_factory=list)
    megabytes: list[float] = field(default_factory=list)
    told: Told | None = None
    closed: float | None = None
    left: Left | None = None


class _Play:
    """One side, as it is seen from outside."""

    def __init__(self, failure: Failure, side: Side, patience_s: float) -> None:
        self._failure, self._side = failure, side
        self._patience = patience_s if failure.waits(side) else _LIMIT_SECONDS
        self._closing = patience_s if failure.closes_late(side) else _LIMIT_SECONDS
        self._seen = _Seen()
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `end`)
        self._stack_file = tempfile.TemporaryFile()  # noqa: SIM115
        self._reports, theirs = multiprocessing.Pipe(duplex=False)
        self._started = time.monotonic()
        self._stack: str | None = None
        self._gone: float | None = None  # when its workers were seen to be gone, after its own end
        context = multiprocessing.get_context("fork")
        self._main = context.Process(
            target=main_process, args=(failure, side, theirs, self._printed, self._stack_file)
        )
        self._main.start()
        theirs.close()

    def look(self) -> bool:
        """Take what has come; whether it is over."""
        seen, now = self._seen, time.monotonic()
        is_dead = self._main.exitcode is not None  # its workers may hold its end of the pipe
        with suppress(EOFError):
            while self._reports.poll():
                for name, value in self._reports.recv().items():
                    setattr(seen, name, value)
        if is_dead:
            return self._look_for_workers(now)
        if seen.told is not None:
            self._take_stack()  # before all is closed
        if seen.left is not None:
            return True
        if seen.told is not None:
            return now > seen.told.at + self._closing
        if seen.broke is not None:
            is_seen = not self._failure.prints(self._side) or self._has_printed_an_error()
            return now > seen.broke + (self._patience if is_seen else _LIMIT_SECONDS)
        return now > self._started + _START_SECONDS

    def _has_printed_an_error(self) -> bool:
        return bool(re.search(r"^\w+(Error|Exception)\b.*\n", _read(self._printed), re.MULTILINE))

    def _look_for_workers(self, now: float) -> bool:
        """The main process is gone. Are its workers?"""
        if not self._members():
            self._gone = self._gone or now
            return True
        return now > (self._seen.broke or self._started) + self._patience

    def _members(self) -> list[int]:
        return members(self._main.pid or 0, self._seen.servers)

    def outcome(self) -> Outcome:
        """What came of it."""
        seen, side = self._seen, self._side
        broke = self._started if seen.broke is None else seen.broke
        ended = seen.told.at if seen.told else self._gone
        told = seen.told or Told("", "", 0.0)
        if ended is not None and ended > broke + self._patience:
            ended, told = None, Told("", "", 0.0)  # it came just before this one looked
        is_dead = self._main.exitcode is not None
        if is_dead and not self._failure.ends_main and seen.left is None:
            raise RuntimeError(
                f"the main process of {side.package}'s {self._failure.name!r} has ended with exit "
                f"code {self._main.exitcode}. {_read(self._printed)}"
            )
        self._take_stack()
        left = seen.left
        if left is None and is_dead:
            pids = [self._main.pid or 0, *seen.workers]
            left = Left(len(self._members()), len(names_of(pids)), 0)
        return Outcome(
            package=side.package,
            failure=self._failure.name,
            seconds=max(0.0, (ended or time.monotonic()) - broke),
            is_over=ended is not None,
            error=told.error,
            message=told.message,
            workers=tuple(seen.workers),
            batches=seen.batches,
            printed=_read(self._printed),
            stack=self._stack or "",
            exit_codes=tuple(seen.exit_codes),
            megabytes=tuple(seen.megabytes),
            closing_s=seen.closed,
            left=left if ended or is_dead else None,
        )

    def _take_stack(self) -> None:
        """Where its first worker stands, if it lives: as a debugger would tell that looks in."""
        if self._stack is not None or self._side.start_method != "fork":
            return
        deadline = time.monotonic() + _STACK_SECONDS
        for pid in set(self._seen.workers[:1]) & set(self._members()):
            with suppress(ProcessLookupError):
                os.kill(pid, STACK_SIGNAL)
            while not _read(self._stack_file) and time.monotonic() < deadline:
                time.sleep(_LOOK_SECONDS)
            time.sleep(_LOOK_SECONDS)  # for the last lines
        self._stack = _read(self._stack_file)

    def end(self) -> None:
        """Kill its group, and remove what it left."""
        group = self._main.pid or 0
        workers = {*self._seen.workers, *self._members()}  # also who has not been told of yet
        _kill_all_but_the_tracker(group)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
        self._main.join()
        remove_names([group, *workers])
        self._reports.close()
        self._printed.close()
        self._stack_file.close()


def _kill_all_but_the_tracker(group: int) -> None:
    """multiprocessing's resource tracker ends by itself when the others of its group are gone, and
    then removes their semaphores' names: it gets the time for that.
    """
    psutil = need("psutil")
    trackers = []
    for pid in members(group, ()):
        with suppress(psutil.Error, ProcessLookupError):
            process = psutil.Process(pid)
            if "multiprocessing.resource_tracker" in " ".join(process.cmdline()):
                trackers.append(process)
            else:
                os.kill(pid, signal.SIGKILL)
    psutil.wait_procs(trackers, timeout=_TIDY_SECONDS)


def _read(file: IO[bytes]) -> str:
    return os.pread(file.fileno(), _MOST_BYTES, 0).decode(errors="replace")
