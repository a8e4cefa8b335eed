"""Experiments: `measure` compares whatever you like, `loading` compares loaders.

Before it: `measuring`, which takes turns and repeats; `setting`, a loader; `comparisons`, what is
compared, and `quantities`, what is measured of a loader. After it: `explain` says what a result
supports, `plots` draws it, and `panels` lets you choose the settings.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from labkit.arguments import check_sharing, check_workers
from labkit.lab.doctor import sizes
from labkit.lab.experiments.comparisons import COMPARISONS
from labkit.lab.experiments.measuring import Cancelled, Progress, TookTooLong, measure, milliseconds
from labkit.lab.experiments.quantities import QUANTITIES, Quantity
from labkit.lab.experiments.setting import LOADERS, Setting
from labkit.lab.results import Result
from labkit.lab.stacking import COLLATES

__all__ = ["Cancelled", "TookTooLong", "loading", "measure", "milliseconds"]

_SECONDS = 45.0  # for all rounds
_TIMED_SECONDS = 4.0  # of those, in which batches are timed
_LIMIT_S = 60.0  # of one repeat

T = TypeVar("T")


def loading(
    compare: str,
    options: Sequence[Any] | None = None,
    *,
    quantity: str | None = None,
    repeats: int | None = None,
    seconds: float = _SECONDS,
    limit_s: float = _LIMIT_S,
    progress: Progress | None = None,
    so_far: Callable[[Result], None] | None = None,
    cancel: threading.Event | None = None,
    **arguments: Any,
) -> Result:
    """Compare loaders that differ in one argument. Everything runs in fresh processes.

    Args:
        compare: the argument: "start_method", "sharing_strategy", "workers", "prefetch_factor",
            "batch_size", "batch_bytes", "persistent_workers", "collate" or "loader".
        options: its values; those that there are on this machine if None.
        quantity: one of `quantities.QUANTITIES`; None for the one that shows most.
        repeats: of each; None for as many as suit this machine.
        seconds: after which no new round of repeats begins, though there is one at least.
        limit_s: seconds that one repeat may take.
        progress: called with (repeats done, of how many, what runs now).
        so_far: called with the result of the rounds that there are, after each one but the last.
        cancel: once it is set, all stops.
        **arguments: what all loaders share: `workers`; `batch_bytes`, the memory of a batch (or
            `sample_bytes`); the other fields of `labkit.lab.experiments.setting.Setting`.

    Raises:
        ValueError, TypeError: arguments that no loader takes, or that are not there on this
            machine; before anything is measured.
        Cancelled, TookTooLong: as `labkit.lab.experiments.measuring.measure`.
    """
    comparison = _one_of(COMPARISONS, compare, "comparison")
    measured = _one_of(QUANTITIES, quantity or comparison.quantity, "quantity")
    values = list(comparison.options() if options is None else options)
    defaults = dict(comparison.defaults)
    if "sample_bytes" in arguments:
        defaults.pop("batch_bytes", None)
    shared = _shared({**defaults, **arguments}, compare, measured)
    settings = {comparison.label(v): _setting({**shared, compare: v}) for v in values}
    if len(settings) != len(values) or len(values) < 2:
        raise ValueError(f"two different options or more are compared, but got {values!r}")
    rounds = repeats or comparison.repeats or sizes().repeats

    def told(result: Result) -> Result:
        return _in_arguments(result, measured, compare, values, shared)

    result = measure(
        {label: {"setting": setting} for label, setting in settings.items()},
        measured.measure,
        question=measured.question,
        quantity=measured.name,
        unit=measured.unit,
        common={"seconds": min(0.3, _TIMED_SECONDS / (rounds * len(settings)))},
        repeats=rounds,
        warmup=measured.warmup,
        where=measured.where,
        limit_s=limit_s,
        seconds=seconds,
        progress=progress,
        so_far=lambda result: so_far(told(result)) if so_far is not None else None,
        cancel=cancel,
    )
    return told(result)


def _one_of(table: dict[str, T], name: str, kind: str) -> T:
    if name not in table:
        known = ", ".join(repr(known) for known in table)
        raise ValueError(f"unknown {kind} {name!r}: write one of {known}")
    return table[name]


def _shared(arguments: dict[str, Any], compare: str, quantity: Quantity) -> dict[str, Any]:
    """What all loaders have in common, with this machine's sizes where nothing is said."""
    found = sizes()
    shared = {"workers": found.workers, **arguments}
    if quantity.of_epochs:
        shared.setdefault("batches", found.batches)
    if "sample_bytes" not in shared:
        shared.setdefault("batch_bytes", found.batch_bytes)
    elif "batch_bytes" in arguments or compare == "batch_bytes":
        del shared["sample_bytes"]  # of a default: the batch's size was given
    shared.pop(compare, None)
    return shared


def _setting(arguments: dict[str, Any]) -> Setting:
    """The loader that these arguments describe, checked before any process is started."""
    known = {field.name for field in dataclasses.fields(Setting)} - {"num_workers"}
    known |= {"workers", "batch_bytes"}
    for name in arguments:
        _one_of(dict.fromkeys(known), name, "argument")
    values = dict(arguments)
    values["num_workers"] = values.pop("workers")
    for name in ("batch_bytes", "sample_bytes", "batch_size", "batches", "every"):
        if name in values and not (isinstance(values[name], int) and values[name] >= 1):
            raise ValueError(f"{name} is a whole number of 1 or more, but got {values[name]!r}")
    if "batch_bytes" in values:
        batch_size = values.get("batch_size", Setting.batch_size)
        values["sample_bytes"] = max(1, values.pop("batch_bytes") // batch_size)
    setting = Setting(**values)
    _check_as_the_loader(setting)
    return setting


def _check_as_the_loader(setting: Setting) -> None:
    _one_of(LOADERS, setting.loader, "loader")
    _one_of(COLLATES, setting.collate, "collate function")
    _one_of(
        dict.fromkeys(multiprocessing.get_all_start_methods()), setting.start_method, "start method"
    )
    check_workers(setting.num_workers, None, False, 0)
    check_workers(max(1, setting.num_workers), setting.prefetch_factor, False, 0)
    check_sharing(setting.sharing_strategy, None, setting.num_workers)
    if setting.loader == "PyTorch" and setting.sharing_strategy is not None:
        raise ValueError(
            f"sharing_strategy={setting.sharing_strategy!r} is an argument of labkit's loader: "
            'leave it out with loader="PyTorch"'
        )
    for name in ("wait_ms", "work_ms", "step_ms"):
        if getattr(setting, name) < 0:
            raise ValueError(f"{name} is 0 or more, but got {getattr(setting, name)!r}")


def _in_arguments(
    result: Result, quantity: Quantity, compare: str, values: list[Any], shared: dict[str, Any]
) -> Result:
    """The result with the arguments of `loading` in place of the measured functions' own."""
    settings = {label: {compare: v} for label, v in zip(result.labels, values, strict=True)}
    notes = result.notes + ((quantity.note,) if quantity.note else ())
    return dataclasses.replace(result, settings=settings, common=shared, notes=notes)
