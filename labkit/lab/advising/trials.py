"""Settings measured side by side, and which of them is better beyond the spread.

Of several settings the best is found by screening: two rounds of all of them, from which nothing is
claimed. It alone is then measured beside the one that it would replace, in fresh repeats: the best
of several is also the luckiest of them. `labkit.lab.experiments.measure` lets them take turns; what
counts as a difference is `labkit.lab.explain`'s rule.

Before it: `timing`, what is measured; `candidates`, of which settings. After it: `investigation`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from labkit.lab.advising.consumer import Consumer
from labkit.lab.advising.setting import Setting
from labkit.lab.advising.subject import NoAdvice, Subject
from labkit.lab.advising.timing import Stretch, batch_ms, first_batch_ms
from labkit.lab.experiments import measure, measuring
from labkit.lab.explain import compare, fewest_repeats
from labkit.lab.results import Result

__all__ = ["Bench", "Failed", "Plan", "affordable", "is_better", "most_promising", "plan_for"]

_MORE_REPEATS = 2  # than the fewest with which a difference can be told
_SCREENING_REPEATS = 2
_SCREENING_SHARE = 0.4  # of a trial's time
_ALIKE = 1.03  # medians so near to each other are taken for equal: the cheaper setting is better
_START_SECONDS, _WORKER_SECONDS = 0.15, 0.05  # of a loader, and each worker: what a repeat adds
_TIMED_SHARE = 0.6  # of a repeat's time; the rest is its loader's start and warm-up
_LEAST_SECONDS, _MOST_SECONDS = 0.05, 1.0  # timed in a repeat
_MANY, _FEW = (4, 6), (2, 3)  # batches a worker, before and in what is timed; where they are slow


class Failed(Exception):
    """A setting raised while it was measured."""

    def __init__(self, label: str, error: Exception) -> None:
        # Of a worker's exception the last line: before it stands the worker's traceback.
        said = str(error).strip().split("\n")[-1].strip()
        named = said.startswith(type(error).__name__)
        super().__init__(said if named else f"{type(error).__name__}: {said}")
        self.label = label


@dataclass(frozen=True)
class Plan:
    """How often is measured, and for how long at a time.

    Attributes:
        screening, repeats: rounds of all settings, and of the two that are compared.
        stretch: what is timed each time.
        seconds: that it should take,
        at_most: and after which it ends with what there is.
    """

    screening: int
    repeats: int
    stretch: Stretch
    seconds: float
    at_most: float


def plan_for(seconds: float, at_most: float, batch_seconds: float, whole_epochs: bool) -> Plan:
    """The plan for a trial.

    Args:
        seconds: for all of it,
        at_most: or a little more, if it is not done by then.
        batch_seconds: that one worker, or the main process, takes for a batch.
        whole_epochs: time whole ones.
    """
    repeats = fewest_repeats() + _MORE_REPEATS
    each = (1 - _SCREENING_SHARE) * seconds / (2 * repeats)
    warmup, least = _FEW if sum(_MANY) * batch_seconds > each / 2 else _MANY
    timed = min(max(_TIMED_SHARE * each, _LEAST_SECONDS), _MOST_SECONDS)
    stretch = Stretch(warmup, least, min(timed, measuring.at_most()), whole_epochs)
    return Plan(_SCREENING_REPEATS, repeats, stretch, seconds, at_most)


def affordable(
    baseline: Setting, tried: Sequence[Setting], plan: Plan, batch_seconds: float
) -> list[Setting]:
    """As many of them, from the first on, as can be screened in the time there is; one at least.

    Args:
        baseline: what they are compared with.
        tried: the most promising first.
        plan: of the trial.
        batch_seconds: as for `plan_for`.
    """
    for count in range(len(tried), 1, -1):
        settings = [baseline, *tried[:count]]
        a_round = sum(_repeat_seconds(s, plan.stretch, batch_seconds) for s in settings)
        if a_round * plan.screening <= _SCREENING_SHARE * plan.seconds:
            return list(tried[:count])
    return list(tried[:1])


def _repeat_seconds(setting: Setting, stretch: Stretch, batch_seconds: float) -> float:
    """What a repeat takes, if each worker makes its batches as fast as the main process."""
    made = stretch.batches(setting) / max(1, setting.num_workers) * batch_seconds
    return _START_SECONDS + _WORKER_SECONDS * setting.num_workers + max(made, stretch.seconds)


def most_promising(screened: Result, settings: Mapping[str, Setting]) -> str:
    """The label of the cheapest among the best of these settings."""
    best = min(map(screened.median, settings))
    near = [label for label in settings if screened.median(label) <= best * _ALIKE]
    return min(near, key=lambda label: (settings[label].alive, len(settings[label].written())))


def is_better(result: Result, label: str, baseline: str) -> bool:
    """Whether it takes less than the baseline, beyond the spread."""
    return compare(result, label, baseline).verdict == "less"


@dataclass(frozen=True)
class Bench:
    """Measures settings of a subject in turns.

    Attributes:
        subject: whose loaders.
        consumer: the loop.
        stand_in: gives the setting that is measured in place of one that starts too slowly.
        progress: as for `measure`.
    """

    subject: Subject
    consumer: Consumer
    stand_in: Callable[[Setting], Setting]
    progress: Callable[[int, int, str], None]

    def measure(
        self,
        about: str,
        settings: Mapping[str, Setting],
        plan: Plan,
        repeats: int,
        so_far: Callable[[Result], None] = lambda result: None,
    ) -> Result:
        """Every repeat of these settings.

        Args:
            about: "start" to time an epoch's first batch; else a batch is timed.
            settings: by label.
            plan: for how long at a time, and in all.
            repeats: of each.
            so_far: told of the result after each round.

        Raises:
            Failed: a setting raised; names it.
            NoAdvice: there is nothing to load.
        """
        what = _WORDS["start" if about == "start" else "batch"]
        notes = self._notes(about, plan.stretch)
        found = measure(
            {
                label: functools.partial(self._one, about, label, setting, plan.stretch)
                for label, setting in settings.items()
            },
            question=what[0],
            quantity=what[1],
            unit="ms",
            repeats=repeats,
            warmup=0,
            seconds=plan.at_most,
            limit_s=max(60.0, plan.at_most),
            progress=self.progress,
            so_far=lambda result: so_far(_with(result, notes)),
        )
        return _with(found, notes)

    def _one(self, about: str, label: str, setting: Setting, stretch: Stretch) -> float:
        timed = first_batch_ms if about == "start" else batch_ms
        try:
            return timed(self.subject, self.stand_in(setting), stretch, self.consumer)
        except NoAdvice:
            raise
        except Exception as error:
            raise Failed(label, error) from error

    def _notes(self, about: str, stretch: Stretch) -> tuple[str, ...]:
        notes, consumer = [], self.consumer
        if about != "start" and consumer.step_seconds:
            step = consumer.step_seconds * 1e3
            notes.append(f"With a step of {step:g} ms, in which no core works.")
        if about != "start" and stretch.whole_epochs:
            notes.append("Whole epochs were timed, with the start of each.")
        if about != "start" and consumer.device is not None:
            kind = "a simulated device" if consumer.device.is_simulated else consumer.device.name
            notes.append(f"Each batch is copied to {kind}.")
        return tuple(notes)


_WORDS = {
    "start": ("How long does an epoch's first batch take?", "time to an epoch's first batch"),
    "batch": ("How long does a batch take?", "time a batch"),
}


def _with(result: Result, notes: tuple[str, ...]) -> Result:
    return replace(result, settings={}, notes=(*result.notes, *notes))
