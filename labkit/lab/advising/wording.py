"""Findings in sentences: what holds the loader back, what that costs, what to change and what not.

Each sentence comes from a number that was measured; what was tried and did not help is told, too.

Before it: `findings`, `layers`. After it: `advice`.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from labkit.lab.advising.findings import Findings, Probe
from labkit.lab.advising.layers import Layers, layers_of
from labkit.lab.advising.setting import Setting
from labkit.lab.advising.trial_words import effect_of, many, screened_words, trial_words
from labkit.lab.experiments.comparisons import bytes_words
from labkit.lab.explain.wording import duration

__all__ = ["Section", "sections"]

Section = tuple[str, list[str]]
"""A heading, and sentences."""

_WORTH = 0.05  # of a batch's time in a worker: a copy that takes more is worth a word
_BUSY_SHARE = 0.2  # of a sample's time, in which others had the cores
_LONG_HOLD_SECONDS = 0.02  # of the interpreter's lock; it changes hands after 0.005 if asked for


def sections(findings: Findings) -> list[Section]:
    """All that is to be said, in order; a section without sentences is left out."""
    layers = layers_of(findings.traced) if findings.traced is not None else None
    found = [
        ("What is loaded", list(_what(findings))),
        ("What holds it back", list(_held_back(findings, layers))),
        ("What to change", list(_to_change(findings, layers))),
        ("What was tried and did not help", list(_no_help(findings))),
        ("What was not tried", findings.limits),
        ("Besides", [*_besides(findings), *findings.notes]),
        ("Write", _line(findings)),
    ]
    return [(heading, sentences) for heading, sentences in found if sentences]


def _what(findings: Findings) -> Iterator[str]:
    probe = findings.probe
    if probe is None:
        return
    count = f"{findings.samples:,} samples" if findings.samples is not None else "no length"
    batches = "" if probe.batches is None else f", {many(probe.batches, 'batch')} an epoch"
    yield (
        f"{findings.name}, {count}{batches}. A batch of {many(probe.batch_samples, 'sample')} has "
        f"{bytes_words(probe.batch_bytes)}: {', '.join(probe.kinds)}."
    )
    yield f"A sample takes {duration(probe.sample_seconds)}: {_core_words(probe)}."
    is_quiet = probe.queued_share < _BUSY_SHARE  # else the other thread had no core
    if probe.lock_seconds > _LONG_HOLD_SECONDS and probe.core_share > 0.5 and is_quiet:
        yield (
            f"It holds the interpreter's lock for up to {duration(probe.lock_seconds)} at a time: "
            "other threads of its process stand still so long, so threads would not load beside "
            "it; workers, which are processes, do."
        )


def _core_words(probe: Probe) -> str:
    if probe.core_share > 0.8 and probe.queued_share > _BUSY_SHARE:
        return "it computes; what it waits for is a core, which others had (see below)"
    if probe.core_share > 0.8:
        return f"it computes, {probe.core_share:.0%} of that on a core"
    if probe.core_share < 0.5:
        return f"it waits (for a disk, a network, a lock), only {probe.core_share:.0%} on a core"
    return f"{probe.core_share:.0%} of that on a core, the rest it waits"


def _held_back(findings: Findings, layers: Layers | None) -> Iterator[str]:
    if findings.traced is None:
        return
    if layers is None:
        yield "The trace has too few batches to say which layer holds it back."
        return
    given = "num_workers=0" if not findings.given.num_workers else findings.given.against(_NONE)
    whose = f"Traced with {'the default, ' if findings.is_bare else ''}{given}: "
    usual = _BUSY if findings.given.num_workers else _ALONE
    yield whose + _VERDICTS.get(layers.held_back_by, usual).format(
        layer=layers.held_back_by,
        what=_MEANING.get(layers.held_back_by, ""),
        who=layers.who,
        busy=f"{layers.busy:.0%}",
        waited=f"{layers.waited:.0%}",
    )
    parts = [f"{name} {duration(s)}" for name, s in layers.seconds.items() if s > 0]
    yield f"Work on a batch, whoever does it: {', '.join(parts)}."
    lost = layers.waited * layers.batch_seconds
    epoch = findings.epoch_batches
    of_epoch = f", {duration(lost * epoch)} of an epoch" if epoch else ""
    yield (
        f"What it costs: of {duration(layers.batch_seconds)} a batch the loop waits "
        f"{duration(lost)} ({layers.waited:.0%}){of_epoch}."
    )
    if not findings.step_seconds:
        yield (
            "No step was given (step_seconds=…, --step-seconds), so the loop does nothing but "
            "wait: give your training step's time to see what of that it hides."
        )


_NONE = Setting()
_BUSY = (
    "{layer} holds it back ({what}): {who} worked {busy} of the time, most of it on that, and the "
    "loop waited {waited} of it."
)
_ALONE = (
    "{layer} holds it back ({what}). Without workers the loop does all of that itself, between two "
    "steps: {waited} of the time."
)
_VERDICTS = {
    "step": "the loader keeps up: the loop waited {waited} of the time, and what takes it is your "
    "step. Nothing that a loader can be told makes this loop faster.",
    "nobody": "nobody was busy for long ({who} most, {busy} of the time), and yet the loop waited "
    "{waited} of it: too few batches are under way, or other programs have the cores.",
}
_MEANING = {
    "fetch": "the dataset, sample by sample",
    "collate": "making a batch of samples",
    "transport": "bringing a batch from a worker",
    "copy": "bringing a batch to the device",
    "step": "what your loop does with a batch",
}


def _to_change(findings: Findings, layers: Layers | None) -> Iterator[str]:
    trials = findings.trials
    helped = [trial for trial in trials.values() if trial.chosen != trial.baseline]
    for trial in helped:
        if trial.about != "all":
            yield f"{_capitalised(trial.chosen)}: {trial_words(trial)}."
    whole = trials.get("all")
    if whole is not None and whole in helped:
        yield f"All of it, measured again beside your setting: {trial_words(whole)}."
    elif whole is not None:
        yield (
            f"All of it together, measured again beside your setting: {trial_words(whole)}. So "
            "leave it as it is, and measure again when less else runs here."
        )
    if helped:
        yield from _hidden_by(findings)
    if findings.is_unsharded and findings.advised is not None and findings.advised.num_workers:
        yield (
            "Before that, shard it: each worker has a copy of this iterable dataset, and each "
            "gives all samples. Let `__iter__` read `labkit.get_worker_info()` and yield every "
            "num_workers-th sample, from its id on."
        )
    if not helped and trials and not findings.stopped:
        if all(effect_of(trial).verdict == "unknown" for trial in trials.values()):
            yield "Nothing can be said yet: too few repeats fitted into the time (see below)."
        else:
            yield "Nothing: no setting that was tried is better than yours beyond the spread."
    elif not trials and layers is not None and layers.held_back_by == "step":
        yield "Nothing, as far as loading is concerned: make the step faster."


def _hidden_by(findings: Findings) -> Iterator[str]:
    """From which step on the advised loader keeps up."""
    advised = findings.advised
    timed = [trial for name, trial in findings.trials.items() if name != "start"]
    if findings.step_seconds or advised is None or not advised.num_workers or not timed:
        return
    best = timed[-1]
    limit = duration(best.result.median(best.chosen) / 1e3)
    yield (
        f"With the line below, a batch is there every {limit}: a step that takes longer, on a "
        "device, need not wait for it."
    )


def _no_help(findings: Findings) -> Iterator[str]:
    for trial in findings.trials.values():
        if trial.about != "all" and trial.chosen == trial.baseline:
            yield f"{_capitalised(trial.compared)}: {trial_words(trial)}."
        if trial.screened is not None:
            yield from screened_words(trial, trial.screened)


def _besides(findings: Findings) -> Iterator[str]:
    if findings.probe is not None and findings.probe.queued_share > _BUSY_SHARE:
        yield (
            f"This machine is busy: for {findings.probe.queued_share:.0%} of a sample's time "
            "others had the cores. Measure again when less else runs here."
        )
    copied = _copied_seconds(findings)
    if findings.has_own_collate and copied is not None:
        yield (
            f"Your collate function makes its batch in memory of its own, and each is copied into "
            f"shared memory when it is sent: {duration(copied)} a batch in the trace. Built in "
            "`labkit.empty_shared(shape, dtype)`, nothing is copied; that takes a change of your "
            "function, so it was not tried."
        )


def _copied_seconds(findings: Findings) -> float | None:
    """What copying takes when a batch is pickled; None if there is nothing worth a word."""
    if findings.traced is None or not findings.given.num_workers:
        return None
    spans = [span for span in findings.traced.spans if span.worker >= 0 and span.batch >= 0]
    pickled = [span.end - span.start for span in spans if span.layer == "pickle"]
    made = sum(s.end - s.start for s in spans if s.layer in ("fetch", "collate", "pickle"))
    if not pickled or sum(pickled) < _WORTH * made:
        return None
    return statistics.median(pickled)


def _line(findings: Findings) -> list[str]:
    if findings.advised is None:
        return []
    return [findings.lines[findings.advised]]


def _capitalised(text: str) -> str:
    is_code = "=" in text.split()[0] or text.startswith("labkit")
    return text if is_code else text[:1].upper() + text[1:]
