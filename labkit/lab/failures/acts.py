"""The failures: each is a function that breaks a loader on purpose, in a main process of its own.

An act announces by `stage.breaks()` the moment from which no further batch can come, and then goes
on as any training loop does. What it raises is what the learner would see. It is played twice: with
PyTorch's loader and with labkit's.

Before it: `sides`, `datasets`. After it: `stage`, on which acts are played.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from labkit.lab.failures import datasets
from labkit.lab.failures.sides import SIDES, Side
from labkit.lab.shared_memory.holdings import DEV_SHM

__all__ = ["FAILURES", "Failure", "Stage", "hold_the_lock", "sides_of", "wait_for_work"]

_FEW = 60  # descriptors
_KEPT = 200  # batches
_TIMEOUT = 1
_SETTLE_SECONDS, _LOOK_SECONDS = 0.3, 0.005
_BEGIN_SECONDS = 20.0


class Stage(Protocol):
    """What an act may ask for."""

    def breaks(self) -> None:
        """From now on no further batch can come."""

    def came(self, private_bytes: int | None = None) -> None:
        """A batch has come; its worker has so much memory for itself, if that is looked at."""


@dataclass(frozen=True)
class Failure:
    """A way to break a loader.

    Attributes:
        name: in words.
        act: breaks it.
        start_method: that it is shown under, unless another one is asked for.
        pytorch_waits: whether PyTorch's loader then waits for ever, or for the next look at its
            workers 5 s later: such a side is given up after a while.
        ends_main: whether it is the main process that ends; its workers are then looked at.
        pytorch_prints: whether an error is printed meanwhile, which is to be seen first.
        pytorch_closes_late: whether it then waits for a worker that does not end, for 5 s.
    """

    name: str
    act: Callable[[Side, Stage], None]
    start_method: str = "fork"
    ends_main: bool = False
    pytorch_waits: bool = False
    pytorch_prints: bool = False
    pytorch_closes_late: bool = False

    def waits(self, side: Side) -> bool:
        """Whether this side is to be given up after a while."""
        # It learns of a death by SIGCHLD, which only a parent gets; the fork server is that.
        by_server = self.name == "killed worker" and side.start_method == "forkserver"
        return side.package == "PyTorch" and (self.pytorch_waits or by_server)

    def prints(self, side: Side) -> bool:
        """Whether this side prints an error that it does not raise."""
        return side.package == "PyTorch" and self.pytorch_prints

    def closes_late(self, side: Side) -> bool:
        """Whether this side is to be given up while it closes."""
        return side.package == "PyTorch" and self.pytorch_closes_late


def _killed(side: Side, stage: Stage) -> None:
    _end_worker(side, stage, signal.SIGKILL)


def _exits(side: Side, stage: Stage) -> None:
    _end_worker(side, stage, signal.SIGUSR1)


def _end_worker(side: Side, stage: Stage, by: signal.Signals) -> None:
    batches = side.batches(datasets.Pids(10, works_from=1))
    pid = next(batches)
    stage.came()

    def strike() -> None:
        stage.breaks()
        os.kill(pid, by)

    wait_for_work(side)
    threading.Timer(_SETTLE_SECONDS, strike).start()
    next(batches)


def wait_for_work(side: Side) -> None:
    """Until its worker has come to the sample that breaks, as far as that can be known."""
    if side.start_method != "fork":
        time.sleep(_SETTLE_SECONDS)
        return
    deadline = time.monotonic() + _BEGIN_SECONDS
    while not datasets.BEGUN[0] and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)


def _parent_dies(side: Side, stage: Stage) -> None:
    batches = side.batches(datasets.Pids(3, works_from=3))
    next(batches)
    stage.came()
    time.sleep(_SETTLE_SECONDS)  # the worker has nothing more to do
    stage.breaks()
    os.kill(os.getpid(), signal.SIGKILL)


def _full(side: Side, stage: Stage) -> None:
    status = os.statvfs(DEV_SHM)
    too_much = (status.f_blocks + 1) * status.f_frsize
    batches = side.batches(
        datasets.Small(4),
        sharing_strategy="file_system",  # PyTorch's other one leaves names behind
        batch_size=1,
        collate_fn=datasets.LargerThan(too_much),
    )
    wait_for_work(side)
    stage.breaks()
    next(batches)


def _descriptors(side: Side, stage: Stage) -> None:
    there = len(os.listdir("/proc/self/fd")) - 1  # less the one that lists them
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (there + _FEW, hard))
    kept = []
    for batch in side.batches(datasets.Small(_KEPT), sharing_strategy="file_descriptor"):
        kept.append(batch)
        stage.came()
        stage.breaks()


def _unpicklable_batch(side: Side, stage: Stage) -> None:
    batches = side.batches(datasets.Small(4), collate_fn=datasets.with_a_generator)
    wait_for_work(side)
    stage.breaks()
    next(batches)


def _unpicklable_dataset(side: Side, stage: Stage) -> None:
    stage.breaks()
    next(side.batches(datasets.OpenFile(4)))


def hold_the_lock() -> None:
    """In a thread, for as long as this process lives."""
    held = threading.Event()

    def hold() -> None:
        with datasets.LOCK:
            held.set()
            threading.Event().wait()

    threading.Thread(target=hold, daemon=True).start()
    held.wait()


def _lock(side: Side, stage: Stage) -> None:
    hold_the_lock()
    batches = side.batches(datasets.Locked(4), timeout=_TIMEOUT)
    wait_for_work(side)
    stage.breaks()
    next(batches)
    stage.came()


def _slow(side: Side, stage: Stage) -> None:
    batches = side.batches(datasets.Slow(4, seconds=3 * _TIMEOUT), timeout=_TIMEOUT)
    wait_for_work(side)
    stage.breaks()
    next(batches)


def _interrupt(side: Side, stage: Stage) -> None:
    batches = side.batches(datasets.Pids(8, works_from=2), num_workers=2)
    for _ in range(2):
        next(batches)
        stage.came()

    def press() -> None:
        stage.breaks()
        os.killpg(0, signal.SIGINT)  # as a terminal does: to all of them

    threading.Timer(_SETTLE_SECONDS, press).start()
    next(batches)


FAILURES = {
    failure.name: failure
    for failure in (
        Failure("killed worker", _killed),
        Failure("worker exits", _exits, pytorch_waits=True),
        Failure("dead parent", _parent_dies, ends_main=True, pytorch_waits=True),
        Failure("full shared memory", _full, pytorch_waits=True, pytorch_prints=True),
        Failure("too many open files", _descriptors),
        Failure("unpicklable batch", _unpicklable_batch, pytorch_waits=True, pytorch_prints=True),
        Failure("unpicklable dataset", _unpicklable_dataset, start_method="spawn"),
        Failure("lock held at the fork", _lock, pytorch_closes_late=True),
        Failure("slow batch", _slow),
        Failure("Ctrl-C", _interrupt),
    )
}


def sides_of(
    failure: str, start_method: str | None = None, sharing_strategy: str | None = None
) -> list[Side]:
    """Both sides of a failure, under its own start method unless another one is asked for.

    Raises:
        ValueError: there is no such failure, or no such start method on this system.
    """
    if failure not in FAILURES:
        known = ", ".join(map(repr, FAILURES))
        raise ValueError(f"there is no failure {failure!r}: write one of {known}")
    method = start_method or FAILURES[failure].start_method
    methods = multiprocessing.get_all_start_methods()
    if method not in methods:
        raise ValueError(f"there is no start method {method!r} here: write one of {methods}")
    return [Side(package, method, sharing_strategy) for package in SIDES]
