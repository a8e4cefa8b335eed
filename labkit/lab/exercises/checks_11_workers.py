"""Exercise 11.end_workers: end workers that are idle, busy, stuck, or deaf, as a loader does.

The workers are played on a clock of their own, so that an answer that waits too long is told so at
once. Mirrors: `labkit.pool._close`, and torch's `_MultiProcessingDataLoaderIter._shutdown_workers`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from labkit.lab.exercises.trial import Trial

__all__ = ["check_end_workers"]

_GRACE = 2.0
_TERM_SECONDS = 0.1  # that a stuck worker needs to end by SIGTERM
_SLACK = 1.5  # for those who must be forced


class _WaitsForEver(Exception):
    """A `join` that nobody will end."""


class _Clock:
    now = 0.0


class _Worker:
    """A process as `multiprocessing` has them, and a channel that can be finished.

    Args:
        clock: which a `join` puts forward.
        after: so many seconds after `finish` it ends by itself.
        by_term: whether SIGTERM ends it.
    """

    def __init__(self, clock: _Clock, after: float, by_term: bool = True) -> None:
        self._clock, self._after, self._by_term = clock, after, by_term
        self._ends = math.inf
        self.finished: float | None = None
        self.terminated = self.killed = self.reaped = False

    def finish(self) -> None:
        """Say that no more tasks come."""
        if self.finished is None:
            self.finished = self._clock.now
            self._ends = min(self._ends, self._clock.now + self._after)

    def is_alive(self) -> bool:
        """Whether it runs; if not, it is reaped."""
        alive = self._clock.now < self._ends
        self.reaped |= not alive
        return alive

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, no longer than `timeout`."""
        if timeout is None and self._ends == math.inf:
            raise _WaitsForEver
        waited = math.inf if timeout is None else max(0.0, timeout)
        self._clock.now = min(max(self._ends, self._clock.now), self._clock.now + waited)
        self.is_alive()

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.terminated |= self.is_alive()
        if self._by_term:
            self._ends = min(self._ends, self._clock.now + _TERM_SECONDS)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.killed |= self.is_alive()
        self._ends = min(self._ends, self._clock.now)


def check_end_workers(answer: Callable[..., Any], trial: Trial) -> None:
    """Are all ended in time, none by more force than it needs, and none left as a zombie?"""
    stuck = math.inf
    _case(answer, trial, "4 idle workers, which end at once when told", [(0.1,)] * 4)
    _case(answer, trial, "an idle worker, and one that needs 1.5 s more for its sample",
          [(0.1,), (1.5,)])  # fmt: skip
    _case(answer, trial, "4 workers, each with 0.8 s more to do", [(0.8,)] * 4)
    _case(answer, trial, "3 workers that are stuck: only SIGTERM ends them", [(stuck,)] * 3)
    _case(answer, trial, "an idle worker, and one that is stuck and deaf to SIGTERM",
          [(0.1,), (stuck, False)])  # fmt: skip


def _case(
    answer: Callable[..., Any], trial: Trial, given: str, kinds: Iterable[tuple[Any, ...]]
) -> None:
    clock = _Clock()
    workers = [_Worker(clock, *kind) for kind in kinds]
    own_ends = [kind[0] for kind in kinds]
    slowest = max(own_ends)
    limit = slowest + 0.05 if slowest < _GRACE else _GRACE + _SLACK
    trial.case(
        f"{given}; grace = {_GRACE:g}",
        f"all ended and reaped after {limit:.2f} s at most, by no more force than needed",
        "Only `finish`, `join`, `is_alive`, `terminate` and `kill` are there, as a process has "
        "them. Time passes only while a `join` waits.",
    )
    try:
        answer(workers, _GRACE, lambda: clock.now)
    except _WaitsForEver:
        trial.fail(
            "a `join` without end",
            "Nobody has told or forced that worker to end before it was waited for, or it is "
            "stuck. Every wait needs a limit.",
        )
    _judge(trial, clock, workers, own_ends, limit)


def _judge(
    trial: Trial, clock: _Clock, workers: list[_Worker], own_ends: list[float], limit: float
) -> None:
    for worker, own_end in zip(workers, own_ends, strict=True):
        if worker.finished is None:
            trial.fail("a worker was never told", "Call `finish()` first: most end by themselves.")
        if (worker.terminated or worker.killed) and own_end < _GRACE:
            trial.fail(
                f"a worker was forced that would have ended after {own_end:g} s",
                "It may be writing a file. Force is for those that are alive after `grace`.",
            )
        if worker.killed and not worker.terminated:
            trial.fail(
                "a worker got SIGKILL without a SIGTERM before",
                "SIGKILL cannot be caught, so nothing is tidied up. SIGTERM comes first.",
            )
    if any(clock.now < worker._ends for worker in workers):
        trial.fail("a worker is still there", "What of one to which SIGTERM means nothing?")
    if clock.now > limit:
        thought = "They should end side by side: tell all before you wait for the first."
        if any(worker.terminated for worker in workers):
            thought = "The waits add up. Let all workers share one deadline."
        trial.fail(f"it took {clock.now:.2f} s", thought)
    if not all(worker.reaped for worker in workers):
        trial.fail(
            "a worker was left as a zombie",
            "After `kill()` it is dead, but its parent must still `join()` it.",
        )
