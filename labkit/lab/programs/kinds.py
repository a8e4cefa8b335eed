"""Give objects of several kinds to a thread and to processes, which add 1 to each.

As a program it prints by way and kind what is seen here afterwards, as JSON. After it:
`labkit.lab.handed_over`, which runs it for exercise 07.copied_or_shared.
"""

from __future__ import annotations

import json
import multiprocessing
import threading
from typing import Any

import numpy as np
import torch

WAYS = ("thread", "fork", "spawn")  # forkserver hands things over as spawn does


class Plain:
    """An object of a class of one's own."""

    def __init__(self) -> None:
        self.value = 0


def objects(context: Any) -> dict[str, Any]:
    """One of each kind, with a value of 0."""
    return {
        "plain object": Plain(),
        "numpy array": np.zeros(1),
        "tensor": torch.zeros(1),
        "shared tensor": torch.zeros(1).share_memory_(),  # type: ignore[no-untyped-call]
        "Value": context.Value("i", 0),
    }


def add_one(things: dict[str, Any]) -> None:
    """What the thread or the process does."""
    for thing in things.values():
        if hasattr(thing, "value"):
            thing.value += 1
        else:
            thing[0] += 1


def value(thing: Any) -> int:
    """The value of an object of any kind."""
    return int(thing.value if hasattr(thing, "value") else thing[0])


def start_all() -> dict[str, tuple[Any, dict[str, Any]]]:
    """By way: what runs, started, and the objects that it was given."""
    found = {}
    for way in WAYS:
        context: Any = multiprocessing.get_context("fork" if way == "thread" else way)
        runs = threading.Thread if way == "thread" else context.Process
        things = objects(context)
        worker = runs(target=add_one, args=(things,))
        worker.start()
        found[way] = worker, things
    return found


if __name__ == "__main__":
    seen = {}
    for way, (worker, things) in start_all().items():
        worker.join()
        seen[way] = {kind: value(thing) for kind, thing in things.items()}
    print(json.dumps(seen))
