"""Two of notebook 08's exercises, 08.mended and 08.overlapped: a race, and copies beside steps.

The device is simulated, and its copies take long, so that a read too early is early by far. What
answers do with streams and events is noted, so that a failure can be explained.

Before it: `labkit.simulated`. After it: `checks_08`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from labkit.lab.exercises.trial import Trial
from labkit.simulated import Operation, SimulatedDevice
from labkit.simulated.timeline import TO_HOST

__all__ = ["check_mended", "check_overlapped"]

Answer = Callable[[SimulatedDevice, Iterator[torch.Tensor], Callable[[Any], Any]], Any]

_LENGTH = 1000  # elements of a batch
_COPY_SECONDS, _STEP_SECONDS = 0.05, 0.02
_values = itertools.count(1)  # no memory holds by chance what is expected of it


@dataclass
class _Watched:
    """What an answer did on a device."""

    device: SimulatedDevice
    done: list[Operation] = field(default_factory=list)
    issued: list[tuple[str, Any]] = field(default_factory=list)  # what, to which stream
    copies_before: dict[Any, int] = field(default_factory=dict)  # by event, when it was recorded
    awaited: int = 0  # copies that stand before what a stream was told to wait for
    awaited_by_steps: list[int] = field(default_factory=list)  # `awaited`, as each was issued

    def of(self, kind: str) -> list[Operation]:
        """The operations of a kind, as they ended; not the results' own copies to the host."""
        return [o for o in self.done if o.kind == kind and o.engine != TO_HOST]

    def watch(self, stream: Any) -> Any:
        """Note what is recorded in a stream, and when it is told to wait."""
        record, wait = stream.record_event, stream.wait_event

        def records(event: Any = None) -> Any:
            self.issued.append(("record", stream))
            recorded = record(event)
            self.copies_before[recorded] = [what for what, _ in self.issued].count("copy")
            return recorded

        def waits(event: Any) -> None:
            self.issued.append(("wait", stream))
            self.awaited = max(self.awaited, self.copies_before.get(event, 0))
            wait(event)

        stream.record_event, stream.wait_event = records, waits
        return stream


@contextmanager
def _device() -> Iterator[_Watched]:
    """A device of its own, with every call noted that matters here."""
    rate = 4 * _LENGTH / _COPY_SECONDS / 1e9
    with SimulatedDevice(rate, rate, rate, launch_us=0) as device:
        watched = _Watched(device)
        device.on_operation.append(watched.done.append)
        watched.watch(device.current_stream())
        new_stream, copy = device.new_stream, device.copy_to_device

        def copied(to: Any, source: torch.Tensor, non_blocking: bool) -> None:
            watched.issued.append(("copy", device.current_stream()))
            copy(to, source, non_blocking)

        device.new_stream = lambda: watched.watch(new_stream())  # type: ignore[method-assign]
        device.copy_to_device = copied  # type: ignore[method-assign]
        yield watched


def _last(there: torch.Tensor) -> torch.Tensor:
    return there[-1]


# 08.mended


def check_mended(answer: Answer, trial: Trial) -> None:
    """Values only: however the answer waits, each step must read its batch."""
    for what, count, one_buffer in (
        ("no batch at all", 0, False),
        ("three batches, each in pinned memory of its own", 3, False),
        ("three batches in one pinned buffer, which is filled again for each", 3, True),
    ):
        expected = [float(next(_values)) for _ in range(count)]
        trial.case(what, repr(expected), "It gives a list, a number for each batch.")
        with _device() as watched:
            device = watched.device

            def step(there: Any, device: SimulatedDevice = device) -> Any:
                return device.run(_last, there, seconds=_STEP_SECONDS)

            got = answer(device, _pinned(device, expected, one_buffer), step)
            if not isinstance(got, list) or len(got) != count:
                trial.fail(got, "A list with one number for each batch is wanted, in their order.")
            if got != expected:
                trial.fail(got, _about_race(watched, one_buffer))


def _pinned(device: SimulatedDevice, values: list[float], one_buffer: bool) -> Iterator[Any]:
    buffer = device.pin(torch.zeros(_LENGTH))
    for value in values:
        if not one_buffer:
            buffer = device.pin(torch.zeros(_LENGTH))
        yield buffer.fill_(value)


def _about_race(watched: _Watched, one_buffer: bool) -> str:
    if one_buffer:
        return (
            "Now the steps wait, but the loop asked for the next batch while this one was being "
            "copied, and the buffer was filled again. Only the host can wait for that: "
            "`synchronize()` of the copy's event."
        )
    events = [(what, stream) for what, stream in watched.issued if what != "copy"]
    copying = {stream for what, stream in watched.issued if what == "copy"}
    recorded = [stream for what, stream in events if what == "record"]
    if not recorded:
        return (
            "A step began before the copy of its batch was done: between two streams there is no "
            "order. No event was recorded that could make one."
        )
    if not copying.intersection(recorded):
        return (
            "The event was recorded on a stream where no copy is. So it says nothing of the copy: "
            "record it on the stream that copies."
        )
    if watched.issued[0][0] == "record" and watched.issued[0][1] in copying:
        return (
            "The event was recorded before the copy was issued. It stands for what was issued "
            "until then, so it has passed at once."
        )
    waiting = [stream for what, stream in events if what == "wait"]
    if waiting and copying.issuperset(waiting):
        return "It is the copying stream that waits, for itself. Who is to wait is the step's."
    return (
        "An event was recorded behind the copy, but the step was issued before anybody waited for "
        "it: what waits must be told so before."
    )


# 08.overlapped


def check_overlapped(answer: Answer, trial: Trial) -> None:
    """Values, how far ahead batches are taken, and what ran beside what."""
    for count in (0, 1, 2, 5):
        expected = [float(next(_values)) for _ in range(count)]
        trial.case(
            f"{count} batches, each in pinned memory of its own",
            repr(expected) + (", each copy but the first beside a step" if count > 1 else ""),
            "It gives a list, a number for each batch.",
        )
        with _device() as watched:
            taking = _Taking(watched, expected)
            got = answer(watched.device, iter(taking), taking.step)
            watched.device.synchronize()
        if not isinstance(got, list) or len(got) != count:
            trial.fail(got, "A list with one number for each batch is wanted, in their order.")
        if got != expected:
            trial.fail(got, _about_values(got, expected))
        if taking.too_early is not None:
            batch, steps = taking.too_early
            trial.fail(
                f"batch {batch} was taken after {steps} steps",
                "Every batch that is taken ahead needs memory on the device. One is enough: the "
                "next.",
            )
        if count > 1:
            _check_overlap(watched, count, trial)


class _Taking:
    """Gives the batches, and runs the steps; sees how far ahead batches are taken."""

    def __init__(self, watched: _Watched, values: list[float]) -> None:
        self._watched, self._device, self._values = watched, watched.device, values
        self._steps = 0
        self.too_early: tuple[int, int] | None = None

    def __iter__(self) -> Iterator[torch.Tensor]:
        for batch, value in enumerate(self._values):
            if batch > self._steps + 1 and self.too_early is None:
                self.too_early = batch, self._steps
            yield self._device.pin(torch.full((_LENGTH,), value))

    def step(self, there: Any) -> float:
        """Runs on the current stream, and is waited for."""
        self._watched.awaited_by_steps.append(self._watched.awaited)
        result = self._device.run(_last, there, seconds=_STEP_SECONDS)
        self._device.current_stream().synchronize()
        self._steps += 1
        return float(result.cpu())


def _about_values(got: list[Any], expected: list[float]) -> str:
    if sorted(map(repr, got)) == sorted(map(repr, expected)):
        return "These are the right numbers in another order."
    return (
        "A step read its memory before its batch was there. Let the current stream wait for the "
        "event of that batch's copy, not of the next one's."
    )


def _check_overlap(watched: _Watched, count: int, trial: Trial) -> None:
    copies, steps = watched.of("copy"), watched.of("step")
    pairs = list(zip(copies[1:], steps, strict=False))  # the next copy, and the step before it
    beside = [c for c, s in pairs if c.start < s.end and s.start < c.end]
    if 2 * len(beside) >= count - 1:
        return
    got = f"right numbers, but {len(beside)} of {count - 1} copies ran beside a step"
    if len({o.stream for o in [*copies, *steps]}) == 1:
        trial.fail(got, "Copies and steps are on one stream, which does one thing after the other.")
    if all(s.end <= c.start for c, s in pairs):
        trial.fail(
            got,
            "Each copy was issued when the step before it was over: `step` waits for its result. "
            "Issue the copy of the next batch before it.",
        )
    if any(copies > step + 1 for step, copies in enumerate(watched.awaited_by_steps)):
        trial.fail(
            got,
            "The step waited for an event behind the copy of the next batch, too, and so for that "
            "copy. Let it wait for its own batch's event, recorded right behind its copy.",
        )
    trial.fail(
        got,
        "Each copy was done before the step on the batch before it was issued: the host waited "
        "for it. Leave the waiting to the stream.",
    )
