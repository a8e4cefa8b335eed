"""The exercise 06.pool: memory that is given out again once nobody sees it, and never before.

Where memory lies is told by the file that is mapped there, not by its address: the system likes to
map a new segment where an old one was. Before it: `labkit.lab.copies.place_of`.
"""

from __future__ import annotations

import ctypes
import gc
import random
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from labkit.lab.copies import Place, place_of
from labkit.lab.exercises.trial import Trial

__all__ = ["check_pool"]

_NBYTES = 100_000
_STEPS, _MOST_ALIVE = 100, 5


def check_pool(answer: Callable[[], Any], trial: Trial) -> None:
    """The check's `run`."""
    _gives_memory(answer, trial)
    _gives_no_place_twice(answer, trial)
    _recycles(answer, trial)
    for name, view_of in _VIEWS.items():
        _waits_for_views(answer, trial, name, view_of)
    _keeps_sizes_apart(answer, trial)
    _stays_small(answer, trial)


def _torch_view(memory: Any) -> Any:
    return torch.frombuffer(memory, dtype=torch.uint8)[10:20]


def _numpy_view(memory: Any) -> Any:
    return np.frombuffer(memory, dtype=np.uint8)[10:20]


_VIEWS: dict[str, Callable[[Any], Any]] = {
    "torch.frombuffer(memory, dtype=torch.uint8)[10:20]": _torch_view,
    "np.frombuffer(memory, dtype=np.uint8)[10:20]": _numpy_view,
}


def _gives_memory(answer: Callable[[], Any], trial: Trial) -> None:
    trial.case(
        f"`Pool().allocate({_NBYTES})`",
        f"an exporter of {_NBYTES:,} bytes of shared memory",
        "`segment.exporter(0, nbytes)` gives one; return it.",
    )
    memory = answer().allocate(_NBYTES)
    if not isinstance(memory, ctypes.Array):
        trial.fail(memory, "Return what `segment.exporter(0, nbytes)` gives, nothing around it.")
    if ctypes.sizeof(memory) < _NBYTES:
        trial.fail(f"{ctypes.sizeof(memory)} bytes", "All that was asked for must be there.")
    if not _place(memory).is_shared:
        trial.fail(
            "memory of this process alone",
            "A batch in it could not be sent without a copy. `Segment.create(nbytes)` makes "
            "memory that another process can map.",
        )


def _gives_no_place_twice(answer: Callable[[], Any], trial: Trial) -> None:
    trial.case(
        f"`a = pool.allocate({_NBYTES})`, then `b = pool.allocate({_NBYTES})`",
        "two different pieces of memory",
        "A segment that is given out is not free.",
    )
    pool = answer()
    a, b = pool.allocate(_NBYTES), pool.allocate(_NBYTES)
    if _place(a) == _place(b):
        trial.fail(
            "the same memory twice at once",
            "The second batch would overwrite the first. A segment may go back on the free list "
            "only when its exporter has died.",
        )


def _recycles(answer: Callable[[], Any], trial: Trial) -> None:
    trial.case(
        f"`a = pool.allocate({_NBYTES})`, `del a`, then `pool.allocate({_NBYTES})`",
        "the memory that `a` was",
        "What must happen when the last reference to `a` is gone?",
    )
    pool = answer()
    memory = pool.allocate(_NBYTES)
    before, alive = _place(memory), weakref.ref(memory)
    del memory
    gc.collect()
    if alive() is not None:
        trial.fail(
            "an exporter that does not die",
            "The pool still holds the exporter, so nobody can tell when the others have dropped "
            "it. Keep the segment, and of the exporter at most a weak reference.",
        )
    if _place(pool.allocate(_NBYTES)) != before:
        trial.fail(
            "new memory",
            "Its pages must be touched for the first time again. `weakref.finalize` on the "
            "exporter can put the segment back on the free list.",
        )


def _waits_for_views(
    answer: Callable[[], Any], trial: Trial, name: str, view_of: Callable[[Any], Any]
) -> None:
    trial.case(
        f"`view = {name}`, `del memory`, then `pool.allocate({_NBYTES})`, filled with 2",
        "other memory: the view still shows its own",
        "Which object lives as long as the last view does?",
    )
    pool = answer()
    memory = pool.allocate(_NBYTES)
    torch.frombuffer(memory, dtype=torch.uint8).fill_(1)
    view = view_of(memory)
    del memory
    torch.frombuffer(pool.allocate(_NBYTES), dtype=torch.uint8).fill_(2)
    if int(view[0]) != 1:
        trial.fail(
            "a view whose values have changed",
            "The memory was given out while a view of it was alive. Watch the exporter itself: "
            "torch and numpy keep it alive as long as a view lives, and nothing else.",
        )


def _keeps_sizes_apart(answer: Callable[[], Any], trial: Trial) -> None:
    trial.case(
        f"`pool.allocate(1000)`, dropped, then `pool.allocate({_NBYTES})`",
        f"{_NBYTES:,} bytes",
        "Is there room enough in the segment that is free?",
    )
    pool = answer()
    pool.allocate(1000)
    memory = pool.allocate(_NBYTES)
    if ctypes.sizeof(memory) < _NBYTES:
        trial.fail(
            f"{ctypes.sizeof(memory):,} bytes",
            "A small segment was taken for a large batch. Keep one free list for each size.",
        )


def _stays_small(answer: Callable[[], Any], trial: Trial) -> None:
    trial.case(
        f"{_STEPS} times: take memory or drop some, never more than {_MOST_ALIVE} at once",
        f"no memory twice at once, and no more than {_MOST_ALIVE} segments in all",
        "Does every segment come back, however often it was used before?",
    )
    pool, dice = answer(), random.Random(6)
    held: list[tuple[Any, Place]] = []
    places: set[Place] = set()
    for _ in range(_STEPS):
        if len(held) == _MOST_ALIVE or (held and dice.random() < 0.4):
            held.pop(dice.randrange(len(held)))
        else:
            memory = pool.allocate(_NBYTES)
            held.append((memory, _place(memory)))
            places.add(held[-1][1])
            del memory
        if len({place for _, place in held}) < len(held):
            trial.fail("one piece of memory, held twice", "Is a segment put back twice?")
    if len(places) > _MOST_ALIVE:
        trial.fail(
            f"{len(places)} segments",
            "Some are used again, but not all: does a segment that was used again come back, too?",
        )


def _place(memory: Any) -> Place:
    return place_of(ctypes.addressof(memory))
