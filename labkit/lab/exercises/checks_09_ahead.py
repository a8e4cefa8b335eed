"""Exercise 09.ahead: batches that a thread takes in advance, and an end that leaves nothing.

The cases are held by what has happened and not by a clock; only a wrong answer waits for a limit.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from labkit.lab.exercises.trial import Trial

__all__ = ["check_ahead"]

Answer = Callable[[Iterable[Any], int], Any]

_PATIENCE_SECONDS, _QUIET_SECONDS = 1.0, 0.1
_STUCK = "Which thread waits for what, and who ends that wait?"


def check_ahead(answer: Answer, trial: Trial) -> None:
    """Is it in order, in a thread, bounded, honest about errors, and tidy?"""
    for batches in ([f"batch {i}" for i in range(6)], ["the only one"], []):
        _gives_all(answer, trial, batches, "Each batch comes once, in the order of the batches.")
    _gives_all(
        answer,
        trial,
        [0, None, "", [], "the last one"],
        "A batch may be None, 0 or empty. Only what no batch can be may stand for the end: an "
        "`object()` of your own.",
    )
    _takes_them_in_a_thread(answer, trial)
    _takes_so_many(answer, trial)
    _raises_in_its_place(answer, trial)
    _ends_when_it_is_closed(answer, trial)


def _gives_all(answer: Answer, trial: Trial, batches: list[Any], thought: str) -> None:
    trial.case(f"the batches {batches!r}, queue_size=2", repr(batches), _STUCK)
    given = answer(batches, 2)
    if not hasattr(given, "__iter__"):
        trial.fail(given, "A generator has a `yield` in it.")
    got = list(given)
    if got != batches:
        trial.fail(got, thought)


def _takes_them_in_a_thread(answer: Answer, trial: Trial) -> None:
    trial.case("three batches, queue_size=1", "they are taken in another thread", _STUCK)
    takers: set[threading.Thread] = set()

    def batches() -> Iterator[int]:
        for i in range(3):
            takers.add(threading.current_thread())
            yield i

    list(answer(batches(), 1))
    if threading.current_thread() in takers:
        trial.fail(
            "batches taken in the training loop's own thread",
            "So nothing is taken in advance. The loop over `batches` belongs into the thread.",
        )


def _takes_so_many(answer: Answer, trial: Trial) -> None:
    size = 3
    trial.case(
        f"50 batches, queue_size={size}; one is taken, then the training loop is busy",
        f"{size} more are ready, and one waits for room",
        _STUCK,
    )
    taken: list[int] = []

    def batches() -> Iterator[int]:
        for i in range(50):
            taken.append(i)
            yield i

    given = iter(answer(batches(), size))
    next(given)
    _until(lambda: len(taken) >= size + 1)
    time.sleep(_QUIET_SECONDS)  # for those that should not be taken
    count = len(taken) - 1
    _closes(given)
    if count < size:
        trial.fail(f"{count} taken in advance", "While the training loop is busy, go on taking.")
    if count > size + 2:
        trial.fail(
            f"{count} taken in advance",
            "If the training loop is slow, all of them pile up. `queue.Queue(queue_size)` lets "
            "`put` wait for room.",
        )


def _raises_in_its_place(answer: Answer, trial: Trial) -> None:
    trial.case(
        "batches that raise KeyError after the second, queue_size=4",
        "two batches, then the KeyError",
        "The exception is in the thread, and the training loop waits for the queue.",
    )

    def batches() -> Iterator[int]:
        yield 0
        yield 1
        raise KeyError(2)

    got: list[Any] = []
    try:
        got.extend(_all_of(answer(batches(), 4)))
    except KeyError as error:
        got.append(error)
    if len(got) == 2:
        trial.fail(
            "two batches, and then the end",
            "The epoch was cut short and nobody was told. Catch the exception in the thread, put "
            "it into the queue, and raise it when it comes out.",
        )
    if got[:2] != [0, 1] or not isinstance(got[-1], KeyError):
        trial.fail(got, "Batches before the exception are good. It comes after them.")


def _all_of(given: Any) -> Iterator[Any]:
    yield from given


def _ends_when_it_is_closed(answer: Answer, trial: Trial) -> None:
    trial.case(
        "50 batches, queue_size=1; the loop ends with `break` after one",
        "no thread is left",
        "When a generator is closed, `finally` runs.",
    )
    there = set(threading.enumerate())
    taken: list[int] = []

    def batches() -> Iterator[int]:
        for i in range(50):
            taken.append(i)
            yield i

    given = iter(answer(batches(), 1))
    next(given)
    _until(lambda: len(taken) >= 3)
    time.sleep(_QUIET_SECONDS)  # until it waits for room
    if not _closes(given):
        trial.fail(
            "a `break` that does not come back",
            "The generator waits for the thread, and the thread for room in the queue. Take out "
            "what is there until it has ended.",
        )
    del given
    gc.collect()

    def left() -> set[threading.Thread]:
        return set(threading.enumerate()) - there

    _until(lambda: not left())
    if left():
        trial.fail(
            f"{len(left())} thread still there",
            "It waits for room in a queue that nobody empties any more, for ever. Tell it that it "
            "is done, and make room.",
        )
    if len(taken) > 5:
        trial.fail(
            f"{len(taken)} batches taken",
            "All the rest was loaded for nobody, and the `break` took as long as that. Let the "
            "thread look whether it is done.",
        )


def _closes(given: Any) -> bool:
    """Close it; whether that came to an end, in a thread that nobody waits for."""
    closing = threading.Thread(target=getattr(given, "close", lambda: None), daemon=True)
    closing.start()
    closing.join(_PATIENCE_SECONDS)
    return not closing.is_alive()


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not true() and time.monotonic() < deadline:
        time.sleep(0.005)
