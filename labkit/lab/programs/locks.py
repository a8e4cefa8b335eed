"""Do two processes exclude each other with a lock of their module, by start method? JSON.

One of them takes the lock and keeps it; then the other one tries, without waiting. All that is
imported is light, for a spawned child runs this file again. Before it: `labkit.lab.shared_memory`.
"""

from __future__ import annotations

import json
import multiprocessing
from multiprocessing.connection import Connection
from typing import Any

_WAIT_SECONDS = 60.0

lock = multiprocessing.Lock()


def take(given: Any, orders: Connection) -> None:
    """In a child: take the lock that was given, or the module's own; tell whether it was free."""
    orders.recv()
    orders.send((lock if given is None else given).acquire(block=False))
    orders.recv()  # until then it is kept


def main() -> None:
    """For each start method: were both inside at once, with the module's lock and a given one?"""
    found: dict[str, dict[str, bool]] = {"the module's": {}, "given as an argument": {}}
    for method in multiprocessing.get_all_start_methods():
        found["the module's"][method] = _both_inside(method, None)
        context = multiprocessing.get_context(method)
        found["given as an argument"][method] = _both_inside(method, context.Lock())
    print(json.dumps(found))


def _both_inside(method: str, given: Any) -> bool:
    context: Any = multiprocessing.get_context(method)
    ends, children = [], []
    try:
        for _ in range(2):
            ours, theirs = context.Pipe()
            child = context.Process(target=take, args=(given, theirs))
            child.start()
            children.append(child)
            theirs.close()
            ends.append(ours)
        inside = []
        for end in ends:  # one after the other
            end.send("take it")
            if not end.poll(_WAIT_SECONDS):
                raise TimeoutError(f"no answer from a child under {method}")
            inside.append(end.recv())
        for end in ends:
            end.send("end")
        for child in children:
            child.join()
        return all(inside)
    finally:
        for child in children:
            child.kill()


if __name__ == "__main__":
    main()
