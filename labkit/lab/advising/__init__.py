"""Bring your own dataset: `labkit.lab.advise` says what holds its loading back, and what to change.

    advice = labkit.lab.advise(dataset)
    print(advice.as_text())

Each advice was tried and measured on this machine before it is given, in turns with the setting
that it would replace, and what did not help is told, too. `python -m labkit advise module:dataset`
does the same in a terminal, and `labkit.lab.panels.advise(dataset)` with a button.

- `subject`: the dataset and its loader; `named`: found by the name on a command line.
- `session`: the process in which all that is the user's runs, and which `orphaned` ends if this one
  dies; `investigation`: what is done there, written down in a `journal`.
- `probe`, `tracing`, `layers`: what it is like, and what holds it back.
- `setting`, `candidates`, `collates`, `consumer`, `timing`, `trials`: what is tried, and how.
- `findings`, `wording`, `drawing`, `advice`, `page`: what is said.
- `command`: the command.

Before it: `labkit.lab.experiments`, which measures; `explain`, which judges; `doctor`, the limits.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from labkit.lab.advising import session
from labkit.lab.advising.advice import Advice
from labkit.lab.advising.findings import Findings
from labkit.lab.advising.investigation import investigate
from labkit.lab.advising.journal import Options
from labkit.lab.advising.payload import payload_of
from labkit.lab.advising.subject import NoAdvice, Subject, subject_of
from labkit.lab.doctor.limits import read_limits
from labkit.lab.experiments.measuring import Cancelled

__all__ = ["SECONDS", "Advice", "NoAdvice", "advise", "find_out", "memory_allowed"]

SECONDS = 60.0
"""For all of it, about."""

_SILENT_SECONDS = 60.0  # without a word: a single sample may take so long
_ASSUMED_MEMORY = 2**30  # available, where the system does not tell
_PICKLED_AT_MOST = 2**30  # bytes: more is forked, and not brought to another process

Progress = Callable[[float, str], None]
"""Called with the part that is done, 0 to 1, and what runs now."""


def advise(
    data: Any,
    *,
    collate_fn: Callable[[Any], Any] | None = None,
    batch_size: int | None = None,
    step_seconds: float = 0.0,
    seconds: float = SECONDS,
    memory_bytes: int | None = None,
    device: str | None = None,
    progress: Progress | None = None,
    so_far: Callable[[Advice], None] | None = None,
    cancel: threading.Event | None = None,
) -> Advice:
    """Find out what holds a dataset's loading back, and which of a loader's arguments to change.

    Nothing is done to the dataset given: all runs on a copy, in a process of its own.

    Args:
        data: a dataset, map-style or iterable, or PyTorch's or labkit's DataLoader, whose arguments
            are what the others are compared with.
        collate_fn: makes a batch of a list of samples; None for the loader's, or the default.
        batch_size: of a dataset that comes without a loader; None for 32.
        step_seconds: that your training step takes for a batch. 0: only loading is looked at.
        seconds: for all of it, about.
        memory_bytes: that all batches alive at once may take; None for a quarter of what is
            available.
        device: where batches are wanted: PyTorch's name, "cpu", or "simulated" for a simulated one;
            None for the accelerator, if there is one.
        progress: called with the part done and what runs now, in this thread.
        so_far: called with the advice that there is, as it grows, in this thread.
        cancel: once it is set, all stops.

    Raises:
        NoAdvice: `data` is no dataset, or nothing can be loaded from it; says what to do about it.
        Cancelled, KeyboardInterrupt: it was stopped; nothing is left running, and what was found
            was told to `so_far`.
    """
    subject = subject_of(data, collate_fn, batch_size)
    return find_out(
        functools.partial(_given, subject),
        step_seconds=step_seconds,
        seconds=seconds,
        memory_bytes=memory_bytes,
        device=device,
        progress=progress,
        so_far=so_far,
        cancel=cancel,
    )


def _given(subject: Subject) -> Subject:
    return subject


def find_out(
    make_subject: Callable[[], Subject],
    *,
    forks: bool = False,
    step_seconds: float = 0.0,
    seconds: float = SECONDS,
    memory_bytes: int | None = None,
    device: str | None = None,
    progress: Progress | None = None,
    so_far: Callable[[Advice], None] | None = None,
    cancel: threading.Event | None = None,
) -> Advice:
    """As `advise`, of what `make_subject` gives in the other process.

    Args:
        make_subject: called there.
        forks: whether this process may be forked: it has no thread, and PyTorch has not computed.
        step_seconds, seconds, memory_bytes, device, progress, so_far, cancel: as there.
    """
    options = _options(step_seconds, seconds, memory_bytes, device)
    payload, threads = None, torch.get_num_threads()
    if not forks:
        found = payload_of(investigate, (make_subject, options), _pickled_at_most(options))
        if isinstance(found, bytes):
            payload = found
        else:
            options, threads = replace(options, why_forked=found), 1
    listener = _Listener(progress, so_far)
    ended = session.run(
        investigate,
        make_subject,
        options,
        payload=payload,
        threads=threads,
        told=listener.told,
        silent_seconds=max(_SILENT_SECONDS, options.seconds),
        cancel=cancel,
    )
    return listener.advice_after(ended)


def _options(
    step_seconds: float, seconds: float, memory_bytes: int | None, device: str | None
) -> Options:
    if not 0 <= step_seconds < float("inf"):
        raise NoAdvice(f"step_seconds is 0 or more, but got {step_seconds!r}")
    if not 0 < seconds < float("inf"):
        raise NoAdvice(f"seconds is more than 0, but got {seconds!r}: write for instance 60")
    if memory_bytes is not None and memory_bytes < 1:
        raise NoAdvice(f"memory_bytes is 1 or more, but got {memory_bytes!r}")
    return Options(seconds, memory_bytes or memory_allowed(), step_seconds, device)


def memory_allowed() -> int:
    """What batches may take if nothing is said: a quarter of the memory that is available."""
    return (read_limits().memory_available or _ASSUMED_MEMORY) // 4


def _pickled_at_most(options: Options) -> int:
    return min(_PICKLED_AT_MOST, options.memory_bytes)


class _Listener:
    """Hears what the other process tells, and makes advice of it."""

    def __init__(self, progress: Progress | None, so_far: Callable[[Advice], None] | None) -> None:
        self._progress, self._so_far = progress, so_far
        self._findings = Findings()
        self._why_not, self._doing = "", ""

    def told(self, message: tuple[str, Any]) -> None:
        kind, value = message
        if kind == "progress":
            self._doing = value[1]
            if self._progress is not None:
                self._progress(*value)
        elif kind == "no advice":
            self._why_not = value
        elif kind == "found":
            for name, found in value.items():
                setattr(self._findings, name, found)
            if self._so_far is not None and self._findings.probe is not None:
                self._so_far(Advice(self._findings))

    def advice_after(self, ended: session.Ended) -> Advice:
        """What came of it.

        Raises:
            NoAdvice, Cancelled: nothing did, or it was stopped.
        """
        findings = self._findings
        if ended.how == "cancelled":
            raise Cancelled("the advice was cancelled")
        if self._why_not:
            raise NoAdvice(self._why_not + _printed(ended))
        if ended.how != "finished":
            doing = f"\nIt was at: {self._doing}." if self._doing else ""
            raise NoAdvice(_how_it_ended(ended) + doing + _printed(ended))
        if ended.printed_bytes:
            first = ended.printed.strip().split("\n")[0][:80]
            findings.notes.append(
                f"Loading printed {ended.printed_bytes:,} bytes, beginning with {first!r}."
            )
        if self._progress is not None:
            self._progress(1.0, "done")
        return Advice(findings)


def _how_it_ended(ended: session.Ended) -> str:
    if ended.how == "silent":
        at = "".join(f"\n  {place}" for place in ended.stack)
        return (
            "nothing came from the process that loads for a minute or more, so it was ended. "
            "Either a sample takes as long, or it waits for something that does not come (a lock "
            f"that was held while a process was forked, a network).{at and ' It stood here:' + at}"
        )
    if ended.how == "died":
        return (
            f"the process in which the dataset was loaded died (exit code {ended.exit_code}; a "
            "negative one is the number of a signal: -9 often means that memory ended, -11 a crash "
            "in native code)"
        )
    return f"loading failed:\n{ended.error}"


def _printed(ended: session.Ended) -> str:
    text = ended.printed.strip()
    return f"\nIt printed:\n{text[-1000:]}" if text else ""
