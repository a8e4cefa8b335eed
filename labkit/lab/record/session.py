"""Runs the jobs of a recording one after the other, each with its share of the time that is left.

Time that one leaves goes to those that follow. What is done is on the disk, and of checks and the
bench what they have so far: whatever ends this process loses no more than an experiment.

Before it: `jobs`. After it: `labkit.lab.recorded`, which reads what was written.
"""

from __future__ import annotations

import faulthandler
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import labkit
from labkit.device import Device
from labkit.lab import MissingPackage, need
from labkit.lab.on_device.place import here
from labkit.lab.recorded.index import Entry, Index
from labkit.lab.recorded.recording import Recording
from labkit.lab.recorded.sources import hashes, loader_modules

__all__ = ["Job", "Session", "Turn"]

_LEAST_SECONDS = 0.5  # with less, a job is left out
_GRACE_SECONDS = 5.0  # and half of its share: so long a job may overrun it
_STDERR = 2  # the descriptor: `sys.stderr` may be no file
_HARD_SECONDS = 25.0  # beyond all of it, nothing goes on


@dataclass(frozen=True)
class Job:
    """One thing to run.

    Attributes:
        name: unlike the others' names.
        share: of the time, against the other jobs' shares.
        run: does it, and writes what it found.
    """

    name: str
    share: float
    run: Callable[[Turn], None]


@dataclass
class Turn:
    """What a job is given.

    Attributes:
        device: on which it works.
        seconds: that it may take.
        folder: for files.
        machine: for recordings.
        index: of what is written; `write` adds to it.
        said: tells whoever waits.
        cancel: set when it takes far too long, or after Ctrl-C.
        interrupted: set by Ctrl-C, also by one that Python let fall (in a finalizer, at a fork).
    """

    device: Device
    seconds: float
    folder: Path
    machine: Mapping[str, Any]
    index: Index
    said: Callable[[str], None]
    interrupted: threading.Event
    cancel: threading.Event = field(default_factory=threading.Event)

    def look_for_ctrl_c(self) -> None:
        """Raise KeyboardInterrupt after Ctrl-C."""
        if self.interrupted.is_set():
            raise KeyboardInterrupt

    def write(
        self,
        file: str,
        kind: str,
        name: str,
        found: dict[str, Any],
        settings: Mapping[str, Any] | None = None,
        modules: Sequence[str] = (),
    ) -> None:
        """Write a recording, checked against the schema, and note it in the index. A later one for
        the same file replaces it.
        """
        simulated = self.device.is_simulated
        recording = Recording(
            kind=kind,
            name=name,
            settings=dict(settings or {}),
            simulated=simulated,
            machine=dict(self.machine),
            modules=hashes([*modules, *loader_modules(simulated)]),
            found=found,
        )
        recording.write(self.folder / file)
        self.note(file, kind, name, recording.settings)

    def note(
        self, file: str, kind: str, name: str, settings: Mapping[str, Any] | None = None
    ) -> None:
        """Note a file in the index, and write that."""
        entry = Entry(file, kind, name, dict(settings or {}))
        if entry not in self.index.entries:
            self.index.entries.append(entry)
        self.index.write(self.folder)


class Session:
    """One recording.

    Args:
        device: that is measured.
        folder: to write to.
        seconds: for all jobs together.
        commit: of this copy; None to ask git.
    """

    def __init__(
        self, device: Device, folder: Path, seconds: float, commit: str | None = None
    ) -> None:
        self._started = time.monotonic()
        self._device, self._folder, self._seconds = device, folder, seconds
        machine = {**here(device), "commit": commit or _commit()}
        self._index = Index(machine, device.is_simulated, allowed_s=seconds)
        self._interrupted = threading.Event()

    def run(self, jobs: Sequence[Job]) -> Index:
        """Run them; gives what was written, left out, and failed."""
        index = self._index
        ahead = [job.name for job in jobs]
        self._write_index()
        hard = self._seconds + _HARD_SECONDS
        faulthandler.dump_traceback_later(hard, exit=True, file=_STDERR)
        try:
            with _noting_ctrl_c(self._interrupted), _progress(jobs) as (turns, said):
                left = sum(job.share for job in jobs)
                for job in turns:
                    seconds = self._seconds - self._passed()
                    self._run_one(job, seconds * job.share / left, said)
                    left -= job.share
                    ahead.remove(job.name)
                    self._write_index()
        except KeyboardInterrupt:
            index.interrupted = True
            index.left_out.update(dict.fromkeys(ahead, "Ctrl-C came before its end"))
        finally:
            faulthandler.cancel_dump_traceback_later()
            self._write_index()
        return index

    def _passed(self) -> float:
        return time.monotonic() - self._started

    def _write_index(self) -> None:
        self._index.wall_s = self._passed()
        self._index.write(self._folder)

    def _run_one(self, job: Job, seconds: float, said: Callable[[str], None]) -> None:
        index = self._index
        if seconds < _LEAST_SECONDS:
            index.left_out[job.name] = "no time was left"
            said(f"{job.name}: left out, no time was left")
            return
        turn = Turn(
            self._device, seconds, self._folder, index.machine, index, said, self._interrupted
        )
        alarm = threading.Timer(1.5 * seconds + _GRACE_SECONDS, turn.cancel.set)
        alarm.daemon = True
        alarm.start()
        began = time.monotonic()
        try:
            job.run(turn)
        except Exception as error:
            turn.look_for_ctrl_c()
            index.failures[job.name] = f"{type(error).__name__}: {error}"
            said(f"{job.name}: failed: {index.failures[job.name].splitlines()[0]}")
        finally:
            alarm.cancel()
            alarm.join()
        turn.look_for_ctrl_c()
        said(f"{job.name}: {time.monotonic() - began:.1f} s of {seconds:.0f} s")


@contextmanager
def _noting_ctrl_c(interrupted: threading.Event) -> Iterator[None]:
    """Note SIGINT beside what else it does: Python drops what is raised in a callback."""

    def note(number: int, frame: Any) -> None:
        interrupted.set()
        signal.default_int_handler(number, frame)

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread hears signals
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _progress(jobs: Sequence[Job]) -> Iterator[tuple[Iterator[Job], Callable[[str], None]]]:
    """The jobs in turn and a way to say something: with tqdm where it is installed."""
    try:
        tqdm = need("tqdm").tqdm
    except MissingPackage:
        yield iter(jobs), lambda text: print(text, file=sys.stderr, flush=True)
        return
    tqdm.monitor_interval = 0  # no thread in a process that is about to fork
    tqdm.set_lock(threading.RLock())  # and no semaphore that stays with the process
    with tqdm(jobs, file=sys.stderr, unit="job", disable=None) as bar:
        yield iter(bar), lambda text: tqdm.write(text, file=sys.stderr)


def _commit() -> str | None:
    """The commit of this copy of labkit; None where git does not know the copy."""
    folder = Path(labkit.__file__).parent
    try:
        _git(folder, "ls-files", "--error-unmatch", "__init__.py")
        commit = _git(folder, "rev-parse", "--short=12", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--", ".")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit} with changes" if changed else commit


def _git(folder: Path, *arguments: str) -> str:
    asked = ["git", "-C", str(folder), *arguments]
    found = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=True)
    return found.stdout.strip()
