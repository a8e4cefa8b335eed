"""Give counters to threads and to processes, let them be changed there, and look at them here.

As a program it prints what it found, as JSON; under spawn and forkserver a child imports this file
again, so it imports nothing that takes long. After it: `labkit.lab.handed_over`, which runs it, and
notebook 07, whose processes count with it.
"""

from __future__ import annotations

import json
import multiprocessing
import queue
import threading
from typing import Any

METHODS = ("fork", "spawn", "forkserver")
MANY = 100


class Counter:
    """Counts; an object like any other."""

    def __init__(self) -> None:
        self.value = 0


def count(counter: Any, seen: Any) -> None:
    """What a thread or a process does: add 1, and tell what it sees then."""
    counter.value += 1
    seen.put(counter.value)


def look(counters: list[Counter], seen: Any) -> None:
    """Add 1 to each of the counters, and tell their values and their ids."""
    for counter in counters:
        counter.value += 1
    seen.put(([counter.value for counter in counters], [id(counter) for counter in counters]))


def ways() -> dict[str, tuple[Any, Any]]:
    """By name: the class of what runs, and a queue to it."""
    found: dict[str, tuple[Any, Any]] = {"thread": (threading.Thread, queue.SimpleQueue())}
    for method in METHODS:
        context: Any = multiprocessing.get_context(method)
        found[method] = (context.Process, context.SimpleQueue())
    return found


def looked_at(runs: Any, seen: Any) -> dict[str, bool | int]:
    """What one thread or process saw of many counters, and what became of them here."""
    counters = [Counter() for _ in range(MANY)]
    worker = runs(target=look, args=(counters, seen))
    worker.start()
    values, ids = seen.get()
    worker.join()
    (there,), (here,) = set(values), {counter.value for counter in counters}
    return {"same ids": ids == [id(c) for c in counters], "there": there, "here": here}


if __name__ == "__main__":
    print(json.dumps({name: looked_at(*way) for name, way in ways().items()}))
