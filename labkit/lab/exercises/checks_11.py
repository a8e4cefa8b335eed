"""The exercises of notebook 11: faults to be told from symptoms, and how to end workers.

The broken loaders are `failures.patients`. The workers that are to be ended have a module of their
own, `checks_11_workers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from labkit.lab.exercises.checks_11_workers import check_end_workers
from labkit.lab.exercises.exercise import Exercise
from labkit.lab.exercises.trial import Trial

__all__ = ["DIAGNOSES", "EXERCISES", "FAULTS"]

FAULTS = (
    *("killed worker", "worker exits", "full shared memory", "too many open files"),
    *("unpicklable batch", "lock held at the fork", "slow batch", "memory growth"),
)
"""The names to choose from."""

DIAGNOSES = {
    1: "unpicklable batch",
    2: "killed worker",
    3: "lock held at the fork",
    4: "memory growth",
    5: "slow batch",
}
"""What is wrong with each broken loader. Look only when you have tried."""

_AGAINST = {
    (1, "lock held at the fork"): (
        "Its worker does not stand at a lock: it waits for the next task, so it has done the one "
        "before. What has become of that batch?"
    ),
    (1, "full shared memory"): (
        "That would have been printed, too: 'No space left on device'. What was printed here?"
    ),
    (1, "slow batch"): "A slow worker stands in the dataset's code. This one has nothing to do.",
    (2, "worker exits"): (
        "One that ends by itself has exit code 0 or more. A negative one is the number of a signal."
    ),
    (2, "full shared memory"): (
        "PyTorch's worker would have lived on, or died of SIGBUS, signal 7. Which signal is it?"
    ),
    (3, "slow batch"): (
        "No time limit was set, and the worker is not at work: look at the line where it stands."
    ),
    (3, "unpicklable batch"): (
        "Its worker has not come to pickling: it still stands in `__getitem__`, and nothing was "
        "printed."
    ),
    (4, "slow batch"): "All batches came, none of them late. What went up from batch to batch?",
    (4, "killed worker"): (
        "Not yet: it lives. But if that goes on, it will be. What is the cause?"
    ),
    (5, "lock held at the fork"): (
        "It stands in a `sleep` and not at a lock: left alone, it would go on by itself."
    ),
    (5, "killed worker"): "It lives: the loader has given it up. After how long, and why?",
}
_ANYWHERE = {
    1: "Its worker lives and waits for a task, and something was printed that nobody raised.",
    2: "Its worker is gone. What does its exit code say?",
    3: "Its worker lives. Who could let it go on?",
    4: "Nothing failed. Which of its columns is unlike those of the others?",
    5: "There is an error text. Does it say that the worker is broken, or only that it is late?",
}


def _diagnose(answer: Callable[[], Any], trial: Trial) -> None:
    trial.case(
        "`diagnosis()`",
        f"a dict: loaders {min(DIAGNOSES)} to {max(DIAGNOSES)}, each with one name",
        "It takes no arguments, and returns what you have found.",
    )
    named = answer()
    if not isinstance(named, Mapping) or set(named) != set(DIAGNOSES):
        trial.fail(named, 'A dict with the numbers 1 to 5 is wanted, such as {1: "slow batch", …}.')
    for number, fault in DIAGNOSES.items():
        trial.case(
            f"loader {number}",
            "the one fault that fits all of its symptoms",
            "Compare what came, what was printed, where the worker is, and its memory.",
        )
        if named[number] not in FAULTS:
            known = ", ".join(map(repr, FAULTS))
            trial.fail(named[number], f"There is no fault of this name. There are: {known}.")
        if named[number] != fault:
            trial.fail(named[number], _AGAINST.get((number, named[number]), _ANYWHERE[number]))


EXERCISES = (
    Exercise(
        "11.diagnose",
        "diagnosis",
        (
            "Begin with the worker: is it gone, and how did it end? If it lives: does it stand in "
            "the dataset's code, at a lock, or does it wait for the next task?",
            "Gone with a negative exit code: a signal. At a lock: the fork. Waits for a task, and "
            "a pickling error was printed: the batch was lost. In a `sleep`: late. Nothing failed, "
            "but memory goes up: reference counts.",
        ),
        _diagnose,
    ),
    Exercise(
        "11.end_workers",
        "end_workers",
        (
            "Tell all of them first, so that they end side by side, and let them share one "
            "deadline: `join` takes only what is left of it.",
            "In order: `finish()` for all; `deadline = now() + grace`; `join(max(0, deadline - "
            "now()))` for each; `terminate()` for those that are alive; `join(1)` for each; "
            "`kill()` for those that are still alive, and then `join()`, or they stay as zombies.",
        ),
        check_end_workers,
    ),
)
