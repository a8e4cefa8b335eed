"""Whole pipelines side by side, and against the steps alone, which no loader can beat.

Before it: `labkit.lab.pipeline`, one of them; `measuring`; `loading_cost`. After it: the panel
`labkit.lab.panels.pipeline`, and notebook 10.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

from labkit.lab import loading_cost
from labkit.lab.experiments.beside import several_threads
from labkit.lab.experiments.measuring import Progress
from labkit.lab.experiments.setting import LOADERS
from labkit.lab.image_folder import example
from labkit.lab.image_samples import COLLATES, DECODINGS, PIXELS
from labkit.lab.machine import cores
from labkit.lab.on_device.place import measure
from labkit.lab.pipeline import COPIES, Pipeline, end, epoch_ms, run, steps_alone, used_device
from labkit.lab.results import Result

__all__ = ["LIMIT", "QUANTITIES", "WAS", "YOURS", "busy_sentence", "pipelines", "tuned"]

LIMIT = "steps alone"
"""On a batch that is on the device already: what a pipeline takes that keeps the device busy."""

WAS, YOURS = "as it was", "your settings"
QUANTITIES = ("time a batch", "time an epoch")

_REPEATS = 9
_BATCHES = 8  # timed, at least
_EPOCH = 6  # batches
_LIMIT_S = 60.0
_INTERNAL = ("folder", "loads")
_BUSY = 0.95
"""A device that works for so much of the time has nothing worth speaking of to wait for."""


def pipelines(
    settings: Mapping[str, Pipeline],
    *,
    quantity: str = QUANTITIES[0],
    repeats: int = _REPEATS,
    seconds: float = 16.0,
    progress: Progress | None = None,
    so_far: Callable[[Result], None] | None = None,
    cancel: threading.Event | None = None,
) -> Result:
    """Compare pipelines, with the steps alone as the last setting; all in one fresh process.

    Args:
        settings: by label. The steps alone are those of the first one.
        quantity: one of `QUANTITIES`. "time a batch" is that of a loader under way; "time an epoch"
            that of a second epoch of a few batches, start of the workers included.
        repeats, seconds, progress, so_far, cancel: as in `labkit.lab.experiments.measure`.

    Raises:
        ValueError: there is no such quantity, no setting, or a setting has what is not there.
        Cancelled, TookTooLong: as `labkit.lab.experiments.measure`.
    """
    if quantity not in QUANTITIES:
        raise ValueError(f"unknown quantity {quantity!r}: write one of {QUANTITIES}")
    if not settings:
        raise ValueError("there is nothing to compare: give at least one pipeline, by its label")
    fields = {label: dataclasses.asdict(pipeline) for label, pipeline in settings.items()}
    first = next(iter(fields.values()))
    same = {name for name in first if len({repr(f[name]) for f in fields.values()}) == 1}
    differing = {
        label: {name: value for name, value in values.items() if name not in same}
        for label, values in fields.items()
    }
    of_the_limit = {name: first[name] for name in first if name not in same}
    for pipeline in settings.values():
        _check(pipeline)
    with used_device() as device:
        found = measure(
            device,
            {**differing, LIMIT: {**of_the_limit, "loads": False}},
            _value,
            question=_QUESTIONS[quantity],
            quantity=quantity,
            common={"quantity": quantity, **{name: first[name] for name in same}},
            repeats=repeats,
            where="one child",
            limit_s=_LIMIT_S,
            seconds=seconds,
            progress=progress,
            so_far=None if so_far is None else lambda result: so_far(_told(result)),
            cancel=cancel,
        )
    return _told(found)


def tuned(
    *,
    folder: str | None = None,
    workers: int = 0,
    step_ms: float = 5.0,
    quantity: str = QUANTITIES[0],
    repeats: int = _REPEATS,
    seconds: float = 16.0,
    progress: Progress | None = None,
    so_far: Callable[[Result], None] | None = None,
    cancel: threading.Event | None = None,
    **toggles: Any,
) -> Result:
    """Compare a pipeline as people first write it with yours. The notes say what loading costs.

    Args:
        folder: of images; None for one that is made here.
        workers: of yours; the first one has none.
        step_ms: of both.
        quantity, repeats, seconds, progress, so_far, cancel: as in `pipelines`.
        **toggles: further fields of `labkit.lab.pipeline.Pipeline`, of yours.

    Raises:
        TypeError: there is no such field.
        ValueError, Cancelled, TookTooLong: as `pipelines`.
    """
    images = str(example() if folder is None else folder)
    was = Pipeline(images, step_ms=step_ms)
    yours = Pipeline(images, step_ms=step_ms, num_workers=workers, **toggles)
    result = pipelines(
        {WAS: was, YOURS: yours},
        quantity=quantity,
        repeats=repeats,
        seconds=seconds,
        progress=progress,
        so_far=so_far,
        cancel=cancel,
    )
    cost = _cost(yours).sentence(step_ms, cores())
    return dataclasses.replace(result, notes=(*result.notes, f"{YOURS.capitalize()}: {cost}"))


def busy_sentence(result: Result) -> str:
    """For how much of the time each pipeline kept the device busy: steps alone to all, by medians.

    Args:
        result: of `pipelines`.
    """
    parts, idle = [], []
    for label in result.labels:
        if label != LIMIT:
            busy = min(1.0, result.median(LIMIT) / result.median(label))
            parts.append(f"{busy:.0%} ({label})")
            idle += [label] if busy < _BUSY else []
    said = f"The device was busy for this share of the time: {', '.join(parts)}"
    if not idle:
        return f"{said}. Nothing is left to gain from loading."
    return f"{said}. Steps waited for batches: {', '.join(idle)}."


_QUESTIONS = {
    QUANTITIES[0]: "How long does a batch take, from disk to the end of its step?",
    QUANTITIES[1]: "How long does an epoch take, from its start to the end of its last step?",
}


_KNOWN: dict[str, Collection[str]] = {
    "decoding": DECODINGS,
    "pixels": PIXELS,
    "collate": COLLATES,
    "copies": COPIES,
    "loader": LOADERS,
}


def _told(result: Result) -> Result:
    """With the busy shares; without what only the process that measured needs to know."""
    settings = {
        label: {name: value for name, value in values.items() if name not in _INTERNAL}
        for label, values in result.settings.items()
    }
    common = {name: value for name, value in result.common.items() if name not in _INTERNAL}
    notes = (*result.notes, busy_sentence(result))
    return dataclasses.replace(result, settings=settings, common=common, notes=notes)


def _check(pipeline: Pipeline) -> None:
    for name, known in _KNOWN.items():
        value = getattr(pipeline, name)
        if value not in known:
            words = ", ".join(map(repr, known))
            raise ValueError(f"unknown {name} {value!r}: write one of {words}")
    if pipeline.loader == "PyTorch" and pipeline.sharing_strategy is not None:
        raise ValueError("sharing_strategy is labkit's: leave it out with loader='PyTorch'")
    if not 0 <= pipeline.step_ms < float("inf"):
        raise ValueError(f"step_ms is 0 or more, but got {pipeline.step_ms!r}")
    pipeline.make_loader(1)  # which checks the rest; nothing is started


def _cost(pipeline: Pipeline) -> loading_cost.LoadingCost:
    alone = dataclasses.replace(pipeline, num_workers=0, loader="labkit", sharing_strategy=None)
    with several_threads(1):
        return loading_cost.measure(alone.make_loader(6))


def _value(quantity: str, loads: bool = True, **fields: Any) -> float:
    """One repeat, in the process that measures."""
    pipeline = Pipeline(**fields)
    timed = quantity == QUANTITIES[0]
    with several_threads(1), used_device() as device:
        if not loads:
            return steps_alone(pipeline, device).batch_ms * (1 if timed else _EPOCH)
        if timed:
            warmup = pipeline.ahead + 1
            count = max(_BATCHES, 2 * pipeline.ahead)  # well over what may lie ready at first
            return run(pipeline.make_loader(warmup + count), pipeline, device, warmup).batch_ms
        loader = pipeline.make_loader(_EPOCH)
        try:
            epoch_ms(loader, pipeline, device)
            return epoch_ms(loader, pipeline, device)
        finally:
            end(loader)
