"""Ranks on this machine: started by torchrun, they stay, and do what a notebook's cell sends them.

A rank is one of the processes that train together. `start` has PyTorch's launcher start some over
gloo, as real as those of a job on many hosts; `Ranks.run` sends each of them the same function and
gives what each returned. A script would be started for each question instead, and import torch
each time.

In the ranks: `member`. The launcher's process and its end: `launched`. What they read is judged by
`verdicts` and drawn by `picture`; `uneven` has ranks that end at different times.
"""

from __future__ import annotations

import pickle
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import connection
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from labkit.lab.ranks.datasets import Augmented, Told
from labkit.lab.ranks.launched import Launched, LaunchFailed
from labkit.lab.ranks.member import Answer, Greeting
from labkit.lab.ranks.verdicts import Verdict, judged

__all__ = [
    "Augmented",
    "LaunchFailed",
    "RankFailed",
    "RankTimeout",
    "Ranks",
    "Told",
    "Verdict",
    "judged",
    "start",
]

_START_SECONDS = 120.0  # for importing torch, once in the launcher and once in each rank
_RUN_SECONDS = 60.0
_GRACE_SECONDS = 5.0  # for the others, when one has failed


class RankFailed(RuntimeError):
    """The function raised in a rank; says in which, and where there."""


class RankTimeout(TimeoutError):
    """Not all ranks answered in time; says which did not, and where they stand."""


def start(
    count: int = 2,
    *,
    seconds: float = _START_SECONDS,
    progress: bool = True,
    command: Sequence[str] | None = None,
) -> Ranks:
    """Start ranks on this machine, in one process group over gloo, and wait until all are there.

    Args:
        count: ranks.
        seconds: the limit.
        progress: print how many are there.
        command: a launcher in place of torchrun; it must start `labkit.lab.ranks.member`.

    Raises:
        ValueError: `count` is less than 1.
        LaunchFailed: the launcher ended, or the time is up; says what it wrote. Nothing is left.
    """
    if count < 1:
        raise ValueError(f"there is at least one rank, but got count={count!r}: write count=2")
    launched = Launched(count, command)
    try:
        greeted = launched.greetings(count, seconds, _Progress(count) if progress else None)
    except BaseException:
        launched.end()
        raise
    return Ranks(launched, greeted)


class _Progress:
    """A line of progress that is written over itself."""

    def __init__(self, count: int) -> None:
        self._count, self._began, self._words = count, time.monotonic(), ""

    def __call__(self, there: int) -> None:
        waited = time.monotonic() - self._began
        words = f"\r{there} of {self._count} ranks are there, after {waited:.0f} s"
        if words != self._words:
            print(words, end="\n" if there == self._count else "", flush=True)
            self._words = words


class Ranks:
    """Some ranks that wait for work. `close()`, or the end of the last reference, ends them.

    Attributes:
        command: with which they were started, as a shell would take it.
        pids: of their processes, by rank.
    """

    def __init__(self, launched: Launched, greeted: Sequence[tuple[Connection, Greeting]]) -> None:
        self.command = launched.command
        self.pids = tuple(greeting.pid for _, greeting in greeted)
        self._connections = [ours for ours, _ in greeted]
        self._launched = launched
        self._finalizer = weakref.finalize(self, _end, launched, self._connections)

    def __len__(self) -> int:
        return len(self.pids)

    def __repr__(self) -> str:
        state = "ranks" if self._finalizer.alive else "ranks, ended,"
        return f"{len(self)} {state} started by\n{self.command}"

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        seconds: float = _RUN_SECONDS,
        **named: Any,
    ) -> list[Any]:
        """Call `function(*arguments, **named)` in every rank at the same time.

        The function travels by value, so one from a notebook's cell will do. Inside,
        `torch.distributed` is set up. An interrupt ends the ranks.

        Args:
            function: what it returns must be picklable.
            *arguments: for it; the same in each rank.
            seconds: the limit. Whoever stands in a collective alone would wait for half an hour.
            **named: for it, by name.

        Returns:
            What each rank returned, by rank.

        Raises:
            RankFailed: it raised in a rank. If the others are done soon, all ranks stay usable.
            RankTimeout: a rank did not answer. All ranks are ended.
            RuntimeError: they have been ended before.
        """
        if not self._finalizer.alive:
            raise RuntimeError("these ranks have ended: start new ones with `ranks.start(…)`")
        payload = cloudpickle.dumps((function, arguments, named))
        try:
            for ours in self._connections:
                with suppress(ConnectionError):  # it has ended, which its answer will tell
                    ours.send_bytes(payload)
            answers = self._answers(seconds)
        except BaseException:
            self.close()
            raise
        failed = [answer for answer in answers.values() if answer.error]
        if len(answers) < len(self) or failed:
            raise self._trouble(answers, seconds)
        return [pickle.loads(answers[rank].value) for rank in range(len(self))]

    def close(self) -> None:
        """End the ranks, their launcher, and all that they started."""
        self._finalizer()

    def _answers(self, seconds: float) -> dict[int, Answer]:
        """By rank; without those that are late or gone."""
        deadline = time.monotonic() + seconds
        waiting = {ours: rank for rank, ours in enumerate(self._connections)}
        answers: dict[int, Answer] = {}
        while waiting and time.monotonic() < deadline:
            for ready in connection.wait(list(waiting), max(0, deadline - time.monotonic())):
                rank = waiting.pop(ready)  # type: ignore[call-overload]
                answer = _answer_from(self._connections[rank], self.pids[rank])
                answers[rank] = answer
                if answer.error:
                    deadline = min(deadline, time.monotonic() + _GRACE_SECONDS)
        return answers

    def _trouble(self, answers: dict[int, Answer], seconds: float) -> Exception:
        late = [rank for rank in range(len(self)) if rank not in answers]
        said = [f"rank {rank}: {answers[rank].error}" for rank in answers if answers[rank].error]
        stands = {rank: self._launched.stack_of(self.pids[rank]) for rank in late}
        said += [
            f"rank {rank} waits on, and stands here:\n{where}" for rank, where in stands.items()
        ]
        if late or any(answer.gone for answer in answers.values()):
            self.close()
            said.append("All ranks were ended: start new ones with `ranks.start(…)`.")
        text = "\n".join(said)
        if any(answer.error for answer in answers.values()):
            return RankFailed(text)
        return RankTimeout(f"not all ranks answered within {seconds:g} s\n{text}")


def _answer_from(ours: Connection, pid: int) -> Answer:
    try:
        answer: Answer = pickle.loads(ours.recv_bytes())
    except (EOFError, OSError):
        return Answer(error=f"its process (pid {pid}) has ended", gone=True)
    return answer


def _end(launched: Launched, connections: Sequence[Connection]) -> None:
    """No method, or the finalizer would keep alive what it waits for."""
    launched.end()
    for ours in connections:
        ours.close()
