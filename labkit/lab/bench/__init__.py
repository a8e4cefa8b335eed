"""`python -m labkit bench`: this loader against PyTorch's, and against the limit, in one run.

The sides take turns, repeat by repeat, each with a fresh loader and default settings: A B, B A,
A B, … In each repeat the loader is started and warmed up, and only then is a stretch of batches
timed. What else a loader costs (memory, page faults, descriptors, message size) is measured
afterwards, on loaders that nobody times.

The group "device" brings batches to an accelerator; where there is none, it is left out.

Before it: `workloads`; `group_run` and `to_device`, which measure. After it: `results`, `tables`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from labkit.device import Device, find_device
from labkit.lab import MissingPackage, need
from labkit.lab.bench import to_device
from labkit.lab.bench.group_run import GroupRun
from labkit.lab.bench.options import REPEATS, Options
from labkit.lab.bench.results import Run
from labkit.lab.bench.sides import LABKIT, TORCH, find_peers
from labkit.lab.bench.tables import table
from labkit.lab.bench.workloads import GROUPS, Group
from labkit.lab.machine import machine
from labkit.lab.on_device.place import SLOW_MOTION
from labkit.simulated import SimulatedDevice

__all__ = ["Options", "bench", "main"]

_QUICK_REPEATS = 3
_QUICK_SCALE = 0.1
_DEVICE = "device"
_SIMULATED = "simulated"
_NAMES = [*GROUPS, _DEVICE]
_NO_DEVICE = "no accelerator is found here; `--device simulated` tries it on a simulated one"
_INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns the exit code: 0, 1 if a loader failed, 130 after Ctrl-C."""
    parsed = _parse(arguments)
    repeats = parsed.repeats or (_QUICK_REPEATS if parsed.quick else REPEATS)
    options = Options(repeats, _QUICK_SCALE if parsed.quick else 1.0, parsed.peers)
    groups = [GROUPS[name] for name in parsed.only if name != _DEVICE]
    try:
        run = bench(groups, options, progress=True, device=_device_wanted(parsed))
        if _DEVICE in parsed.only and run.settings["device"] is None:
            run.notes[_DEVICE] = _NO_DEVICE
    except MissingPackage as error:
        print(error, file=sys.stderr)
        return 2
    print(table(run))
    if parsed.json is not None:
        parsed.json.write_text(json.dumps(run.to_json(), indent=1, ensure_ascii=False) + "\n")
    if run.interrupted:
        return _INTERRUPTED
    return 1 if run.failures else 0


def _device_wanted(parsed: argparse.Namespace) -> Device | None:
    """Where the group "device" is measured; None to leave it out."""
    if _DEVICE not in parsed.only:
        return None
    if parsed.device == _SIMULATED:
        return SimulatedDevice(slow_motion=SLOW_MOTION)
    return find_device()


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m labkit bench",
        description="Measure labkit.DataLoader against torch.utils.data.DataLoader on this "
        "machine: time a batch, memory, page faults, descriptors, message size. Ctrl-C ends it "
        "and prints what there is so far.",
    )
    parser.add_argument(
        "--only",
        type=_group_names,
        default=_NAMES,
        metavar="NAMES",
        help=f"workloads to measure, separated by commas, of: {', '.join(_NAMES)}; default: all",
    )
    parser.add_argument(
        "--repeats", type=_positive, metavar="N", help=f"of each side; default: {REPEATS}"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"a tenth of the time, and {_QUICK_REPEATS} repeats: to try it, not to conclude",
    )
    parser.add_argument(
        "--peers",
        action="store_true",
        help="also torchdata's StatefulDataLoader and SPDL, if they are installed",
    )
    parser.add_argument(
        "--device",
        choices=[_SIMULATED],
        help='measure the group "device" on a simulated device: small batches, in slow motion',
    )
    parser.add_argument("--json", type=_file, metavar="FILE", help="write every repeat to FILE")
    return parser.parse_args(arguments)


def _group_names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in _NAMES:
            known = ", ".join(_NAMES)
            raise argparse.ArgumentTypeError(f"unknown workload {name!r}: there are {known}")
    return names


def _file(text: str) -> Path:
    path = Path(text)
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text!r} is no file that can be written")
    return path


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def bench(
    groups: Sequence[Group],
    options: Options,
    progress: bool = False,
    device: Device | None = None,
) -> Run:
    """Measure these groups of workloads; an interrupt (Ctrl-C) ends it early.

    Args:
        groups: on the CPU.
        options: how to measure.
        progress: show it.
        device: to which the group "device" brings its batches; None to leave that out.

    Raises:
        MissingPackage: what every workload needs is not installed.
    """
    names = [group.name for group in groups] + ([_DEVICE] if device is not None else [])
    where = None if device is None else device.name
    run = Run(machine(), {"groups": names, "device": where, **vars(options)})
    sides = [LABKIT, TORCH]
    if options.peers:
        peers, missing = find_peers()
        sides += peers
        run.notes.update(missing)
    started = time.perf_counter()
    runs: list[GroupRun | to_device.DeviceGroupRun] = [
        GroupRun(group, options, sides, run) for group in groups
    ]
    if device is not None:
        runs.append(to_device.DeviceGroupRun(device, options, run))
    with _progress(sum(r.steps for r in runs), progress) as bar, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than cores
        warnings.filterwarnings("ignore", ".*multi-threaded", DeprecationWarning)  # and forks
        try:
            for group_run in runs:
                group_run.measure(bar)
        except KeyboardInterrupt:
            run.interrupted = True
    run.wall_s = time.perf_counter() - started
    return run


@contextmanager
def _progress(steps: int, wanted: bool) -> Iterator[Any]:
    tqdm = need("tqdm").tqdm
    tqdm.monitor_interval = 0  # no thread in a process that is about to fork
    tqdm.set_lock(threading.RLock())  # and no semaphore that stays with the process
    with tqdm(total=steps, file=sys.stderr, disable=not wanted, unit=" measured") as bar:
        yield bar
