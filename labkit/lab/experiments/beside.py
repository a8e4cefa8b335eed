"""Which work in a thread lets Python code go on beside it.

These are two questions. Does the work give up the GIL, the lock without which no thread runs Python
code? `gives_up_the_gil` finds that out without a clock. And how much longer does Python code take
beside it? `beside_python` measures that, and there it also matters how many cores there are.

Before it: `measuring`; `works`, what a thread does. After it: `panels`, and notebook 07.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch

from labkit.lab import need
from labkit.lab.experiments.measuring import Progress, Where, measure
from labkit.lab.experiments.works import WORKS, Work, count, known, make
from labkit.lab.explain import compare, fewest_repeats
from labkit.lab.results import DEFAULT_REPEATS, Result

__all__ = [
    "ALONE",
    "WORKS",
    "beside_python",
    "gives_up_the_gil",
    "has_gil",
    "make",
    "repeating",
    "several_threads",
    "short_wait_ms",
    "why",
]

ALONE = "alone"

_STEPS = 500_000  # of the Python code that is timed
_LIMIT_S = 20.0  # of one repeat
_PATIENCE_SECONDS = 0.3
_WAIT_SECONDS = 1e-4
_NEVER_SECONDS = 1000.0


def has_gil() -> bool:
    """Whether this Python has a GIL that is switched on: all do but the free-threaded builds."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def gives_up_the_gil(work: str | Work) -> bool:
    """Whether another thread can run Python code before a call of the work has ended.

    The switch interval is set so high that nobody asks for the GIL. So this thread gets it only if
    the work gives it up unasked, and who of the two comes first decides.

    Args:
        work: one of `WORKS`, or any function without arguments.

    Raises:
        ValueError: there is no work of this name.
        Exception: what the work raised.
    """
    call = make(work) if isinstance(work, str) else work
    came: list[str] = []
    begun = threading.Lock()
    begun.acquire()

    def do() -> None:
        begun.release()
        deadline = time.perf_counter() + _PATIENCE_SECONDS
        while not came and time.perf_counter() < deadline:  # a busy machine may miss a chance
            call()
        came.append("the work has ended")

    call()  # what is imported or made at the first call does not count
    with _switch_interval(_NEVER_SECONDS), ThreadPoolExecutor(1, "works") as pool:
        done = pool.submit(do)
        begun.acquire()
        came.append("this thread ran")
    done.result()
    return came[0] == "this thread ran"


@contextmanager
def _switch_interval(seconds: float) -> Iterator[None]:
    """Inside, a thread that wants the GIL waits so long until it asks for it."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextmanager
def repeating(work: Work, threads: int | None = None) -> Iterator[None]:
    """Inside, another thread calls the work over and over.

    Args:
        work: called without arguments.
        threads: that torch may use for one call; None leaves that as it is.

    Raises:
        Exception: what the work raised, in the end.
    """
    begun, done = threading.Event(), threading.Event()

    def repeat() -> None:
        if threads is not None:
            # OpenMP keeps that number for each thread that calls it. In a new one it is as many as
            # there are cores, whatever `torch.get_num_threads()` says there.
            torch.set_num_threads(threads)
        try:
            while not done.is_set():
                work()
                begun.set()
        finally:
            begun.set()  # also where the work fails, or it would be waited for without end

    with ThreadPoolExecutor(1, "works") as pool:
        repeated = pool.submit(repeat)
        try:
            begun.wait()
            yield
        finally:
            done.set()
        repeated.result()


def beside_python(
    threads: int = 1,
    *,
    works: tuple[str, ...] = tuple(WORKS),
    repeats: int | None = None,
    seconds: float = 18.0,
    where: Where = "one child",
    progress: Progress | None = None,
    so_far: Callable[[Result], None] | None = None,
    cancel: threading.Event | None = None,
) -> Result:
    """Measure how long Python code takes alone, and beside each work in another thread.

    Args:
        threads: that numpy's BLAS and torch may use for one call.
        works: of `WORKS`.
        repeats: of each; None for as many as it takes to compare any two of them.
        where: "one child", whose GIL nobody else wants; "here" if this process has nothing to do.
        seconds, progress, so_far, cancel: as in `labkit.lab.experiments.measure`.

    Raises:
        ValueError: there is no such work, or `threads` is below 1.
        Cancelled, TookTooLong: as `labkit.lab.experiments.measure`.
    """
    if threads < 1:
        raise ValueError(f"BLAS uses 1 thread or more, but got threads={threads!r}")
    settings: dict[str, Mapping[str, Any]]
    settings = {ALONE: {"work": None}, **{known(work): {"work": work} for work in works}}
    if repeats is None:
        repeats = max(DEFAULT_REPEATS, fewest_repeats(math.comb(len(settings), 2)))
    return measure(
        settings,
        _counting_ms,
        question="How long does Python code take beside work in another thread?",
        quantity="time of the Python code",
        common={"threads": threads},
        repeats=repeats,
        where=where,
        limit_s=_LIMIT_S,
        seconds=seconds,
        progress=progress,
        so_far=so_far,
        cancel=cancel,
    )


def _counting_ms(work: str | None, threads: int) -> float:
    """Milliseconds that the Python code takes, on the clock."""
    if work is None:
        return _clocked()
    with several_threads(threads), repeating(make(work), threads):
        return _clocked()


def _clocked() -> float:
    started = time.perf_counter()
    count(_STEPS)
    return (time.perf_counter() - started) * 1e3


@contextmanager
def several_threads(threads: int) -> Iterator[None]:
    """Inside, a call of numpy's BLAS or of torch may use so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with need("threadpoolctl").threadpool_limits(threads, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


def short_wait_ms(beside: bool, switch_ms: float = 5.0, waits: int = 20) -> float:
    """Milliseconds that a wait of 0.1 ms takes, as for a disk or a network, on the clock.

    Args:
        beside: whether another thread runs Python code meanwhile.
        switch_ms: the switch interval.
        waits: how many are timed.
    """

    def clocked() -> float:
        started = time.perf_counter()
        for _ in range(waits):
            time.sleep(_WAIT_SECONDS)
        return (time.perf_counter() - started) / waits * 1e3

    with _switch_interval(switch_ms / 1e3):
        if not beside:
            return clocked()
        with repeating(make("Python loop")):
            return clocked()


def why(result: Result, gives_up: Mapping[str, bool]) -> str:
    """A line on each work of `beside_python`: the lock, the cores, or both?

    Args:
        result: of `beside_python`.
        gives_up: by work, whether it gives up the GIL.
    """
    threads = int(result.common["threads"])
    there = int(result.machine["cores"])
    works = [label for label in result.labels if label != ALONE]
    lines = []
    for work in works:
        slowed = compare(result, work, ALONE, len(works)).verdict
        lines.append(f"{work}: {_reason(gives_up[work], slowed, _busy(work, threads), there)}.")
    return "\n".join(lines)


def _busy(work: str, threads: int) -> int:
    """How many threads the work keeps busy."""
    if work == "sleep":
        return 0
    return threads if work in ("numpy dot", "torch matmul") else 1


def _reason(gives_up: bool, slowed: str, busy: int, there: int) -> str:
    if slowed == "unknown":
        return "too few repeats to tell"
    if not gives_up:
        held = "does not give up the GIL unasked"
        seen = "the Python code waited" if slowed == "more" else "no slow-down can be told here"
        return f"{held}, and {seen}"
    if slowed != "more":
        return "gives up the GIL, and no slow-down of the Python code can be told"
    if busy + 1 > there:
        have = f"{there} core" + ("s" if there > 1 else "")
        return f"gives up the GIL, but {busy + 1} busy threads had {have}"
    return (
        "gives up the GIL, and there are cores enough; cores also share caches, memory and clock, "
        "and other programs want them"
    )
