"""The exercises of notebook 08: when a copy's call returns; a race to mend; copies that overlap.

The latter two are in `checks_08_streams`. The answers are tried on the simulated device, and the
times that are compared are the device's own. The oracle of the first is the device itself.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable
from typing import Any

import torch

from labkit.lab.exercises.checks_08_streams import check_mended, check_overlapped
from labkit.lab.exercises.exercise import Exercise
from labkit.lab.exercises.trial import Trial
from labkit.simulated import Operation, SimulatedDevice

__all__ = ["EXERCISES", "PARTS"]

Case = tuple[str, str, bool]

PARTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "all": lambda batch: batch,
    "the first rows": lambda batch: batch[:4],
    "every second column": lambda batch: batch[:, ::2],
}
"""By name: what is copied of a batch."""

_SECONDS = 0.12  # for the whole batch: the host may be late by half of that


@functools.cache
def _measured() -> tuple[dict[Case, bool], ...]:
    """For each case, whether the call returned before the copy was done. Tried once a process."""
    batch = torch.ones(8, 512)
    rate = batch.nbytes / _SECONDS / 1e9
    with SimulatedDevice(rate, rate, launch_us=0) as device:
        memories = {"pageable": batch, "pinned": device.pin(batch)}
        cases = itertools.product(memories, PARTS, (False, True))
        return ({case: _returns_early(device, memories, *case) for case in cases},)


def _returns_early(
    device: SimulatedDevice,
    memories: dict[str, torch.Tensor],
    memory: str,
    part: str,
    non_blocking: bool,
) -> bool:
    done: list[Operation] = []
    device.on_operation.append(done.append)
    device.to_device(PARTS[part](memories[memory]), non_blocking)
    returned = time.monotonic()
    device.synchronize()
    device.on_operation.remove(done.append)
    return returned < done[0].end


def _check_returns_early(
    answer: Callable[..., Any], trial: Trial, measured: dict[Case, bool]
) -> None:
    for (memory, part, non_blocking), expected in measured.items():
        trial.case(
            f"{memory} memory, {part}, non_blocking={non_blocking}",
            f"{expected}: so it was on the simulated device",
            "It is called with two names and a bool, and returns a bool.",
        )
        got = answer(memory, part, non_blocking)
        if not isinstance(got, bool):
            trial.fail(got, "The answer is True or False: does the call return early?")
        if got != expected:
            trial.fail(got, _about(memory, part, non_blocking))


def _about(memory: str, part: str, non_blocking: bool) -> str:
    if not non_blocking:
        return "The call was told to block: it waits for the copy, from whatever memory."
    if memory == "pageable":
        return (
            "Memory that is not page-locked may be moved by the system while it is read. So the "
            "driver first brings it to pinned memory of its own, and the call stays for that."
        )
    if part == "every second column":
        return (
            "These elements do not lie side by side, and a copy engine takes one piece of memory. "
            "They are first gathered on the host, in a new tensor. Is that one pinned?"
        )
    return (
        "The memory is pinned, these elements lie side by side in it, and the call was told not "
        "to wait: nothing keeps it."
    )


EXERCISES = (
    Exercise(
        "08.returns_early",
        "returns_early",
        (
            "Three things have to come together: what the call is told, the memory, and that the "
            "elements lie side by side.",
            "Write the three as one expression with `and`. Of the parts, only one has gaps.",
        ),
        _check_returns_early,
        measured=_measured,
    ),
    Exercise(
        "08.mended",
        "mended",
        (
            "There are two races. A step must not begin before the copy of its batch is done; and "
            "the loop must not ask for the next batch while its buffer is being copied.",
            "After the copy: `ready = copying.record_event()`. Before the step: "
            "`device.current_stream().wait_event(ready)`. After it, on the host: "
            "`ready.synchronize()`.",
        ),
        check_mended,
        seconds=20,
    ),
    Exercise(
        "08.overlapped",
        "overlapped",
        (
            "`step` waits for its result, so whatever should run beside it must be issued before. "
            "What can be copied before the step on this batch?",
            "Keep the batch that was copied last, with its event. In the loop over the others: "
            "issue the next copy first, then let the current stream wait for the kept event, then "
            "run the step on what was kept. One step is left after the loop.",
        ),
        check_overlapped,
        seconds=20,
    ),
)
