"""`python -m labkit record --out FOLDER`: measure on this machine's accelerator, for others to see.

It runs, within a time that is kept: a self-check of what only a real device can show; whether all
values are right and memory stays flat; the device bench; a trace; and the experiments of the
notebooks. What each found is written as soon as it is done, as JSON with its machine, its versions
and the hashes of the modules measured (`labkit.lab.recorded` reads it).

It needs torch, numpy and cloudpickle, and nothing else of the lab.

- `jobs.py`: what is run, and what each writes.
- `session.py`: runs them in turn, each with its share of the time.
- `self_check.py`, `correctness.py`: what is checked; `check.py`: what came of it.
- `loads.py`: what is loaded for that.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from labkit.device import find_device
from labkit.lab.on_device.place import SLOW_MOTION
from labkit.lab.record.jobs import jobs_for
from labkit.lab.record.session import Session
from labkit.lab.recorded import Index
from labkit.simulated import SimulatedDevice

__all__ = ["main"]

SECONDS = 330.0
"""In all: under six minutes, the start of Python included."""

_LEAST_SECONDS = 1.0
_INTERRUPTED = 130  # 128 + SIGINT, as shells have it
_NO_DEVICE = """\
Nothing can be recorded: PyTorch {torch}, {built}, finds no accelerator on this machine.
Ways out: run it on a machine with an NVIDIA GPU, its driver and a CUDA build of PyTorch (labkit,
torch, numpy and cloudpickle are enough), or try it on a simulated device: python -m labkit record
--out FOLDER --simulated"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns the exit code: 0; 1 if something failed, or a check was not passed; 2
    without a device or with an unusable folder; 130 after Ctrl-C.
    """
    parsed = _parse(arguments)
    device = SimulatedDevice(slow_motion=SLOW_MOTION) if parsed.simulated else find_device()
    if device is None:
        cuda = torch.version.cuda
        built = "built without CUDA" if cuda is None else f"built for CUDA {cuda}"
        print(_NO_DEVICE.format(torch=torch.__version__, built=built), file=sys.stderr)
        return 2
    try:
        jobs = jobs_for(device, parsed.only)
        _make_ready(parsed.out)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        index = Session(device, parsed.out, parsed.seconds, parsed.commit).run(jobs)
    except OSError as error:  # a job's own are its failure: this is the index
        print(f"{parsed.out} can no longer be written to: {error}", file=sys.stderr)
        return 2
    print(_summary(index, parsed.out))
    if index.interrupted:
        return _INTERRUPTED
    return 1 if index.failures else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m labkit record",
        description="Run the experiments and the bench that need a GPU, check what only a GPU can "
        "show, and write all of it as JSON. Ctrl-C ends it and keeps what is done.",
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="a new or empty folder"
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=SECONDS,
        metavar="S",
        help=f"for all of it; default: {SECONDS:g}. What does not fit is left out, and named",
    )
    parser.add_argument(
        "--simulated",
        action="store_true",
        help="try it on a simulated device; what it writes counts as no recording",
    )
    parser.add_argument(
        "--only",
        type=lambda text: [name.strip() for name in text.split(",")],
        metavar="NAMES",
        help="jobs to run, separated by commas: words that their names begin with",
    )
    parser.add_argument(
        "--commit", metavar="ID", help="of this copy of labkit, where no git knows it"
    )
    return parser.parse_args(arguments)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not _LEAST_SECONDS <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds, of 1 or more")
    return seconds


def _make_ready(folder: Path) -> None:
    """Make the folder, if it is not there.

    Raises:
        ValueError: it cannot be written to, or has files already.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        has_files = any(folder.iterdir())
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"{folder} cannot be written to: {error.strerror}") from error
    if has_files:
        raise ValueError(f"{folder} is not empty: name a new folder, so that nothing is mixed up")


def _summary(index: Index, folder: Path) -> str:
    lines = [f"{len(index.entries)} files in {folder}, after {index.wall_s:.0f} s."]
    if index.interrupted:
        lines.append("Interrupted: what was done until then is kept.")
    for title, entries in (("Left out", index.left_out), ("Failed", index.failures)):
        lines += [f"{title}: {name}: {why}" for name, why in entries.items()]
    if index.simulated:
        lines.append("The device was simulated: this is a try, and no panel shows it.")
    return "\n".join(lines)
