"""Measure after how long a failure is told, again and again: for a panel.

Before it: `playing`: each repeat is played in a process of its own. After it: `panels`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from labkit.lab.experiments.fresh import Cancelled
from labkit.lab.experiments.measuring import Progress, at_most
from labkit.lab.explain import fewest_repeats
from labkit.lab.failures.acts import FAILURES, sides_of
from labkit.lab.failures.outcome import Outcome
from labkit.lab.failures.playing import played
from labkit.lab.failures.sides import SIDES, Side
from labkit.lab.machine import machine
from labkit.lab.results import Result

__all__ = ["noticing"]

_PATIENCE_SECONDS = 1.0


def noticing(
    failure: str = "worker exits",
    *,
    start_method: str = "fork",
    sharing_strategy: str | None = None,
    repeats: int | None = None,
    seconds: float = 15.0,
    patience_s: float = _PATIENCE_SECONDS,
    progress: Progress | None = None,
    so_far: Callable[[Result], None] | None = None,
    cancel: threading.Event | None = None,
) -> Result:
    """Break both loaders in the same way, so often, and note after how long each tells of it.

    Args:
        failure: one of `acts.FAILURES`.
        start_method: of the workers.
        sharing_strategy: of both, where both have it.
        repeats: of each; None for as many as it takes to compare the two.
        seconds: after which no new repeat begins, though there is one at least.
        patience_s: after so long a side is given up; that is then its value.
        progress, so_far, cancel: as in `labkit.lab.experiments.measure`.

    Raises:
        ValueError: there is no such failure, or start method.
        Cancelled: it was cancelled; nothing is left running.
    """
    sides = sides_of(failure, start_method, sharing_strategy)
    rounds, found = repeats or fewest_repeats(1), list[list[Outcome]]()
    told = progress or (lambda done, total, text: None)
    scenes = [(FAILURES[failure], side) for side in sides]
    started = time.monotonic()
    for number in range(rounds):
        if found and time.monotonic() - started > min(seconds, at_most()):
            break
        if cancel is not None and cancel.is_set():
            raise Cancelled("cancelled between two repeats")
        told(number, rounds, f"{failure}, repeat {number + 1} of {rounds}")
        found.append(played(scenes, patience_s, cancel))
        if so_far is not None and len(found) < rounds:
            so_far(_result(failure, sides[0], found))
    told(rounds, rounds, "done")
    return _result(failure, sides[0], found)


def _result(failure: str, side: Side, found: list[list[Outcome]]) -> Result:
    repeats = {package: tuple(pair[i].seconds for pair in found) for i, package in enumerate(SIDES)}
    return Result(
        question=f"After how long is it told? ({failure})",
        quantity="time until it is told",
        unit="s",
        repeats=repeats,
        settings={package: {"loader": package} for package in SIDES},
        common={
            "failure": failure,
            "start_method": side.start_method,
            "sharing_strategy": side.sharing_strategy,
        },
        machine=machine(),
        notes=tuple(_note(outcome) for outcome in found[-1]),
    )


def _note(outcome: Outcome) -> str:
    """The latest repeat in words."""
    if not outcome.is_over:
        said = "had told nothing when it was given up: its true time is longer"
    else:
        text = " ".join(outcome.says.split()).rstrip(".")
        said = f"{outcome.ended}{f': {text}' if text else ''}. Stayed behind: {outcome.left_words}"
    return f"{outcome.package}: {said}."
