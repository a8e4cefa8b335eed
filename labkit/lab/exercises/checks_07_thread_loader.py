"""Exercise 07.thread_loader: batches from threads, in order, a bounded number of them ahead.

Every case is held by gates and not by a clock: a fetch waits until another one has begun, so what
the answer does is the same on every machine. Only a wrong answer waits for a time limit.
"""

from __future__ import annotations

import functools
import gc
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from labkit.lab.exercises.trial import Trial

__all__ = ["check_thread_loader"]

_PATIENCE_SECONDS = 1.0
_LOOK_SECONDS = 0.005
_QUIET_SECONDS = 0.1

Answer = Callable[..., Any]
_STUCK = "Which thread waits for what? `.result()` waits for one fetch."


def check_thread_loader(answer: Answer, trial: Trial) -> None:
    """Is it in order, in parallel, bounded, honest about errors, and tidy?"""
    for tasks, threads, ahead in ((range(6), 2, 4), (range(2), 2, 5), (range(0), 1, 2)):
        _gives_all_in_order(answer, trial, list(tasks), threads, ahead)
    _fetches_two_at_a_time(answer, trial)
    _hands_out_so_many(answer, trial)
    _raises_where_the_batch_was_due(answer, trial)
    _is_tidy_after_a_break(answer, trial)


class _Fetches:
    """A `fetch` that notes its tasks; the batch of task i is "batch i".

    Attributes:
        begun: the tasks whose fetch has begun.
    """

    def __init__(self, before: Callable[[int], None] = lambda task: None) -> None:
        self.begun: list[int] = []
        self._before = before

    def __call__(self, task: int) -> str:
        self.begun.append(task)
        self._before(task)
        return f"batch {task}"

    def have_begun(self, count: int) -> bool:
        """Whether so many have, or more."""
        return len(self.begun) >= count


def _expected(tasks: Iterable[int]) -> list[str]:
    return [f"batch {task}" for task in tasks]


def _until(true: Callable[[], bool]) -> bool:
    """Wait until it is true; returns False after a while."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def _gives_all_in_order(
    answer: Answer, trial: Trial, tasks: list[int], threads: int, ahead: int
) -> None:
    expected = _expected(tasks)
    trial.case(
        f"{len(tasks)} tasks, threads={threads}, ahead={ahead}; the first fetch takes longest",
        repr(expected),
        _STUCK,
    )
    second = threading.Event()

    def before(task: int) -> None:
        if task == 1:
            second.set()
        if task == 0 and len(tasks) > 1:
            second.wait(_PATIENCE_SECONDS)
            time.sleep(_QUIET_SECONDS)  # so that the second one is done before

    batches = answer(_Fetches(before), tasks, threads, ahead)
    if isinstance(batches, (list, tuple)):
        trial.fail(
            f"a {type(batches).__name__}",
            "It is there only when all is fetched. `yield` gives each batch when it is its turn.",
        )
    got = list(batches)
    if got == expected:
        return
    if sorted(map(str, got)) == expected:
        trial.fail(got, "The order is that of the tasks, and not that in which fetches end.")
    trial.fail(got, "Each task gives one batch, which is what `fetch` returns for it.")


def _fetches_two_at_a_time(answer: Answer, trial: Trial) -> None:
    trial.case(
        "4 tasks, threads=2, ahead=4; the fetch of task 0 waits until that of task 1 has begun",
        "it does begin",
        _STUCK,
    )
    second, both = threading.Event(), []

    def before(task: int) -> None:
        if task == 1:
            second.set()
        if task == 0:
            both.append(second.wait(_PATIENCE_SECONDS))

    list(answer(_Fetches(before), range(4), 2, 4))
    if both != [True]:
        trial.fail(
            "one fetch after the other",
            "Hand out several tasks to a `ThreadPoolExecutor(threads)` before you wait for one.",
        )


def _hands_out_so_many(answer: Answer, trial: Trial) -> None:
    ahead, tasks = 3, range(50)
    trial.case(
        "50 tasks, threads=3, ahead=3; one batch is taken, then two more; the first fetch takes "
        "longest",
        "3 fetches have begun when the first batch is given, and never more than 3 ahead of it",
        _STUCK,
    )
    taken: list[int] = []
    begun_meanwhile: list[int] = []

    def before(task: int) -> None:
        if task == 0:
            _until(functools.partial(fetches.have_begun, ahead))
            time.sleep(_QUIET_SECONDS)  # for those that should not begin
            begun_meanwhile.append(len(fetches.begun))

    fetches = _Fetches(before)

    def drawn() -> Iterator[int]:
        for task in tasks:
            taken.append(task)
            yield task

    batches = iter(answer(fetches, drawn(), 3, ahead))
    for given in (1, 2, 3):
        next(batches)
        enough = _until(functools.partial(fetches.have_begun, given - 1 + ahead))
        time.sleep(_QUIET_SECONDS / 2)  # for those that should not begin
        if not enough:
            trial.fail(
                f"{len(fetches.begun)} fetches begun when {given} batches were given",
                "While the training loop has a batch, the threads should fetch the next ones.",
            )
        if max(len(taken), len(fetches.begun)) > given + ahead:
            trial.fail(
                f"{len(taken)} tasks handed out when {given} batches were given",
                "If the training loop is slow, batches pile up in memory. Hand out a further task "
                "only when a batch is given.",
            )
    _close(batches)
    if max(begun_meanwhile) > ahead:
        trial.fail(
            f"{max(begun_meanwhile)} fetches begun, the first of which had not ended yet",
            "That is one more than `ahead`. When there are `ahead` of them, wait for the first "
            "before you hand out another.",
        )


def _raises_where_the_batch_was_due(answer: Answer, trial: Trial) -> None:
    trial.case(
        "5 tasks, threads=2, ahead=4; the fetch of task 2 raises KeyError(2) at once",
        "batch 0, batch 1, then the KeyError",
        "A future keeps the exception: `.result()` raises it, in this thread.",
    )
    failed = threading.Event()

    def before(task: int) -> None:
        if task == 2:
            failed.set()
            raise KeyError(2)
        if task == 0:
            failed.wait(_PATIENCE_SECONDS)
            time.sleep(_QUIET_SECONDS)

    got: list[str] = []
    try:
        for batch in answer(_Fetches(before), range(5), 2, 4):
            got.append(batch)
    except KeyError as error:
        _is_in_its_place(trial, got, error)
        return
    trial.fail(
        _listed(got),
        "The batch of task 2 is missing, and nobody is told. Let the error come to the consumer.",
    )


def _is_in_its_place(trial: Trial, got: Sequence[str], error: KeyError) -> None:
    if error.args != (2,) or got != _expected(range(2)):
        trial.fail(
            f"{_listed(got)}, then {error!r}",
            "The error belongs to batch 2: those before it are good, and come first.",
        )


def _listed(batches: Sequence[Any]) -> str:
    return ", ".join(map(str, batches)) or "no batch"


def _is_tidy_after_a_break(answer: Answer, trial: Trial) -> None:
    trial.case(
        "20 tasks, threads=1, ahead=4; the loop ends with `break` after one batch, while task 1 is "
        "being fetched",
        "no thread is left, and task 2 is never fetched",
        "When a generator is closed, `finally` runs.",
    )
    go_on = threading.Event()

    def before(task: int) -> None:
        if task == 1:
            go_on.wait(10 * _PATIENCE_SECONDS)

    there = set(threading.enumerate())
    fetches = _Fetches(before)
    batches = iter(answer(fetches, range(20), 1, 4))
    next(batches)
    _until(lambda: 1 in fetches.begun)
    timer = threading.Timer(3 * _QUIET_SECONDS, go_on.set)
    timer.start()
    _close(batches)
    left = set(threading.enumerate()) - there - {timer}
    go_on.set()
    timer.join()
    del batches
    gc.collect()
    time.sleep(_QUIET_SECONDS)
    if left:
        trial.fail(
            f"{len(left)} thread still there",
            "It goes on fetching into a loader that nobody has any more. Shut the pool down in "
            "`finally`, and wait for its threads.",
        )
    if len(fetches.begun) > 2:
        trial.fail(
            f"{len(fetches.begun)} tasks fetched",
            "What was handed out is still fetched, for nobody, and the `break` waits for it. "
            "Cancel it: `pool.shutdown(cancel_futures=True)`.",
        )


def _close(batches: Any) -> None:
    close = getattr(batches, "close", None)
    if close is not None:
        close()
