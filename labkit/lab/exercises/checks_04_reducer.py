"""Exercise 04.reduce_storage: a reducer for storages, over shared memory.

The answer takes an UntypedStorage and gives (function, arguments). Another process, started before
the answer is asked, calls the function with the arguments as they come out of a pickle. So nothing
can cross but what is in the message, or rides with it.

Before it: `checks_04`.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_sharer
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import torch

from labkit.lab.exercises.trial import Trial

__all__ = ["check_reducer"]

Reducer = Callable[[torch.UntypedStorage], tuple[Any, ...]]

_BYTES = 100_000
_FEW = 1_000  # bytes in which every handle fits
_TIMES = 8
_GIVEN = f"a storage of {_BYTES:,} bytes"
_BROKE = (
    "Does the function get all that it needs, and does it mean the same in another process? (The "
    "number of a descriptor does not, unless the descriptor itself is handed over.)"
)


def check_reducer(answer: Reducer, trial: Trial) -> None:
    """Is the message small, is it the same memory on both sides, and does nothing stay open?"""
    with _other_process(trial) as other:
        storage = _crosses(answer, trial, other)
        _both_sides_see_one_memory(trial, other, storage)
        _its_own_descriptor_is_open(trial, storage)
        _views_stay_views(answer, trial, other)
        _an_empty_one_crosses(answer, trial, other)
        _nothing_stays_open(answer, trial, other)


def _crosses(answer: Reducer, trial: Trial, other: _Other) -> torch.UntypedStorage:
    trial.case(
        _GIVEN,
        f"(function, arguments), where the arguments pickle to less than {_FEW:,} bytes",
        "What does your reducer call, and does an UntypedStorage have it?",
    )
    storage = _filled(3)
    function, arguments = _reduced(answer, trial, storage)
    try:
        message = pickle.dumps(arguments)
    except Exception as error:
        trial.fail(
            f"{type(error).__name__}: {error}",
            "The arguments are pickled in turn: numbers, strings and a `DupFd` can be.",
        )
    if len(message) > _FEW:
        trial.fail(
            f"{len(message):,} bytes",
            "The memory itself travels. Let something travel by which it is found: a handle.",
        )
    trial.case(_GIVEN, "an UntypedStorage of that size, with that content, over there", _BROKE)
    got = other.ask("make", cloudpickle.dumps(function), message)
    if isinstance(got, _Broken):
        trial.fail(f"in the other process: {got.what}", _BROKE)
    if got != ("UntypedStorage", _BYTES, 3):
        kind, nbytes, first = got
        trial.fail(
            f"a {kind} of {nbytes} bytes that begins with {first}",
            "The function makes an UntypedStorage of as many bytes, not of as many elements.",
        )
    return storage


def _its_own_descriptor_is_open(trial: Trial, storage: torch.UntypedStorage) -> None:
    trial.case("the storage that was sent", "its own descriptor is still open", _BROKE)
    fd, nbytes = storage._share_fd_cpu_()  # one that was shared by a name has moved now
    try:
        is_open = os.fstat(fd).st_size >= nbytes
    except OSError:
        is_open = False
    if not is_open:
        trial.fail(
            "it is closed",
            "What `_share_fd_cpu_()` gives is the storage's own descriptor, which it needs when it "
            "is sent again. Only the one from `detach()` is yours.",
        )


def _reduced(
    answer: Callable[[torch.UntypedStorage], Any], trial: Trial, storage: torch.UntypedStorage
) -> tuple[Any, Any]:
    got = answer(storage)
    is_pair = isinstance(got, tuple) and len(got) == 2
    if not is_pair or not callable(got[0]) or not isinstance(got[1], tuple):
        trial.fail(
            got if isinstance(got, tuple) else f"a {type(got).__name__}",
            "A reducer returns a tuple of two: what to call on the other side, and a tuple with "
            "the arguments for it.",
        )
    return got[0], got[1]


def _both_sides_see_one_memory(trial: Trial, other: _Other, storage: torch.UntypedStorage) -> None:
    thought = (
        "There are two memories now. Was the storage copied? Then *this* storage still lies where "
        "it lay: it must move itself into shared memory (`_share_fd_cpu_()` moves it)."
    )
    trial.case("the other process writes 5 into its storage", "5 in yours, too", _BROKE)
    other.ask("write", 0, 5)
    if storage[0] != 5:
        trial.fail(storage[0], thought)
    trial.case("you write 6 into yours", "6 in the other process's, too", _BROKE)
    storage[_BYTES - 1] = 6
    if (seen := other.ask("read", _BYTES - 1)) != 6:
        trial.fail(seen, thought)


def _views_stay_views(answer: Reducer, trial: Trial, other: _Other) -> None:
    trial.case(
        "one storage, sent in two messages",
        "one memory: what is written through one is read through the other",
        "It was shared by the first message already. What does your reducer do with it then?",
    )
    storage = _filled(1)
    for _ in range(2):
        made = _made(other, *_reduced(answer, trial, storage))
        if isinstance(made, _Broken):
            trial.fail(
                f"in the other process: {made.what}", "The second time it is shared already."
            )
    other.ask("write", 9, 8)
    if (seen := other.ask("read of the one before", 9)) != 8:
        trial.fail(
            seen,
            "Each message made a memory of its own. A storage that is shared already stays where "
            "it is; only another handle to it travels.",
        )


def _an_empty_one_crosses(answer: Reducer, trial: Trial, other: _Other) -> None:
    thought = (
        "No memory, no file: there is nothing to map. Give a function that makes an empty storage "
        "(`torch.UntypedStorage` does, with 0)."
    )
    trial.case("an empty storage", "an empty UntypedStorage over there", thought)
    made = _made(other, *_reduced(answer, trial, _filled(0, 0)))
    if isinstance(made, _Broken):
        trial.fail(f"in the other process: {made.what}", thought)
    if made[:2] != ("UntypedStorage", 0):
        trial.fail(f"a {made[0]} of {made[1]} bytes", thought)


def _nothing_stays_open(answer: Reducer, trial: Trial, other: _Other) -> None:
    trial.case(
        f"{_TIMES} storages, one after the other, dropped over there",
        "as many open descriptors there as before",
        "After some of them it broke. What was used up?",
    )
    _send_and_drop(answer, trial, other, 1)  # what is opened once and kept is no leak
    before = other.ask("count descriptors")
    _send_and_drop(answer, trial, other, _TIMES)
    after = other.ask("count descriptors")
    if after > before:
        trial.fail(
            f"{after - before} more",
            "`detach()` gives you a descriptor, and it is yours to close once the storage is made: "
            "the mapping does not need it. Otherwise every storage costs one for good.",
        )


def _send_and_drop(answer: Reducer, trial: Trial, other: _Other, times: int) -> None:
    for number in range(times):
        made = _made(other, *_reduced(answer, trial, _filled(number, 4096)))
        if isinstance(made, _Broken):
            trial.fail(
                f"in the other process: {made.what}",
                "The sender had dropped its storage by then: what keeps the memory until it is "
                "mapped?",
            )
    other.ask("drop all")


def _filled(value: int, nbytes: int = _BYTES) -> torch.UntypedStorage:
    return torch.full((nbytes,), value, dtype=torch.uint8).untyped_storage()


def _made(other: _Other, function: Any, arguments: Any) -> Any:
    return other.ask("make", cloudpickle.dumps(function), pickle.dumps(arguments))


# The other process


class _Broken:
    """What went wrong there."""

    def __init__(self, what: str) -> None:
        self.what = what


class _Other:
    """This side of the other process: asks, and gets an answer."""

    def __init__(self, connection: Connection, trial: Trial) -> None:
        self._connection = connection
        self._trial = trial

    def ask(self, *question: Any) -> Any:
        try:
            self._connection.send(question)
            return self._connection.recv()
        except (EOFError, ConnectionError):
            self._trial.fail(
                "the other process has ended",
                "What your reducer gave made it end. Who touches a mapping beyond the end of its "
                "file, for one, is killed by the system (SIGBUS).",
            )


@contextmanager
def _other_process(trial: Trial) -> Iterator[_Other]:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    try:
        yield _Other(ours, trial)
    finally:
        process.kill()
        process.join()
        resource_sharer.stop()


def _serve(connection: Connection) -> None:
    storages: list[Any] = []
    while True:
        what, *arguments = connection.recv()
        try:
            connection.send(_do(storages, what, *arguments))
        except Exception as error:
            text = traceback.format_exception_only(type(error), error)
            connection.send(_Broken("".join(text).strip()))


def _do(storages: list[Any], what: str, *arguments: Any) -> Any:
    if what == "make":
        function, message = arguments
        storage = pickle.loads(function)(*pickle.loads(message))
        storages.append(storage)
        nbytes = storage.nbytes() if isinstance(storage, torch.UntypedStorage) else None
        return type(storage).__name__, nbytes, storage[0] if nbytes else None
    if what == "write":
        storages[-1][arguments[0]] = arguments[1]
    elif what.startswith("read"):
        return storages[-2 if what.endswith("before") else -1][arguments[0]]
    elif what == "drop all":
        storages.clear()
    else:
        return len(os.listdir("/proc/self/fd"))
    return None
