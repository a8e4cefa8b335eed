"""Exercise 05.proxy: an array in shared memory whose pickle is a proxy.

The answer is a class; its instances go, pickled, to a process that was forked before they were
made, which has nothing of them but what is in the pickle.
"""

from __future__ import annotations

import multiprocessing
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from labkit.lab.exercises.trial import Trial, shown
from labkit.lab.shared_memory.holdings import DEV_SHM

__all__ = ["check_proxy"]

_MOST_BYTES = 1000  # of a pickle
_ON_CLOSING = "A memoryview of `memory.buf` that is still in use can make `memory.close()` refuse."
_NOT_MAPPED = "the memory is not mapped any more, and no array is left"
_STILL_MAPPED = "the memory is still mapped"
_ARRAY_LEFT = "an array over memory that is not mapped any more"
_TO_A_GUEST = {
    _STILL_MAPPED: "Only the name is the owner's alone. A guest, too, lets go by `memory.close()`.",
    _ARRAY_LEFT: "A guest, too, must drop its array: to read it would be fatal (SIGSEGV).",
}
_TO_THE_OWNER = {
    _STILL_MAPPED: "`memory.unlink()` removes the name only. By what does this process let go?",
    _ARRAY_LEFT: (
        "Reading it would end the process with a SIGSEGV: numpy does not keep the mapping alive. "
        "Drop the array when you let go of the memory."
    ),
}


def check_proxy(answer: Callable[..., Any], trial: Trial) -> None:
    """Is the pickle small, is it the same memory there, and who removes the name?"""
    setattr(sys.modules[answer.__module__], answer.__name__, answer)  # pickle looks for it there
    resource_tracker.ensure_running()  # before the fork: one for both, or each removes names
    with _other_process(trial) as ask:
        _travels_without_its_bytes(answer, trial)
        for shape, dtype in (((3, 4), "int16"), ((5,), "float64")):
            _is_the_same_memory(answer, trial, ask, shape, dtype)
        _a_guest_leaves_the_name(answer, trial, ask)
        _the_owner_removes_it(answer, trial)


def _made(answer: Callable[..., Any], shape: tuple[int, ...], dtype: str) -> Any:
    shared = answer(shape, dtype)
    shared.array[...] = np.arange(np.prod(shape)).reshape(shape)
    return shared


def _travels_without_its_bytes(answer: Callable[..., Any], trial: Trial) -> None:
    trial.case(
        '`pickle.dumps(SharedArray((250_000,), "float64"))`',
        f"fewer than {_MOST_BYTES:,} bytes, though the array has 2,000,000",
        "`__getstate__` returns what travels. Can all of it be pickled?",
    )
    shared = _made(answer, (250_000,), "float64")
    count = len(pickle.dumps(shared))
    if count >= _MOST_BYTES:
        trial.fail(
            f"{count:,} bytes",
            "The bytes of the array are in the pickle. What does another process need to find "
            "them where they are?",
        )
    shared.memory.unlink()


def _is_the_same_memory(
    answer: Callable[..., Any],
    trial: Trial,
    ask: Callable[..., Any],
    shape: tuple[int, ...],
    dtype: str,
) -> None:
    given = f'a `SharedArray({shape}, "{dtype}")` with 0, 1, 2 … in it, pickled'
    shared = _made(answer, shape, dtype)
    expected = f"{dtype} {shape}: {shared.array.tolist()}"
    trial.case(
        f"{given}; unpickled in another process",
        expected,
        "`__setstate__` gets what `__getstate__` returned, and must set all that `__init__` sets.",
    )
    got = ask("take", pickle.dumps(shared))
    if got != expected:
        trial.fail(
            got,
            "Memory is a row of bytes: dtype and shape must travel, too, or nobody knows what "
            "they mean. And is it the memory of that name, or new memory?",
        )
    trial.case(f"{given}; then the sender writes 77", "77 in the other process", "")
    shared.array.flat[1] = 77
    got = ask("read", 1)
    if got != "77":
        trial.fail(got, "The other process looks at a copy. Let its array lie over `memory.buf`.")
    trial.case(f"{given}; then the other process writes 55", "55 at the sender's", "")
    ask("write", 2, 55)
    if shared.array.flat[2] != 55:
        trial.fail(shared.array.flat[2], "The other process writes to memory of its own.")
    shared.memory.unlink()
    ask("forget")


def _a_guest_leaves_the_name(answer: Callable[..., Any], trial: Trial, ask: Any) -> None:
    shared = _made(answer, (4,), "int64")
    name = shared.memory.name
    trial.case(
        "unpickled in another process, which then calls `close()`",
        f"the name is still in {DEV_SHM}",
        _ON_CLOSING,
    )
    ask("take", pickle.dumps(shared))
    said = ask("close")
    if said != "closed":
        trial.fail(said, _ON_CLOSING)
    if not (DEV_SHM / name).exists():
        trial.fail(
            "the name is gone",
            "A guest's `close()` has removed it, so nobody else can attach any more. Who is the "
            "owner: the one that made the memory, or everyone that was unpickled?",
        )
    if shared.array.tolist() != [0, 1, 2, 3]:
        trial.fail(shared.array, "A guest's `close()` must leave the owner's array alone.")
    trial.case(
        "unpickled in another process, which then calls `close()`", f"there {_NOT_MAPPED}", ""
    )
    left = ask("left", name)
    if left:
        trial.fail(left, _TO_A_GUEST.get(left, _ON_CLOSING))
    shared.memory.unlink()


def _the_owner_removes_it(answer: Callable[..., Any], trial: Trial) -> None:
    trial.case("the owner calls `close()`", f"the name is gone from {DEV_SHM}", _ON_CLOSING)
    shared = _made(answer, (4,), "int64")
    name = shared.memory.name
    shared.close()
    if (DEV_SHM / name).exists():
        trial.fail(
            "the name is still there",
            "Nobody has removed the name, so the memory stays when all processes are gone.",
        )
    trial.case("the owner calls `close()`", _NOT_MAPPED, _ON_CLOSING)
    left = _left(shared, name)
    if left:
        trial.fail(left, _TO_THE_OWNER[left])


def _left(shared: Any, name: str) -> str:
    """What this process still has after `close()`; "" if nothing."""
    if str(DEV_SHM / name) in Path("/proc/self/maps").read_text():
        return _STILL_MAPPED
    return _ARRAY_LEFT if isinstance(getattr(shared, "array", None), np.ndarray) else ""


@contextmanager
def _other_process(trial: Trial) -> Iterator[Callable[..., Any]]:
    """Gives a function that asks a process, forked now, for something, and returns its answer."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_answer, args=(theirs,))
    process.start()
    theirs.close()

    def ask(*question: Any) -> Any:
        try:
            ours.send(question)
            return ours.recv()
        except (EOFError, OSError):
            trial.fail(
                "the other process ended",
                "Something in it was fatal, as it is to read an array over memory that is not "
                "mapped any more.",
            )

    try:
        yield ask
    finally:
        ours.close()
        process.kill()
        process.join()


def _answer(questions: Connection) -> None:
    """In the other process: what it has of the array, as text."""
    shared: Any = None
    while True:
        verb, *arguments = questions.recv()
        try:
            if verb == "take":
                shared = pickle.loads(arguments[0])
                array = shared.array
                said = f"{array.dtype} {array.shape}: {array.tolist()}"
                del array
            elif verb == "read":
                said = str(int(shared.array.flat[arguments[0]]))
            elif verb == "write":
                shared.array.flat[arguments[0]] = arguments[1]
                said = "written"
            elif verb == "close":
                shared.close()
                said = "closed"
            elif verb == "left":
                said = _left(shared, *arguments)
            else:
                shared = None
                said = "forgotten"
        except Exception as error:
            said = shown(f"{type(error).__name__}: {error}")
        questions.send(said)
