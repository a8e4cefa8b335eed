"""Exercise 02.fork_safe: a lock that a forked process can take, whoever holds it in the parent.

The answer is a class, used as `with lock:`. A real loader forks the worker while a thread holds it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import labkit
from labkit.errors import LabkitError
from labkit.lab.exercises.trial import Trial

__all__ = ["check_fork_safe"]

_STUCK = "Who would have to release it, and is that thread there in this process?"
_GIVEN = "a thread holds the lock while a DataLoader forks its worker, whose dataset takes it"


def check_fork_safe(answer: Callable[[], Any], trial: Trial) -> None:
    """Does it exclude threads here, is it free after a fork, and does it exclude threads there?"""
    _works_in_one_process(answer, trial)
    _is_free_after_a_fork(answer, trial)
    _excludes_threads_after_a_fork(answer, trial)


def _works_in_one_process(answer: Callable[[], Any], trial: Trial) -> None:
    trial.case("one lock, two threads that want it", "one after the other", _STUCK)
    if not _excludes(answer()):
        trial.fail(
            "both were inside at once",
            "Two threads of a process must get the same lock, each time they ask.",
        )
    trial.case("a lock that is used again after it was left", "it is free", _STUCK)
    lock = answer()
    for _ in range(2):
        with lock:
            pass


def _is_free_after_a_fork(answer: Callable[[], Any], trial: Trial) -> None:
    trial.case(
        _GIVEN,
        "a batch, while the thread still holds the lock of its own process",
        "If the fork itself waits for the lock, it waits for a thread that waits for the batch.",
    )
    lock, dataset = answer(), _TakesALock()
    dataset.lock = lock
    got = _batch_while_held(lock, dataset)
    if isinstance(got, LabkitError):
        trial.fail(
            f"{type(got).__name__}: {str(got).splitlines()[0]}",
            "The fork copied the lock as it was: held. The thread that would release it exists "
            "only in the parent: the child needs a lock of its own, and a free one. (And a lock "
            "that both processes share is held by the parent's thread.)",
        )


def _excludes_threads_after_a_fork(answer: Callable[[], Any], trial: Trial) -> None:
    trial.case(_GIVEN + "; there, two threads want it", "one after the other", _STUCK)
    lock, dataset = answer(), _TakesALock()
    dataset.lock = lock
    dataset.look_whether_it_excludes = True
    if _batch_while_held(lock, dataset) != [True]:
        trial.fail(
            "both were inside at once",
            "The child's threads need a lock, too: not none, and not each its own.",
        )


def _excludes(lock: Any) -> bool:
    """Whether a second thread waits until the first one has left."""
    inside = threading.Event()

    def enter() -> None:
        with lock:
            inside.set()

    thread = threading.Thread(target=enter, daemon=True)
    entered_at_once = False
    try:
        with lock:
            thread.start()
            entered_at_once = inside.wait(0.5)
    except RuntimeError:  # released twice, if both were inside
        if not entered_at_once:
            raise
    thread.join()
    return not entered_at_once


class _TakesALock:
    lock: Any
    look_whether_it_excludes = False

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> bool:
        if self.look_whether_it_excludes:
            return _excludes(self.lock)
        with self.lock:
            return True


def _batch_while_held(lock: Any, dataset: Any) -> Any:
    """The batches of a loader whose worker is forked while a thread holds the lock."""
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    held.wait()
    loader = labkit.DataLoader(
        dataset, batch_size=None, num_workers=1, multiprocessing_context="fork", timeout=4
    )
    try:
        return list(loader)
    except LabkitError as error:
        return error
    finally:
        done.set()
        thread.join()
