"""Five broken loaders of PyTorch's, and what can be seen of each from outside: an exercise.

What is seen is what anybody can find out: what was raised and printed, how the worker ended
(`Process.exitcode`), where it stands (`py-spy dump`), and how its memory grows.

Before it: `acts`, `playing`; `exercises.checks_11`, which has the names, and asks for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labkit.lab.exercises.checks_11 import DIAGNOSES, FAULTS
from labkit.lab.failures import datasets
from labkit.lab.failures.acts import FAILURES, Failure, Stage, hold_the_lock, wait_for_work
from labkit.lab.failures.growth import Names
from labkit.lab.failures.outcome import Outcome
from labkit.lab.failures.playing import played
from labkit.lab.failures.sides import PYTORCH, Side
from labkit.lab.table import Table

__all__ = ["FAULTS", "Symptoms", "examine"]

_HEADING = ("loader", "what came", "last line printed", "its worker", "memory of its worker")


def _stuck(side: Side, stage: Stage) -> None:
    hold_the_lock()
    batches = side.batches(datasets.Locked(4))
    wait_for_work(side)
    stage.breaks()
    next(batches)


def _growing(side: Side, stage: Stage) -> None:
    for byte in side.batches(Names("list"), prefetch_factor=1):
        stage.came(byte)
    stage.breaks()


_PATIENTS: dict[str, Failure] = {
    "unpicklable batch": FAILURES["unpicklable batch"],
    "killed worker": FAILURES["killed worker"],
    "lock held at the fork": Failure("lock", _stuck, pytorch_waits=True),
    "memory growth": Failure("growth", _growing),
    "slow batch": FAILURES["slow batch"],
}


@dataclass(frozen=True, repr=False)
class Symptoms(Table):
    """What was seen of each loader, as a table."""

    outcomes: Sequence[Outcome]


def examine() -> Symptoms:
    """Run the five broken loaders side by side, and tell what is seen of them.

    Raises:
        RuntimeError: they did not come to their end; says what was written.
    """
    side = Side(PYTORCH, "fork")
    found = played([(_PATIENTS[fault], side) for fault in DIAGNOSES.values()])
    rows = [_row(*numbered) for numbered in zip(DIAGNOSES, found, strict=True)]
    return Symptoms(_HEADING, rows, found)


def _row(number: int, outcome: Outcome) -> tuple[object, ...]:
    message = " ".join(outcome.message.split())
    came = f"{outcome.ended}{f': {message}' if message else ''}; batches before: {outcome.batches}"
    return number, came, outcome.last_printed or "nothing", _worker(outcome), _memory(outcome)


def _worker(outcome: Outcome) -> str:
    if outcome.stands_at:
        return f"lives, and stands at {outcome.stands_at}"
    ended = [code for code in outcome.exit_codes if code is not None]
    if ended:
        return f"has ended with exit code {ended[0]}"
    return "was there till the end" if outcome.batches else "was ended with the loader"


def _memory(outcome: Outcome) -> str:
    if not outcome.megabytes:
        return "as it was"
    grown = ", ".join(f"{value:.0f}" for value in outcome.megabytes[::3])
    return f"MB more, every third batch: {grown}"
