"""How long a batch takes with a setting, and how long an epoch's first one.

A batch is timed in steady state: when the timing begins, the workers are as far ahead as they get.
Where epochs are so short that there is no steady state, whole epochs are timed, with their starts.

Before it: `setting`; `consumer`, the loop. After it: `investigation`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from labkit.lab.advising.consumer import Consumer
from labkit.lab.advising.setting import Setting
from labkit.lab.advising.subject import NoAdvice, Subject
from labkit.lab.resources import end_epoch

__all__ = ["Stretch", "batch_ms", "epochs", "first_batch_ms", "let_finish"]


@dataclass(frozen=True)
class Stretch:
    """What is timed in a repeat.

    Attributes:
        warmup, least: batches before, and timed at least, for each worker.
        seconds: timed at least.
        whole_epochs: from the beginning of an epoch to the end of one.
    """

    warmup: int = 4
    least: int = 6
    seconds: float = 0.1
    whole_epochs: bool = False

    def warmup_of(self, setting: Setting) -> int:
        """Batches before the timing; without workers nothing is ready in advance."""
        return self.warmup * setting.num_workers or 1

    def least_of(self, setting: Setting) -> int:
        """Batches that are timed at least."""
        return self.least * max(1, setting.num_workers)

    def batches(self, setting: Setting) -> int:
        """How many batches a repeat takes at least."""
        return self.warmup_of(setting) + self.least_of(setting)


def batch_ms(subject: Subject, setting: Setting, stretch: Stretch, consumer: Consumer) -> float:
    """Milliseconds a batch, with the consumer's step."""
    warmup, least = stretch.warmup_of(setting), stretch.least_of(setting)
    count, started, between = 0, None, True
    for is_end in epochs(subject, setting, consumer):
        now = time.perf_counter()
        if started is None:
            count += not is_end
            if count >= warmup and (is_end or not stretch.whole_epochs):
                started, count = now, 0
            continue
        count += not is_end
        between = is_end or not stretch.whole_epochs
        if between and count >= least and now - started >= stretch.seconds:
            return (now - started) / count * 1e3
    raise AssertionError("epochs do not end")


def first_batch_ms(
    subject: Subject, setting: Setting, stretch: Stretch, consumer: Consumer
) -> float:
    """Milliseconds from the beginning of a loader's second epoch to its first batch."""
    loader = subject.loader(setting)
    try:
        _first(loader, setting.persistent_workers)
        if setting.persistent_workers:
            let_finish(loader._advised, setting)
        started = time.perf_counter()
        _first(loader, keep=True)
        return (time.perf_counter() - started) * 1e3
    finally:
        _end(loader)


def _first(loader: Any, keep: bool) -> None:
    """Take an epoch's first batch; end the epoch's workers unless they are to be kept."""
    batches = iter(loader)
    next(batches, None)
    loader._advised = batches
    if not keep:
        _end_epoch(batches)


def let_finish(batches: Any, setting: Setting) -> None:
    """Let workers that stay make all that is under way, as at the end of an epoch: else they would
    do so in the next one first.
    """
    began = time.perf_counter()
    more = sum(1 for _ in islice(batches, setting.num_workers))
    if more == setting.num_workers:  # else the epoch has ended
        a_batch_each = time.perf_counter() - began
        time.sleep(a_batch_each * setting.depth / setting.num_workers)


def epochs(subject: Subject, setting: Setting, consumer: Consumer) -> Iterator[bool]:
    """Use batches, epoch after epoch: False after each batch, True at the end of an epoch."""
    loader = subject.loader(setting)
    batches: Any = None
    try:
        while True:
            batches, count = consumer.batches(loader, setting), 0
            for batch in batches:
                consumer.use(batch, setting)
                del batch
                count += 1
                yield False
            if not count:
                raise NoAdvice("the dataset gave no batch: an epoch of it has ended at once")
            yield True
    finally:
        _end_epoch(batches)
        _end(loader)


def _end_epoch(batches: Any) -> None:
    with suppress(Exception):  # a worker's error was told before, or the epoch is not wanted
        end_epoch(batches)


def _end(loader: Any) -> None:
    latest = getattr(loader, "_advised", getattr(loader, "_iterator", None))
    if latest is not None:
        _end_epoch(latest)
    if hasattr(loader, "close"):
        loader.close()
