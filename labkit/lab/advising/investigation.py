"""Look at a dataset, trace its loader, try what may help: in the time and the memory there is.

1. `probe`: what a sample and a batch are like, and how many bytes.
2. The user's setting is traced; `layers` says which layer holds it back.
3. Other numbers of workers, then one other argument at a time (`candidates`), each measured in
   turns with the setting that it would replace (`trials`).
4. What came out best is measured once more beside the user's setting, on fresh repeats: the best
   of several is also the luckiest of them.

It runs in a process of its own (`session`), and tells of each finding at once.
Before it: `subject`. After it: `advice`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

from labkit.errors import StartupNotPicklable
from labkit.lab.advising import trials
from labkit.lab.advising.candidates import (
    Bounds,
    fewest_alive,
    refinements,
    starts,
    with_other_workers,
)
from labkit.lab.advising.collates import default_does
from labkit.lab.advising.consumer import Consumer, device_named
from labkit.lab.advising.findings import Findings, Trial
from labkit.lab.advising.journal import Journal, Options, Tell
from labkit.lab.advising.layers import Layers, layers_of
from labkit.lab.advising.probe import place_of, probe
from labkit.lab.advising.setting import Setting
from labkit.lab.advising.subject import NoAdvice, Subject
from labkit.lab.advising.tracing import trace_of
from labkit.lab.doctor.limits import read_limits
from labkit.lab.experiments.measuring import at_most
from labkit.lab.machine import machine
from labkit.lab.results import Result

__all__ = ["investigate"]

_TRACED_SECONDS = 4.0  # at most
_FEW_A_WORKER = 5  # batches: so many it takes until workers are in steady state and timed
_SHORT, _SHORT_IF_FEW = 0.005, 0.02  # of the time there is: what an epoch may take
_WORTH = 0.01  # of an epoch: less is no reason to change how workers start


def investigate(tell: Tell, make_subject: Callable[[], Subject], options: Options) -> None:
    """Find out what can be found out, and tell of it.

    Args:
        tell: what is found goes there.
        make_subject: gives the dataset and its loader.
        options: what was asked for.
    """
    tell(("progress", (0.0, "getting the dataset")))
    try:
        subject = make_subject()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("default")
            warnings.filterwarnings("ignore", "This DataLoader will create")  # more than cores
            warnings.filterwarnings("ignore", ".*multi-threaded", DeprecationWarning)  # and forks
            _Investigation(subject, options, tell, warned).run()
    except NoAdvice as error:
        tell(("no advice", str(error)))


@dataclass
class _Investigation:
    """One run."""

    subject: Subject
    options: Options
    tell: Tell
    warned: list[warnings.WarningMessage]

    def __post_init__(self) -> None:
        limits = read_limits()
        self.bounds = Bounds.of(limits, self.options.memory_bytes)
        self.device = device_named(self.options.device)
        self.consumer = Consumer(self.options.step_seconds, self.device)
        self.findings = Findings(
            name=type(self.subject.dataset).__name__,
            samples=self.subject.samples,
            given=self.subject.current,
            is_bare=self.subject.is_bare,
            has_own_collate=self.subject.has_own_collate,
            device=None if self.device is None else self.device.name,
            step_seconds=self.options.step_seconds,
            machine=machine(),
        )
        self.journal = Journal(self.findings, self.options.seconds, self.tell)
        if self.options.why_forked:
            self.journal.note(
                f"The dataset could not be brought to a process of its own by pickling "
                f"({self.options.why_forked}), so it was forked, with one thread for PyTorch; only "
                'workers that are forked (multiprocessing_context="fork") can have it.'
            )

    def run(self) -> None:
        self.journal.found(**vars(self.findings))
        self.journal.progress("making a few samples and a batch")
        seconds = min(at_most(), self.journal.left("probe")[0])
        self.probe = probe(self.subject, self.options.memory_bytes, seconds)
        self.journal.found(probe=self.probe)
        current = self._traced()
        layers = layers_of(self.findings.traced) if self.findings.traced else None
        best = current
        if layers is None or layers.held_back_by != "step":
            best = self._other_workers(current)
            best = self._refined(best)
        best = self._started(best, layers)
        best = self._confirmed(current, best)
        self.journal.note_warnings(self.warned)
        self.journal.found(advised=best, lines=self._lines(current, best))

    # The steps

    def _traced(self) -> Setting:
        """Trace the user's setting, or what is nearest to it and can be traced; returns that."""
        current = fewest_alive(self.subject.current, self.probe, self.bounds)
        if current != self.subject.current:
            self.journal.note(
                "Your setting takes more memory than it may here, or more than there is; "
                f"{current.against(self.subject.current)} was looked at in its place."
            )
        self.journal.progress("tracing your setting")
        seconds = min(at_most(), self.journal.left("trace")[0], _TRACED_SECONDS)
        try:
            traced = trace_of(self.subject, current, self.consumer, seconds)
        except StartupNotPicklable as error:
            self.journal.note(f"Your setting does not start its workers: {error}")
            current = replace(current, start_method="fork")
            traced = trace_of(self.subject, current, self.consumer, seconds)
        except NoAdvice:
            raise
        except Exception as error:
            raise NoAdvice(
                f"loading with your setting raised {type(error).__name__}: {error}"
                + place_of(error)
            ) from error
        self.journal.found(traced=traced)
        return current

    def _other_workers(self, current: Setting) -> Setting:
        tried, limits = with_other_workers(current, self.probe, self.bounds)
        self.journal.found(limits=[*self.findings.limits, *limits])
        return self._try("workers", current, tried)

    def _refined(self, best: Setting) -> Setting:
        tried = refinements(
            best,
            self.probe,
            self.bounds,
            default_does(self.subject, self.probe.batch_samples),
            self.device,
        )
        if best.num_workers and self._epochs_are_short:
            tried += starts(best, self.probe, self.bounds, not self.options.why_forked)
        return self._try("transport", best, tried)

    def _started(self, best: Setting, layers: Layers | None) -> Setting:
        """Whether workers should start in another way, or stay."""
        if not best.num_workers or self._epochs_are_short:
            return best
        tried = starts(best, self.probe, self.bounds, not self.options.why_forked)
        after = self._try("start", best, tried)
        if after == best:
            return best
        trial = self.findings.trials["start"]
        saved = trial.result.median(trial.baseline) - trial.result.median(trial.chosen)
        epoch = self._epoch_ms(layers)
        if epoch is not None and saved < _WORTH * epoch:
            self.journal.note(
                f"{trial.chosen} saves {saved:,.0f} ms of an epoch that takes about "
                f"{epoch / 1e3:,.0f} s: too little to change it for that."
            )
            return best
        return after

    def _confirmed(self, current: Setting, best: Setting) -> Setting:
        """All that helped together, if a batch takes less with it than with the user's setting."""
        timed = [trial for name, trial in self.findings.trials.items() if name != "start"]
        if sum(trial.chosen != trial.baseline for trial in timed) < 2:
            return best  # it was measured beside the user's setting already
        return self._try("all", current, [best])

    # How they are done

    def _try(self, about: str, baseline: Setting, tried: list[Setting]) -> Setting:
        """Measure them beside the baseline; returns what is better, or the baseline."""
        tried = self._in_the_time(about, baseline, tried)
        while tried:
            try:
                trial = self._trial(about, baseline, tried)
            except trials.Failed as error:
                setting = next((s for s in tried if s.against(baseline) == error.label), None)
                if setting is None:
                    raise NoAdvice(f"{error.label} cannot be measured: {error}") from error
                self.journal.note(f"{error.label} does not work with this dataset: {error}")
                tried.remove(setting)
                continue
            self._note_trial(trial)
            return trial.settings[trial.chosen]
        return baseline

    def _trial(self, about: str, baseline: Setting, tried: list[Setting]) -> Trial:
        given = self.subject.current
        name = "your setting" if baseline == given else baseline.against(given)
        others = {setting.against(baseline): setting for setting in tried}
        bench = trials.Bench(
            self.subject,
            self.consumer,
            self._stand_in,
            lambda done, total, text: self.journal.progress(f"{_NAMES[about]}: {text}"),
        )
        plan, label, screened = self._plan(about), next(iter(others)), None
        settings = {name: baseline, **others}
        if len(others) > 1:
            screened = bench.measure(about, settings, plan, plan.screening)
            label = trials.most_promising(screened, others)

        def trial(result: Result) -> Trial:
            chosen = label if trials.is_better(result, label, name) else name
            return Trial(about, result, name, settings, chosen, screened)

        pair = {name: baseline, label: others[label]}
        plan = self._plan(about)  # in what is left of the time
        return trial(
            bench.measure(
                about, pair, plan, plan.repeats, lambda result: self._note_trial(trial(result))
            )
        )

    def _in_the_time(self, about: str, baseline: Setting, tried: list[Setting]) -> list[Setting]:
        """Those for which there is time."""
        others = [setting for setting in dict.fromkeys(tried) if setting != baseline]
        found = trials.affordable(baseline, others, self._plan(about), self._batch_seconds)
        if self.journal.is_over(about):
            found = []
        if len(found) < len(others):
            left = "; ".join(setting.against(baseline) for setting in others[len(found) :])
            sentence = f"For lack of time (seconds=…, --seconds): {left}."
            self.journal.found(limits=[*self.findings.limits, sentence])
        return found

    def _plan(self, about: str) -> trials.Plan:
        return trials.plan_for(
            *self.journal.left(about), self._batch_seconds, self._epochs_are_short
        )

    @property
    def _epochs_are_short(self) -> bool:
        """Whether they have no steady state, or take no longer than a repeat may."""
        batches = self.findings.epoch_batches
        if batches is None:
            return False
        few = batches < _FEW_A_WORKER * self.bounds.most_workers(self.probe)
        short = _SHORT_IF_FEW if few else _SHORT
        return batches * self._batch_seconds < short * self.options.seconds

    @property
    def _batch_seconds(self) -> float:
        made = self.probe.sample_seconds * self.probe.batch_samples
        return max(made, 1e-6) + self.options.step_seconds

    def _epoch_ms(self, layers: Layers | None) -> float | None:
        batches = self.findings.epoch_batches
        if batches is None or layers is None:
            return None
        latest = [t for name, t in self.findings.trials.items() if name != "start"]
        now = latest[-1].result.median(latest[-1].chosen) if latest else layers.batch_seconds * 1e3
        return batches * now

    def _stand_in(self, setting: Setting) -> Setting:
        """Spawned workers take seconds to start, and then load as any others do."""
        if not setting.num_workers or setting.method != "spawn":
            return setting
        words = "Spawned workers start slowly: for the trials they came from a fork server."
        if words not in self.findings.notes:
            self.journal.note(words)
        return replace(setting, start_method="forkserver")

    def _note_trial(self, trial: Trial) -> None:
        found = {**self.findings.trials, trial.about: trial}
        self.journal.found(trials=found, lines=self._lines(*trial.settings.values()))

    def _lines(self, *settings: Setting) -> dict[Setting, str]:
        new = {setting: self.subject.line(setting) for setting in settings}
        return {**self.findings.lines, **new}


_NAMES = {
    "workers": "workers",
    "transport": "what else a loader can be told",
    "start": "how workers start",
    "all": "all of it beside your setting",
}
