"""What a recording is made of: each job measures or checks something, and writes it.

Before it: `self_check`, `correctness`, `labkit.lab.bench`, `labkit.lab.on_device`. After it:
`session`, which runs them.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import labkit
from labkit.device import Device
from labkit.lab.bench.options import REPEATS, Options
from labkit.lab.bench.results import Run, figures
from labkit.lab.bench.to_device import DeviceGroupRun, images_of, size_for
from labkit.lab.experiments.measuring import Cancelled
from labkit.lab.on_device import EXPERIMENTS, Experiment, step
from labkit.lab.record.check import Check, carried_out
from labkit.lab.record.correctness import correctness_checks
from labkit.lab.record.loads import Amounts, amounts_for
from labkit.lab.record.self_check import self_checks
from labkit.lab.record.session import Job, Turn
from labkit.lab.recorded.sources import with_imports
from labkit.lab.resources import running
from labkit.lab.results import Result

__all__ = ["jobs_for"]

_SELF_CHECK, _CORRECTNESS, _BENCH, _TRACE, _EXPERIMENTS = 20, 70, 110, 10, 115
"""Their shares: seconds of the usual time."""

_STEPS = "labkit.lab.on_device.steps"
_CHECKED_BY = [f"labkit.lab.record.{name}" for name in ("correctness", "loads", "self_check")]
_CHECKED_BY += [_STEPS]
_BENCHED_BY = ["labkit.lab.bench.to_device", _STEPS]

_TRACED_BATCHES = 24
_TRACED_STEP_S = 2e-3
_OF_ITS_TIME = 0.8  # what an experiment is told, for it overruns that by a round at most


def jobs_for(device: Device, only: Sequence[str] | None = None) -> list[Job]:
    """All jobs on such a device, the self-check first; or those whose names begin with a word.

    Raises:
        ValueError: a word names none.
    """
    amounts = amounts_for(device)
    jobs = [
        Job("self-check", _SELF_CHECK, functools.partial(_check_itself, amounts)),
        Job("correctness", _CORRECTNESS, functools.partial(_check_values, amounts)),
        Job("bench", _BENCH, _bench),
        Job("trace", _TRACE, _trace),
        *_experiments(device),
    ]
    for word in only or ():
        if not word or not any(job.name.startswith(word) for job in jobs):
            names = ", ".join(job.name for job in jobs)
            raise ValueError(f"no job's name begins with {word!r}: there are {names}")
    return [job for job in jobs if only is None or job.name.startswith(tuple(only))]


def _check_itself(amounts: Amounts, turn: Turn) -> None:
    _carry_out(turn, "self-check", self_checks(turn.device, amounts))


def _check_values(amounts: Amounts, turn: Turn) -> None:
    checks = correctness_checks(turn.device, amounts, turn.seconds)
    _carry_out(turn, "correctness", checks)


def _carry_out(turn: Turn, name: str, checks: Mapping[str, Callable[[], Check]]) -> None:
    """Carry them out; say and write what came of each, and note those that were not passed."""
    found = []
    for check in carried_out(checks):
        turn.look_for_ctrl_c()
        found.append(dataclasses.asdict(check))
        turn.said(f"  {check}")
        if check.passed is False:
            turn.index.failures[f"{name}: {check.name}"] = check.found
        turn.write(f"{name}.json", "checks", name, {"checks": found}, modules=_CHECKED_BY)


def _bench(turn: Turn) -> None:
    """The bench's group "device": as many repeats as the time allows."""
    scale = 0.1 if turn.device.is_simulated else 1.0
    options = Options(1 if turn.device.is_simulated else REPEATS, scale)
    run = Run(dict(turn.machine), {"groups": ["device"], **vars(options)})

    def write() -> None:
        found = json.loads(json.dumps(run.to_json()))
        turn.write("bench.json", "bench", "bench", found, modules=_BENCHED_BY)

    try:
        DeviceGroupRun(turn.device, options, run, limit_s=turn.seconds).measure(_Bar(turn, write))
    finally:
        write()
    for figure in figures(run.workloads):
        spread = figure.spread
        wanted = f", wanted {figure.wanted}: {figure.verdict}" if figure.wanted else ""
        turn.said(
            f"  {figure.name}, {figure.workload}: {spread.median:.3g} "
            f"({spread.low:.3g} to {spread.high:.3g}){wanted}"
        )
    for name, error in run.failures.items():
        turn.index.failures[f"bench: {name}"] = error


class _Bar:
    """Stands where the bench has a progress bar: at each step, writes what there is so far."""

    def __init__(self, turn: Turn, write: Callable[[], None]) -> None:
        self._turn, self._write = turn, write

    def set_description(self, text: str, refresh: bool) -> None:
        pass

    def update(self) -> None:
        self._turn.look_for_ctrl_c()
        self._write()


def _trace(turn: Turn) -> None:
    """An epoch through a Preloader, for Perfetto."""
    device, size = turn.device, size_for(turn.device)
    loader = labkit.DataLoader(
        images_of(size.batch_size), size.batch_size, num_workers=size.workers
    )
    with labkit.trace() as trace, running(labkit.Preloader(loader, device)) as batches:
        for _ in range(_TRACED_BATCHES):
            step(device, next(batches), _TRACED_STEP_S * size.part)
        device.synchronize()
    trace.save(turn.folder / "trace.json")
    turn.note("trace.json", "trace", "trace")


def _experiments(device: Device) -> Iterator[Job]:
    found = [
        (name, experiment, settings)
        for name, experiment in EXPERIMENTS.items()
        for settings in experiment.settings(device.is_simulated)
    ]
    for number, (name, experiment, settings) in enumerate(found):
        said = ", ".join(f"{key}={value}" for key, value in settings.items())
        job = f"{name} ({said})" if said else name
        run = functools.partial(_experiment, job, name, experiment, settings, number)
        yield Job(job, _EXPERIMENTS / len(found), run)


def _experiment(
    job: str,
    name: str,
    experiment: Experiment,
    settings: Mapping[str, Any],
    number: int,
    turn: Turn,
) -> None:
    """Run it; of one that is ended before its end, what there was until then."""
    latest: list[Result] = []
    file = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") + f"-{number}.json"

    def write(result: Result) -> None:
        modules = sorted(with_imports(experiment.run.__module__))
        found = json.loads(result.to_json())
        turn.write(file, "experiment", name, found, experiment.full(settings), modules)

    try:
        result = experiment.run(
            turn.device,
            **settings,
            seconds=_OF_ITS_TIME * turn.seconds,
            so_far=latest.append,
            cancel=turn.cancel,
        )
    except (Cancelled, KeyboardInterrupt) as end:
        if latest:
            note = "It was ended before it had all repeats."
            write(dataclasses.replace(latest[-1], notes=(*latest[-1].notes, note)))
        if isinstance(end, KeyboardInterrupt):
            raise
        turn.index.left_out[job] = "it took more than its time"
        return
    write(result)
