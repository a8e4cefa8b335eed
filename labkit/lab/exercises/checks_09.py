"""The exercises of notebook 09: hand a batch over to another stream; take batches in a thread.

The second one has a module of its own, `checks_09_ahead`. What happens on the simulated device is
decided by gates that the check opens, not by a clock: while copies are held, a step that does not
wait for them has all the time to read too early.

Before it: `labkit.simulated`.
"""

from __future__ import annotations

import gc
import time
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import torch

from labkit.lab.exercises.checks_09_ahead import check_ahead
from labkit.lab.exercises.exercise import Exercise
from labkit.lab.exercises.trial import Trial
from labkit.lab.on_device.gates import Gate
from labkit.lab.on_device.preloaders import tensors_of
from labkit.lab.on_device.steps import step
from labkit.simulated import SimulatedDevice, SimulatedEvent, SimulatedStream

__all__ = ["EXERCISES"]

HandOver = Callable[[SimulatedDevice, Any, SimulatedEvent], Any]

_ELEMENTS = 1000
_PATIENCE_SECONDS = 0.2
_STUCK = "Which of the two streams shall wait, and for what?"

_Pair = namedtuple("_Pair", "image label")


def _hand_over(answer: HandOver, trial: Trial) -> None:
    for kind in ("a tensor", "containers"):
        with SimulatedDevice(launch_us=0) as device:
            _gives_it_back(answer, trial, device, kind)
        with SimulatedDevice(launch_us=0) as device:
            _nothing_is_read_too_early(answer, trial, device, kind)
        with SimulatedDevice(launch_us=0) as device:
            _memory_in_use_is_kept(answer, trial, device, kind)
        with SimulatedDevice(launch_us=0) as device:
            _memory_comes_back(answer, trial, device, kind)


def _batch(kind: str, make: Callable[[], Any]) -> Any:
    if kind == "a tensor":
        return make()
    return {"pair": _Pair(make(), "a word"), "more": [make(), (make(), None)]}


def _copied(device: SimulatedDevice, stream: SimulatedStream, kind: str, value: float) -> Any:
    """A batch on the device, all of whose elements are `value`, its copies issued on `stream`."""
    host = device.pin(torch.full((_ELEMENTS,), value))
    with device.stream(stream):
        return _batch(kind, lambda: device.to_device(host))


def _gives_it_back(answer: HandOver, trial: Trial, device: SimulatedDevice, kind: str) -> None:
    trial.case(f"{kind}, copied", "the same batch, returned", _STUCK)
    copies = device.new_stream()
    batch = _copied(device, copies, kind, 7.0)
    got = answer(device, batch, copies.record_event())
    if type(got) is not type(batch) or tensors_of(got) != tensors_of(batch):
        trial.fail(got, "The training loop works with what is returned: `return batch`.")


def _nothing_is_read_too_early(
    answer: HandOver, trial: Trial, device: SimulatedDevice, kind: str
) -> None:
    trial.case(
        f"{kind}, whose copy is held; a step of another stream than the default one reads it",
        "your function returns at once, and the step reads what was copied: 7",
        _STUCK,
    )
    gate, copies = Gate(device), device.new_stream()
    gate.hold_copies()
    batch = _copied(device, copies, kind, 7.0)
    with gate.opening(3 * _PATIENCE_SECONDS), device.stream(device.new_stream()):
        given = answer(device, batch, copies.record_event())
        if gate.is_open:
            trial.fail(
                "a function that returned when the copy was done",
                "So the program waited, and could not prepare the next step meanwhile. Let the "
                "*stream* wait: `stream.wait_event(ready)`.",
            )
        read = [step(device, tensor, 0) for tensor in tensors_of(given)]
        issued = device.current_stream().record_event()
        _until(issued.query)
    device.synchronize()
    values = [value.item() for value in read]
    if any(value != 7 for value in values):
        trial.fail(
            f"{values[0]:g}",
            "The step ran before the copy. The stream on which it runs is "
            "`device.current_stream()`: which event must come first there?",
        )


def _memory_in_use_is_kept(
    answer: HandOver, trial: Trial, device: SimulatedDevice, kind: str
) -> None:
    trial.case(
        f"{kind}; steps are issued and have not begun, the batch is dropped, the next is copied",
        "the steps read 7, and not the next batch's 9",
        _STUCK,
    )
    gate, copies = Gate(device), device.new_stream()
    batch = _copied(device, copies, kind, 7.0)
    copies.synchronize()
    with gate.opening(3 * _PATIENCE_SECONDS), device.stream(device.new_stream()):
        gate.hold_steps()
        batch = answer(device, batch, copies.record_event())
        read = [step(device, tensor, 0) for tensor in tensors_of(batch)]
        del batch
        gc.collect()
        following = _copied(device, copies, kind, 9.0)
        copies.synchronize()
    device.synchronize()
    values = [value.item() for value in read]
    del following
    if all(value == 7 for value in values):
        return
    if kind == "a tensor":
        trial.fail(
            f"{values[0]:g}",
            "The batch's memory was given to the next copy while a step had yet to read it. "
            "`tensor.record_stream(stream)` keeps it until then.",
        )
    trial.fail(
        ", ".join(f"{value:g}" for value in values),
        "Some tensors of a batch lie deeper than others: `tensors_of(batch)` finds them all.",
    )


def _memory_comes_back(answer: HandOver, trial: Trial, device: SimulatedDevice, kind: str) -> None:
    trial.case(
        f"{kind}, 20 times, each dropped when its step is done",
        "no memory of theirs in use in the end",
        _STUCK,
    )
    copies = device.new_stream()
    for _ in range(20):
        batch = answer(device, _copied(device, copies, kind, 7.0), copies.record_event())
        device.synchronize()
        del batch
    gc.collect()
    if device.memory_allocated():
        trial.fail(
            f"{device.memory_allocated():,} bytes",
            "Somebody still holds the batches, and the device fills up. `record_stream` keeps "
            "memory only as long as it is needed.",
        )


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not true() and time.monotonic() < deadline:
        time.sleep(0.005)


EXERCISES = (
    Exercise(
        id="09.hand_over",
        answer="hand_over",
        hints=(
            "Two things must know of each other: the training loop's stream of the copy, and the "
            "memory of the training loop's stream. Neither needs the program to wait.",
            "`stream = device.current_stream()`, then `stream.wait_event(ready)`, then "
            "`tensor.record_stream(stream)` for each tensor of `tensors_of(batch)`.",
        ),
        run=_hand_over,
        seconds=30.0,
    ),
    Exercise(
        id="09.ahead",
        answer="ahead",
        hints=(
            "The thread puts three kinds of things into the queue: a batch, an exception, the end. "
            "In the generator, `finally` runs when it is closed.",
            "Put pairs `(batch, error)`, with an `object()` of your own for the end. In `finally`, "
            "set a `threading.Event` that the thread looks at after each `put`, and take what is "
            "in the queue until `thread.is_alive()` is False.",
        ),
        run=check_ahead,
        seconds=30.0,
    ),
)
