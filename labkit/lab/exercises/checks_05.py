"""The exercises of notebook 05: an array that is its own proxy, and the strategies that fit a load.

Before it: `shared_memory.limits`, which tries each strategy under the limits. The proxy's check has
a module of its own, `checks_05_proxy`.
"""

from __future__ import annotations

import functools
import math
import mmap
from collections.abc import Callable
from typing import Any

from labkit.lab.exercises.checks_05_proxy import check_proxy
from labkit.lab.exercises.exercise import Exercise
from labkit.lab.exercises.trial import Trial
from labkit.lab.shared_memory.limits import can_mount, keep_all
from labkit.lab.shared_memory.ways import LABKIT

__all__ = ["EXERCISES", "Load", "strategies_that_fit"]

Load = tuple[int, int, int, int, int]
"""(batches, tensors, tensor_bytes, descriptors, shm_bytes), the arguments of the answer."""

_SHM = 8 << 20
# None so near a limit that it matters how many descriptors the loader itself takes.
_LOADS: tuple[Load, ...] = (
    (20, 1, 1_000, 100, _SHM),
    (200, 1, 1_000, 100, _SHM),
    (100, 1, 1_000, 100, _SHM),
    (40, 5, 1_000, 100, _SHM),
    (2, 1, 12_000_000, 100, _SHM),
    (20, 1, 1_000_000, 100, _SHM),
    (60, 2, 100_000, 100, _SHM),
    (400, 1, 1_000, 100, 1 << 20),
)
_NAMES = {way.strategy for way in LABKIT}


@functools.cache
def strategies_that_fit(loads: tuple[Load, ...] = _LOADS) -> dict[Load, set[str]]:
    """For each load the strategies that brought all batches here, under its limits.

    Where nobody may mount a /dev/shm of that size, `file_system` is not tried but computed.
    """
    return {load: _fit(*load) for load in loads}


def _fit(
    batches: int, tensors: int, tensor_bytes: int, descriptors: int, shm_bytes: int
) -> set[str]:
    ways, shm = LABKIT, shm_bytes if can_mount() else None
    if shm is None:
        ways = tuple(way for way in LABKIT if way.strategy != "file_system")
    tried = keep_all(ways, batches, tensors, tensor_bytes, descriptors=descriptors, shm_bytes=shm)
    fit = {name for name, outcome in tried.items() if not outcome.error}
    if shm is None and batches * tensors * _in_pages(tensor_bytes) < shm_bytes:
        fit.add("file_system")
    return fit


def _in_pages(nbytes: int) -> int:
    """What a file of so many bytes takes of /dev/shm."""
    return math.ceil(nbytes / mmap.PAGESIZE) * mmap.PAGESIZE


def _choose(answer: Callable[..., Any], trial: Trial, fitting: dict[Load, set[str]]) -> None:
    for load, expected in fitting.items():
        batches, tensors, tensor_bytes, descriptors, shm_bytes = load
        trial.case(
            f"`possible{load}`: {batches} batches of {tensors} tensors of {tensor_bytes:,} bytes, "
            f"all kept; {descriptors} free descriptors, {shm_bytes:,} bytes in /dev/shm",
            f"{_listed(expected)}, as tried under these limits",
            "Compare what the kept batches take with what there is, strategy by strategy.",
        )
        got = answer(*load)
        if not isinstance(got, (set, frozenset)) or not got <= _NAMES:
            trial.fail(got, f"A set is wanted, of names out of {_listed(_NAMES)}.")
        if got != expected:
            trial.fail(_listed(got), _about(load, got, expected))


def _listed(names: set[str] | frozenset[str]) -> str:
    return "{" + ", ".join(map(repr, sorted(names))) + "}"


def _about(load: Load, got: set[str] | frozenset[str], expected: set[str]) -> str:
    batches, tensors, tensor_bytes, descriptors, shm_bytes = load
    if "copy" in expected - got:
        return "`copy` needs no shared memory: what limits it, but the time that it takes?"
    if "arena" in expected - got:
        return (
            "`arena` takes memfds, which are not in /dev/shm, and few of them: many tensors share "
            "one."
        )
    if "file_descriptor" in got - expected:
        if tensors > 1:
            return "A descriptor is open for every tensor of every kept batch, not for each batch."
        if batches <= descriptors:
            return "With these none is left to the loader, which opens some of its own."
        return "Each batch that is kept holds a descriptor open. How many are kept?"
    if "file_system" in got - expected:
        if batches * tensors * tensor_bytes < shm_bytes:
            return "Memory is given out in whole pages. How many does a small tensor take?"
        if tensors > 1 and batches * tensor_bytes < shm_bytes:
            return "Each batch has several tensors, and all of them lie in /dev/shm."
        if batches > 1 and tensor_bytes * tensors < shm_bytes:
            return (
                "One batch fits. But the memory of a batch that is kept stays in /dev/shm, though "
                "its name is gone."
            )
        return "Where does `file_system` put its bytes, and how many fit in there?"
    missing = sorted(expected - got)[0]
    return f"`{missing}` does fit. Which of the limits is one for it, and how much does it take?"


EXERCISES = (
    Exercise(
        "05.proxy",
        "SharedArray",
        (
            "The state that travels is small: a name, a shape, a dtype. Whoever gets it attaches "
            "to the memory of that name, and is a guest there.",
            "`__setstate__`: `SharedMemory(name=…)`, an `np.ndarray` over its `buf`, and "
            "`is_owner = False`. `close`: drop the array, `memory.close()`, and if this is the "
            "owner `memory.unlink()`.",
        ),
        check_proxy,
        seconds=20,
    ),
    Exercise(
        "05.choose",
        "possible",
        (
            "`copy` and `arena` have neither limit here. For the other two: which one takes "
            "descriptors, which one room in /dev/shm, and how much for each kept tensor?",
            "`file_descriptor` fits if `batches * tensors` is less than `descriptors` with some to "
            "spare, for the loader opens about ten. `file_system` fits if all kept tensors "
            "together, each rounded up to whole pages, take less than `shm_bytes`.",
        ),
        _choose,
        measured=lambda: (strategies_that_fit(),),
    ),
)
