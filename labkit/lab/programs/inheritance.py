"""What a new process finds of the one that asked for it, by start method; printed as JSON.

The parent changes what can be inherited, starts a child under each method, and the child looks.
A spawned child runs this file again, as it does with any program's file, so all that is imported
at the top is light: a child has torch only if it inherited it. Before it: `labkit.lab.inherited`.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import Any

_WAIT_SECONDS = 60.0
_LOCK_SECONDS = 0.2  # for a lock that nobody will release
_VARIABLE = "LABKIT_SET_BY_THE_PARENT"
_FOLDER = "/added/by/the/parent"

value = "as in the file"
lock = threading.Lock()


def look(parent: dict[str, Any], answer: Connection) -> None:
    """In the child: compare what is here with what the parent says that it has."""
    torch = sys.modules.get("torch")
    names = [thread.name for thread in threading.enumerate()]
    answer.send(
        {
            "a global variable's new value": value == "changed",
            "torch, imported before": torch is not None,
            "the state of torch's random numbers": torch is not None
            and torch.get_rng_state().tolist() == parent["random state"],
            "an open file": _file_at(parent["descriptor"]) == parent["file"],
            "its other threads": "holds the lock" in names,
            "a lock, still held by one of them": not lock.acquire(timeout=_LOCK_SECONDS),
            "a new environment variable": _VARIABLE in os.environ,
            "a folder added to sys.path": _FOLDER in sys.path,
            "an argument's value": parent["argument"] == [1, 2, 3],
        }
    )


def main() -> None:
    """Try each start method that there is here; print what its child found."""
    import torch

    global value
    found: dict[str, dict[str, bool]] = {}
    value = "changed"
    sys.path.append(_FOLDER)
    torch.manual_seed(4711)
    with _held_by_a_thread(), tempfile.TemporaryFile() as file:
        parent = {
            "random state": torch.get_rng_state().tolist(),
            "descriptor": file.fileno(),
            "file": _file_at(file.fileno()),
            "argument": [1, 2, 3],
        }
        there = multiprocessing.get_all_start_methods()
        if "fork" in there:
            found["fork"] = _found_by_a_child("fork", parent)
        if "forkserver" in there:
            found["forkserver"] = _found_by_a_child("forkserver", parent)
            forkserver._forkserver._stop()  # type: ignore[attr-defined]
            found["forkserver, torch preloaded"] = _found_by_a_child("forkserver", parent, "torch")
        found["spawn"] = _found_by_a_child("spawn", parent)
    print(json.dumps(found))


def _found_by_a_child(method: str, parent: dict[str, Any], *preload: str) -> dict[str, bool]:
    context: Any = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(list(preload))
        forkserver.ensure_running()  # as after the first loader: it is there before the change
    os.environ[_VARIABLE] = "1"
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=look, args=(parent, sender))
    try:
        child.start()
        if not receiver.poll(_WAIT_SECONDS):
            raise TimeoutError(f"no answer from a child under {method} in {_WAIT_SECONDS:g} s")
        answer: dict[str, bool] = receiver.recv()
        child.join()
        return answer
    finally:
        child.kill()
        del os.environ[_VARIABLE]


@contextmanager
def _held_by_a_thread() -> Iterator[None]:
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold, name="holds the lock")
    thread.start()
    held.wait()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _file_at(descriptor: int) -> list[int]:
    """Which file it is; empty if nothing is open there."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return []
    return [status.st_dev, status.st_ino]


if __name__ == "__main__":
    main()
