"""The exercises of notebook 00: how many workers make sense on a machine, and what a trace shows.

Before it: the doctor, which finds what this machine has, and `labkit.trace`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from labkit.lab.exercises.exercise import Exercise
from labkit.lab.exercises.trial import Trial
from labkit.spans import Span

__all__ = ["EXERCISES"]

_GB = 10**9

# What the machine is, its cores, those allowed, the quota in cores, free bytes, bytes a worker;
# how many workers; what to think of if the answer is another.
_MACHINES = (
    (
        "a laptop",
        (8, 8, None, 16 * _GB, _GB),
        8,
        "Nothing limits this one: a worker for each core.",
    ),
    (
        "a shared server on which `taskset` allows you 2 of 64 cores",
        (64, 2, None, 200 * _GB, _GB),
        2,
        "64 cores are there, but not for you: which of the numbers says how many you may use?",
    ),
    (
        "a container with a quota of 3.7 cores",
        (64, 64, 3.7, 200 * _GB, _GB),
        3,
        "The quota is time: with 4 workers on 3.7 cores, each is stopped for a while again and "
        "again. Only whole cores count here.",
    ),
    (
        "a container whose quota is larger than what it may run on",
        (16, 4, 8.0, 64 * _GB, _GB),
        4,
        "A quota of 8 cores is of no use on 4: both limits hold, so the smaller one counts.",
    ),
    (
        "a container with half a core",
        (32, 32, 0.5, 64 * _GB, _GB),
        1,
        "Rounded down, half a core is none; the task says: at least one worker.",
    ),
    (
        "a laptop with little free memory",
        (8, 8, None, 2_500_000_000, _GB),
        2,
        "Cores are there for 8, but what do 8 workers need in memory?",
    ),
    (
        "a machine with less free memory than one worker needs",
        (4, 4, None, _GB // 2, _GB),
        0,
        "Not even one worker fits: 0 lets the main process load. Which of the two limits comes "
        "last?",
    ),
)


def _most_workers(answer: Callable[..., int], trial: Trial) -> None:
    names = ("cores", "allowed", "quota", "free_bytes", "worker_bytes")
    for what, values, expected, thought in _MACHINES:
        call = ", ".join(f"{name}={value!r}" for name, value in zip(names, values, strict=True))
        trial.case(f"{what}: `most_workers({call})`", repr(expected), thought)
        got = answer(*values)
        if isinstance(got, float):
            trial.fail(repr(got), "`num_workers` is a whole number: an int.")
        if got != expected:
            trial.fail(repr(got), thought)


# What the trace shows, its spans as (lane, layer, seconds), the lane asked for; its busiest layer;
# what to think of if the answer is another.
_TRACES = (
    (
        "a worker that fetches twice and collates once",
        (("worker 0", "fetch", 3), ("worker 0", "collate", 1), ("worker 0", "fetch", 3)),
        "worker 0",
        "fetch",
        "Which of the two layers has more seconds?",
    ),
    (
        "a worker with many short fetches and one long collate",
        (*[("worker 0", "fetch", 1)] * 3, ("worker 0", "collate", 5)),
        "worker 0",
        "collate",
        "Most spans is not most seconds: how long is each?",
    ),
    (
        "a feeder that pickles once and sends three times",
        (("feeder 0", "pickle", 5), *[("feeder 0", "send", 2)] * 3),
        "feeder 0",
        "send",
        "The longest single span is not it: add up the spans of a layer first.",
    ),
    (
        "two workers",
        (("worker 0", "collate", 9), ("worker 1", "fetch", 3), ("worker 1", "collate", 2)),
        "worker 1",
        "fetch",
        "The other worker's spans count, too, it seems: compare each span's lane with `lane`.",
    ),
    (
        "eleven workers, of which two are shown",
        (("worker 1", "fetch", 2), ("worker 10", "collate", 8), ("worker 1", "collate", 1)),
        "worker 1",
        "fetch",
        "The lane's name must be equal: 'worker 10' begins with 'worker 1', and is another one.",
    ),
    (
        "a worker that waits most of the time",
        (("worker 0", "wait", 30), ("worker 0", "fetch", 3), ("worker 0", "collate", 1)),
        "worker 0",
        "fetch",
        "A lane that waits is not busy: spans of the layer 'wait' are to be left out.",
    ),
)


def _busiest_layer(answer: Callable[[list[Span], str], str], trial: Trial) -> None:
    for what, lines, lane, expected, thought in _TRACES:
        spans = _one_after_the_other(lines)
        words = ", ".join(f"{where} {layer} {seconds} s" for where, layer, seconds in lines)
        trial.case(f"{what}: `busiest_layer(spans, {lane!r})` of {words}", repr(expected), thought)
        got = answer(spans, lane)
        if got is None:
            trial.fail(got, "It returned nothing: is there a `return`?")
        if not isinstance(got, str):
            trial.fail(got, "The layer's name is asked for: a str.")
        if got != expected:
            trial.fail(repr(got), thought)


def _one_after_the_other(lines: Sequence[tuple[str, str, int]]) -> list[Span]:
    spans, now = [], 1000.0  # a clock does not begin at 0
    for lane, layer, seconds in lines:
        spans.append(Span(lane, layer, now, now + seconds))
        now += seconds
    return spans


EXERCISES = (
    Exercise(
        "00.most_workers",
        "most_workers",
        (
            "Three limits hold at the same time. Which of the arguments is no limit at all?",
            "`min` of the allowed cores and the quota, cut to an int, `max` of that and 1; then "
            "`min` with how often `worker_bytes` goes into `free_bytes`.",
        ),
        _most_workers,
    ),
    Exercise(
        "00.busiest_layer",
        "busiest_layer",
        (
            "Add up `span.end - span.start` for each layer, but only of some spans: which?",
            "A `collections.Counter` adds up: `seconds[span.layer] += …` for each span whose lane "
            "is `lane` and whose layer is not 'wait'. Its `most_common(1)` has the rest.",
        ),
        _busiest_layer,
    ),
)
