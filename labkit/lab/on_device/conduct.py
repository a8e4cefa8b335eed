"""Has a preloader one of the six faults? Each question is asked by trying it.

A race shows every time on a simulated device: its copies are held for a while (`gates`). On an
accelerator nothing can be held: there a fault may show, and a right answer says less.

Before it: `prepared`, the loader; `steps`, `gates`. After it: notebook 09.
"""

from __future__ import annotations

import contextlib
import io
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from labkit.device import Device
from labkit.lab.on_device.gates import Gate
from labkit.lab.on_device.prepared import Prepared, Supply, end
from labkit.lab.on_device.steps import step

__all__ = ["QUESTIONS", "UNREADABLE", "Pair", "blocking_copies", "questions", "values_read"]

Version = Callable[[Any, Device], Any]

UNREADABLE = -1
"""Whoever reads too early finds anything in a device's memory, also what is not a number."""

_LONG_STEP = 4  # in copies
_PATIENCE_SECONDS = 2.0
_HELD_SECONDS, _GRACE_SECONDS = 0.5, 0.05


class Pair(NamedTuple):
    """A batch with names."""

    image: Any
    label: Any


def values_read(
    given: Iterable[Any],
    device: Device,
    seconds: float = 0.0,
    *,
    keep: bool = False,
    hold_copies: bool = False,
) -> list[int]:
    """What the steps read, one whole number a batch; `UNREADABLE` where memory holds none.

    Args:
        given: tensors on the device, from a preloader.
        device: that device.
        seconds: that a step takes, in the end of which the batch is read.
        keep: keep all batches; else each is dropped when the next one comes.
        hold_copies: a simulated device begins no further copy until all steps are issued and had
            time to run, or nothing goes on. So who does not wait for a copy reads too early.
    """
    gate = Gate(device)
    if hold_copies:
        gate.hold_copies()
    with gate.opening(_HELD_SECONDS):
        batches = list(given) if keep else given
        read = [step(device, batch, seconds) for batch in batches]
        issued = device.current_stream().record_event()
        if hold_copies:
            _until(issued.query, _GRACE_SECONDS)
    found = [value.item() for value in read]
    return [round(number) if math.isfinite(number) else UNREADABLE for number in found]


@contextmanager
def blocking_copies(device: Device) -> Iterator[list[int]]:
    """For the length of a `with`, the bytes of each copy that blocks whoever issues it."""
    found: list[int] = []
    to_device = device.to_device

    def noting(tensor: torch.Tensor, non_blocking: bool = True) -> Any:
        if not (non_blocking and device.is_pinned(tensor)):
            found.append(tensor.nbytes)
        return to_device(tensor, non_blocking)

    device.to_device = noting  # type: ignore[method-assign]
    try:
        yield found
    finally:
        del device.to_device


def questions(version: Version, supply: Supply) -> dict[str, bool]:
    """The answer to each of `QUESTIONS`: True where the preloader does it right.

    Args:
        version: makes one, of a loader and a device.
        supply: batches, and the device where it is tried.
    """
    return {question: asked(version, supply) for question, asked in QUESTIONS.items()}


@contextmanager
def _over(version: Version, loader: Prepared, device: Device) -> Iterator[Any]:
    preloader = version(loader, device)
    try:
        yield preloader
    finally:
        device.synchronize()
        end(preloader)


def _issues_copies_at_once(version: Version, supply: Supply) -> bool:
    loader, device = Prepared([torch.ones(1000)] * 2), supply.device
    with blocking_copies(device) as blocking, _over(version, loader, device) as preloader:
        for _ in preloader:
            pass
    return not blocking


def _is_never_read_too_early(version: Version, supply: Supply) -> bool:
    return _reads_right(version, supply, keep=True)


def _keeps_memory_in_use(version: Version, supply: Supply) -> bool:
    return _reads_right(version, supply, seconds=_LONG_STEP * supply.copy_seconds)


def _reads_right(version: Version, supply: Supply, **how: Any) -> bool:
    expected = [round(batch[0].item()) for batch in supply.pinned]
    with _over(version, Prepared(supply.pinned), supply.device) as preloader:
        return values_read(preloader, supply.device, hold_copies=True, **how) == expected


def _tells_errors(version: Version, supply: Supply) -> bool:
    got = 0
    loader = Prepared([torch.ones(1)] * 3, broken=1)
    quietly, over = contextlib.redirect_stderr(io.StringIO()), _over(version, loader, supply.device)
    with quietly, over as preloader:
        if (thread := getattr(preloader, "thread", None)) is not None:
            thread.join(_PATIENCE_SECONDS)  # else a training loop that is faster waits for ever
        try:
            for _ in preloader:
                got += 1
        except ValueError:
            return got == 1
    return False


def _begins_anew_after_a_break(version: Version, supply: Supply) -> bool:
    before = threading.active_count()
    loader = Prepared([torch.ones(1)] + [torch.zeros(1)] * 7)
    with _over(version, loader, supply.device) as preloader:
        for _ in preloader:
            break
        for batch in preloader:
            first = batch.cpu().item()
            break
        return first == 1 and _until(lambda: threading.active_count() == before)


def _until(true: Callable[[], bool], seconds: float = _PATIENCE_SECONDS) -> bool:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def _keeps_containers(version: Version, supply: Supply) -> bool:
    batch = {"pair": Pair(torch.ones(1), torch.zeros(1)), "both": (torch.ones(1), "a word", None)}
    with _over(version, Prepared([batch]), supply.device) as preloader:
        (got,) = list(preloader)
    return (type(got["pair"]), type(got["both"])) == (Pair, tuple)


QUESTIONS: dict[str, Callable[[Version, Supply], bool]] = {
    "copies do not block": _issues_copies_at_once,
    "nothing is read too early": _is_never_read_too_early,
    "memory in use is kept": _keeps_memory_in_use,
    "errors are told": _tells_errors,
    "a break is clean": _begins_anew_after_a_break,
    "containers keep types": _keeps_containers,
}
"""By what is right, in the order in which notebook 09 mends it."""
