"""The exercises of notebook 07: what is shared and what is copied, and a loader on threads.

Before it: `handed_over`, which finds out for real. The loader has a module of its own,
`checks_07_thread_loader`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from labkit.lab.exercises.checks_07_thread_loader import check_thread_loader
from labkit.lab.exercises.exercise import Exercise
from labkit.lab.exercises.trial import Trial
from labkit.lab.handed_over import by_kind

__all__ = ["EXERCISES"]


def _copied_or_shared(
    answer: Callable[[str, str], Any], trial: Trial, found: Mapping[str, Mapping[str, int]]
) -> None:
    for way, kinds in found.items():
        for kind, expected in kinds.items():
            trial.case(
                f"`seen_here({way!r}, {kind!r})`",
                f"{expected}, as found on this machine",
                "Ask first whether there are two objects; and if there are, whether both lie over "
                "the same memory.",
            )
            got = answer(way, kind)
            if got not in (0, 1):
                trial.fail(got, "The number 0 or 1 is wanted: the value that is seen here.")
            if got != expected:
                trial.fail(got, _about(way, kind))


def _about(way: str, kind: str) -> str:
    if way == "thread":
        return "A thread is in this process: there is one object, and both see every write."
    if kind in ("shared tensor", "Value"):
        return (
            "There are two objects, but both lie over the same shared memory: it was made for "
            "that, before the process was started."
        )
    if kind != "tensor":
        return (
            "The child has a copy, from the fork or from pickle. Its write stays there, whether "
            "the ids agree or not."
        )
    if way == "fork":
        return (
            "A fork copies the tensor's memory with all the rest: nobody pickles it, so nobody "
            "puts it into shared memory."
        )
    return (
        "Under spawn the arguments are pickled, and torch has its own way to pickle a tensor for "
        "a process: it moves the memory into shared memory, and sends a handle (notebook 04)."
    )


EXERCISES = (
    Exercise(
        "07.copied_or_shared",
        "seen_here",
        (
            "A thread has the same object. A process has another one; then ask what it lies over. "
            "One kind differs between fork and spawn: what is done to arguments under spawn?",
            'Return 1 for a thread, for "shared tensor" and for "Value". A plain tensor is moved '
            "into shared memory when it is pickled, and a fork pickles nothing. All else: 0.",
        ),
        _copied_or_shared,
        measured=lambda: (by_kind(),),
    ),
    Exercise(
        "07.thread_loader",
        "thread_loader",
        (
            "Keep what `pool.submit(fetch, task)` returns, in the order of the tasks, and never "
            "more than `ahead` of them. `.result()` waits, and raises what `fetch` raised.",
            "For each task: append the future to a `deque`; once there are `ahead`, yield "
            "`waiting.popleft().result()`. After the loop yield the rest. Around all of it: "
            "`try … finally: pool.shutdown(cancel_futures=True)`.",
        ),
        check_thread_loader,
        seconds=30,
    ),
)
