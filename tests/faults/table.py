"""README.md: every episode with its time, in tables that can be read.

The outcomes are kept as lines of JSON, so that a run that was cancelled goes on where it was.
Before it: `running` and `special`. After it: the reader.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from labkit.lab.explain.wording import machine_words
from labkit.lab.machine import machine
from tests.faults.covering import Combination, met_in
from tests.faults.episode import FACTORS, Episode, Outcome, all_episodes
from tests.faults.special import SPECIALS, Told

__all__ = ["HERE", "append", "load", "write"]

HERE = Path(__file__).parent
Outcomes = Mapping[Episode, Outcome]


def append(path: Path, episode: Episode, outcome: Outcome) -> None:
    """Add a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps([asdict(episode), asdict(outcome)]) + "\n")


def load(path: Path) -> dict[Episode, Outcome]:
    """What has been run; of an episode that was run twice, the later outcome."""
    if not path.exists():
        return {}
    pairs = map(json.loads, path.read_text().splitlines())
    return {Episode(**episode): Outcome(**outcome) for episode, outcome in pairs}


def write(outcomes: Outcomes, told: Mapping[str, Told], path: Path = HERE / "README.md") -> None:
    """Write the page."""
    path.write_text("\n".join(_page(outcomes, told)).rstrip() + "\n")


def _page(outcomes: Outcomes, told: Mapping[str, Told]) -> Iterable[str]:
    here = machine()
    yield INTRODUCTION.format(date=here["date"][:10], machine=machine_words(here))
    yield from _counts(outcomes)
    for victim in FACTORS["victim"]:
        yield f"\n### {VICTIMS[victim]}\n"
        yield from _by_fault_and_stage({e: o for e, o in outcomes.items() if e.victim == victim})
    yield "\n### By setting\n"
    yield "The worst time of an error after a death, over datasets, stages, faults.\n"
    yield from _by_setting(outcomes)
    yield "\n## Special episodes\n"
    yield from _specials(told)


INTRODUCTION = """\
# Faults

What `python -m tests.faults` found: it plants every fault of a grid in a loader that runs, looks
whether what follows is right and in time and whether anything stays behind, and writes this page.
Nothing here is written by hand.

Made on {date}, on {machine}.

An episode is a start method × a sharing strategy × a kind of dataset (map-style, iterable) ×
persistent workers or not × a stage × a fault × a victim. The stage is held: the worker reports that
it is there and waits, so the fault comes in it and not near it. "Sending" is the middle of a
message larger than the socket, which nobody reads. What is looked at:

- the batches before, of this epoch and of one before where workers persist, each value of each;
- the error: its class, the worker, its process id, the signal or exit code, the batch;
- what was kept of the batches, and a whole epoch of the same loader afterwards;
- that no process, thread, descriptor, mapping of shared memory or name in `/dev/shm` is left.

And the time: an error is told at most 1 s after a worker's death; workers are gone 2 s after the
main process's, also one that is stuck in a sample; `close`, and an end with an exception or an
interpreter's exit, which close, take at most 5 s. An episode that misses only its time is run
again, three times in all: a busy machine is late now and then, a broken loader every time. Nor
does the time count in which the process stood ready and the machine had no core for it. What is
wrong is never run again.

A cell is the worst time in seconds, over all settings. After SIGCONT, of a worker, it is the time
until the epoch's end; of the main process, until it has also run another epoch and closed.

Two things are not promised. A main process that is killed while a spawned worker still imports
torch is noticed when that import is over. And what a dataset has started by itself, in a session of
its own, is its own affair.

Under forkserver, episodes share one server, which stays out of the process group that is hit; in
the special episode on Ctrl-C it is in it.
"""

VICTIMS = {
    "a worker": "A worker, of two: until the error is told",
    "all workers": "Both workers: until the first error is told",
    "main process": "The main process: until its workers are gone",
    "process group": "The process group, main process and workers: until the workers are gone",
}


def _counts(outcomes: Outcomes) -> Iterable[str]:
    of_method = Counter(episode.start_method for episode in all_episodes())
    run = Counter(episode.start_method for episode in outcomes)
    again = sum(outcome.tries > 1 for outcome in outcomes.values())
    yield "## The grid\n"
    yield "| start method | episodes | run | good | every three circumstances together |"
    yield "|---|---|---|---|---|"
    for method, count in of_method.items():
        bad = sum(e.start_method == method and bool(o.verdict) for e, o in outcomes.items())
        met, all_of_them = _threes(outcomes, method), _threes(all_episodes(), method)
        threes = f"{len(met):,} of {len(all_of_them):,}"
        yield f"| {method} | {count:,} | {run[method]:,} | {run[method] - bad:,} | {threes} |"
    yield f"\nRun more than once because they were late: {again}.\n"
    for episode, outcome in outcomes.items():
        if outcome.verdict:
            yield f"- **{episode}**: {'; '.join(outcome.verdict)}"


def _threes(episodes: Iterable[Episode], method: str) -> set[Combination]:
    of_method = [episode for episode in episodes if episode.start_method == method]
    return set().union(*(met_in(episode, 3) for episode in of_method))


def _by_fault_and_stage(outcomes: Outcomes) -> Iterable[str]:
    worst: dict[tuple[str, str], float] = defaultdict(float)
    for episode, outcome in outcomes.items():
        key = episode.fault, episode.stage
        worst[key] = max(worst[key], outcome.seconds)
    stages = FACTORS["stage"]
    yield f"| | {' | '.join(stages)} |\n|---|{'---|' * len(stages)}"
    for fault in FACTORS["fault"]:
        cells = [f"{worst[fault, s]:.2f}" if (fault, s) in worst else "–" for s in stages]
        if set(cells) != {"–"}:
            yield f"| {fault} | {' | '.join(cells)} |"


def _by_setting(outcomes: Outcomes) -> Iterable[str]:
    deaths = {e: o for e, o in outcomes.items() if e.hits_workers and e.kills}
    yield "| | passing workers | persistent workers | slowest `close` |\n|---|---|---|---|"
    for method in FACTORS["start_method"]:
        for strategy in FACTORS["strategy"]:
            of = [(e, o) for e, o in deaths.items() if e.start_method == method]
            of = [(e, o) for e, o in of if e.strategy == strategy]
            times = [[o.seconds for e, o in of if e.persistent == p] for p in (False, True)]
            cells = [f"{max(some):.2f}" if some else "–" for some in times]
            close = max((o.close_seconds for _, o in of), default=0.0)
            yield f"| {method}, {strategy} | {' | '.join(cells)} | {close:.2f} |"


def _specials(told: Mapping[str, Told]) -> Iterable[str]:
    yield "| episode | what must follow | bound | took | where |\n|---|---|---|---|---|"
    for special in SPECIALS:
        bound = f"{special.bound:.0f} s" if special.bound else "–"
        where = special.where
        if special.run is None:
            yield f"| {special.name} | {special.follows} | {bound} | its test | `{where}` |"
            continue
        found = told.get(special.name, Told(words="not run"))
        took = found.words or f"{found.seconds:.2f} s"
        yield f"| {special.name} | {special.follows} | {bound} | {took} | `{where}` |"
