"""Measure several settings side by side, honestly.

The settings take turns in an order that changes from round to round, so that a machine that is now
fast and now slow, or one setting that leaves the caches as another likes them, favours none. What
depends on the state of a process (start-up, a first time, threads that are there already) is
measured in a fresh process each time. Every repeat is kept.

Before it: `fresh`. After it: `experiments`, which measures loaders with it, and `results`.
"""

from __future__ import annotations

import gc
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from labkit.lab.experiments.fresh import Cancelled, FreshProcesses, TookTooLong
from labkit.lab.machine import machine
from labkit.lab.results import DEFAULT_REPEATS, Result

__all__ = [
    "Cancelled",
    "Progress",
    "TookTooLong",
    "Where",
    "at_most",
    "measure",
    "milliseconds",
    "turns",
]

SECONDS = "LABKIT_MEASURE_SECONDS"
"""An environment variable: after so many seconds no measurement begins a new round, whatever it was
given. For where notebooks are only checked, and nobody reads the figures."""

Progress = Callable[[int, int, str], None]
"""Called with: how many repeats are done, of how many, and what runs now."""

Where = Literal["here", "one child", "fresh children"]
_Caller = Callable[[Callable[..., Any], Mapping[str, Any], str], Any]


def measure(
    settings: Mapping[str, Callable[[], float] | Mapping[str, Any]],
    function: Callable[..., float] | None = None,
    *,
    question: str = "",
    quantity: str = "time",
    unit: str = "ms",
    common: Mapping[str, Any] | None = None,
    repeats: int = DEFAULT_REPEATS,
    warmup: int = 1,
    where: Where = "here",
    limit_s: float = 60.0,
    seconds: float = math.inf,
    progress: Progress | None = None,
    so_far: Callable[[Result], None] | None = None,
    cancel: threading.Event | None = None,
) -> Result:
    """Measure one quantity under several settings, in turns.

    Args:
        settings: by label, either a function without arguments that returns the value measured, or
            the keyword arguments with which `function` is called for it.
        function: returns the value measured, in `unit`. `milliseconds` makes one of any function.
        question: what is asked; of the quantity if it is left out.
        quantity: what is measured.
        unit: its unit; less is better.
        common: further arguments of `function`, the same for all settings.
        repeats: rounds of which the values are kept; each measures every setting once.
        warmup: rounds before those, of which they are not.
        where: "here" in this process and thread; "one child" for all repeats in one fresh process;
            "fresh children" for every single repeat in a process of its own, which has imported
            torch and labkit and done nothing else.
        limit_s: seconds that one repeat may take. In a child it is stopped then. Here nothing can
            be stopped, so no further one begins.
        seconds: after which no new round begins, nor one that would hardly be done by then. The
            result's notes say how many there are instead.
        progress: called before each repeat and at the end, in this thread.
        so_far: called after each round but the last one, with the result of those that there are;
            in this thread, so that nothing is measured meanwhile.
        cancel: once it is set, all stops.

    Raises:
        Cancelled, KeyboardInterrupt: it was cancelled; nothing is left running.
        TookTooLong: a repeat went over `limit_s`; names it.
        ValueError, TypeError: the arguments, or what a function returned, cannot be measured.
        Exception: whatever a function raises.
    """
    started = time.monotonic()
    seconds = min(seconds, at_most())
    _check_counts(repeats, warmup, where)
    functions = _functions(settings, function, bool(common))
    about: dict[str, Any] = {
        "question": question or f"How do they compare in {quantity}?",
        "quantity": quantity,
        "unit": unit,
        "settings": {label: _plain(arguments) for label, (_, arguments) in functions.items()},
        "common": _plain(common or {}),
        "machine": machine(),
    }
    rounds = _Rounds(
        functions=functions,
        common=dict(common or {}),
        warmup=warmup,
        repeats=repeats,
        deadline=started + seconds,
        report=progress or (lambda done, total, text: None),
        so_far=lambda found: so_far(_result(found, about)) if so_far is not None else None,
        cancel=cancel or threading.Event(),
    )
    rounds.report(0, rounds.total, "getting ready")
    with _caller(where, limit_s, rounds.cancel) as call:
        found = rounds.measured(call)
    if len(found) < repeats:
        few = f"{len(found)} of {repeats} repeats: the {seconds:.3g} s for them had passed."
        about["notes"] = (few,)
    return _result(found, about)


def at_most() -> float:
    """After so many seconds no measurement begins a new round: what `SECONDS` says."""
    text = os.environ.get(SECONDS, "inf")
    try:
        return float(text)
    except ValueError:
        raise ValueError(
            f"the environment variable {SECONDS} is a number of seconds, but it is {text!r}"
        ) from None


def _result(rounds: list[dict[str, float]], about: dict[str, Any]) -> Result:
    values = {label: tuple(found[label] for found in rounds) for label in rounds[0]}
    return Result(repeats={label: values[label] for label in about["settings"]}, **about)


def milliseconds(function: Callable[..., Any], number: int = 1) -> Callable[..., float]:
    """A function that calls this one `number` times and returns the milliseconds of one call."""

    def timed(*args: Any, **kwargs: Any) -> float:
        started = time.perf_counter()
        for _ in range(number):
            function(*args, **kwargs)
        return (time.perf_counter() - started) / number * 1e3

    return timed


def turns(labels: list[str], round_number: int) -> list[str]:
    """The order in one round, such as A B, B A, B A, A B of two settings.

    Each comes at each place equally often, and the order runs backwards as often as forwards.
    """
    passes, start = divmod(round_number, len(labels))
    order = labels[start:] + labels[:start]
    return order[::-1] if passes % 2 else order


_Functions = dict[str, tuple[Callable[..., float], dict[str, Any]]]


def _functions(
    settings: Mapping[str, Any],
    function: Callable[..., float] | None,
    has_common: bool,
) -> _Functions:
    """By label: what is called, and the arguments that are this setting's own."""
    if not settings:
        raise ValueError("there is nothing to measure: give at least one setting, by its label")
    functions: _Functions = {}
    for label, setting in settings.items():
        if isinstance(setting, Mapping):
            if function is None:
                raise TypeError(
                    f"the setting {label!r} is arguments ({dict(setting)}), so a function that "
                    "takes them is needed: measure(settings, function)"
                )
            functions[label] = (function, dict(setting))
        elif callable(setting) and not has_common:
            functions[label] = (setting, {})
        else:
            raise TypeError(
                f"the setting {label!r} is {setting!r}: write a function without arguments (and "
                "nothing in common), or a dict with the arguments of the function measured"
            )
    return functions


def _check_counts(repeats: int, warmup: int, where: str) -> None:
    if repeats < 1 or warmup < 0:
        raise ValueError(
            f"at least one repeat is measured, after 0 or more warm-up rounds, but got "
            f"repeats={repeats!r}, warmup={warmup!r}"
        )
    if where not in ("here", "one child", "fresh children"):
        raise ValueError(f"unknown where={where!r}: write 'here', 'one child' or 'fresh children'")


@contextmanager
def _caller(where: Where, limit_s: float, cancel: threading.Event) -> Iterator[_Caller]:
    """How a function is called there."""
    if where == "here":
        yield lambda function, arguments, name: _call_here(function, arguments, limit_s, name)
        return
    with FreshProcesses(cancel) as processes:

        def call(function: Callable[..., Any], arguments: Mapping[str, Any], name: str) -> Any:
            value = processes.call(function, arguments, limit_s, name)
            if where == "fresh children":
                processes.renew()
            return value

        yield call


def _call_here(
    function: Callable[..., Any], arguments: Mapping[str, Any], limit_s: float, name: str
) -> Any:
    collecting = gc.isenabled()
    gc.disable()  # as timeit does: what one setting leaves is not collected in another's time
    started = time.monotonic()
    try:
        value = function(**arguments)
    finally:
        if collecting:
            gc.enable()
    took = time.monotonic() - started
    if took > limit_s:
        raise TookTooLong(
            f"{name} took {took:.1f} s, more than the {limit_s:g} s allowed: give it more time "
            "(limit_s=…), or less to do"
        )
    return value


@dataclass(frozen=True)
class _Rounds:
    """What is measured how often."""

    functions: _Functions
    common: dict[str, Any]
    warmup: int
    repeats: int
    deadline: float  # on time.monotonic()
    report: Progress
    so_far: Callable[[list[dict[str, float]]], None]
    cancel: threading.Event

    @property
    def total(self) -> int:
        return (self.warmup + self.repeats) * len(self.functions)

    def measured(self, call: _Caller) -> list[dict[str, float]]:
        """The values of each round that counts, by label."""
        found: list[dict[str, float]] = []
        took = 0.0
        for number in range(self.warmup + self.repeats):
            began = time.monotonic()
            if found and began + took > self.deadline:
                break
            values = self._round(call, number)
            if number >= self.warmup:
                found.append(values)
            took = time.monotonic() - began
            if found and len(found) < self.repeats:
                self.so_far(found)
        self.report(self.total, self.total, "done")
        return found

    def _round(self, call: _Caller, number: int) -> dict[str, float]:
        repeat = number - self.warmup + 1
        turn = f"repeat {repeat} of {self.repeats}" if repeat > 0 else "warm-up"
        values = {}
        for place, label in enumerate(turns(list(self.functions), number)):
            name = f"{label}, {turn}"
            if self.cancel.is_set():
                raise Cancelled(f"cancelled before: {name}")
            self.report(number * len(self.functions) + place, self.total, name)
            function, arguments = self.functions[label]
            values[label] = _value(call(function, {**self.common, **arguments}, name), label)
        return values


def _value(value: Any, label: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(
            f"the setting {label!r} returned {value!r}, which is no number: let its function "
            "return the value measured (labkit.lab.experiments.milliseconds makes such a function "
            "of any)"
        )
    return number


def _plain(value: Any) -> Any:
    """The same for JSON: what it does not know is told by its name."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return getattr(value, "__name__", None) or repr(value)
