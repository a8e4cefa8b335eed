"""What a few samples and a batch are like: bytes, time, core or wait, made in the main process.

Nothing else runs before a batch's bytes are known, so that no setting takes more memory than it
may.

Before it: `subject`. After it: `investigation`; `candidates`, which is bound by it.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import labkit
from labkit.errors import CollateError, UncollatableType
from labkit.lab.advising.contents import bytes_of, kinds_of
from labkit.lab.advising.findings import Probe
from labkit.lab.advising.setting import LEFT_BEHIND, Setting
from labkit.lab.advising.subject import NoAdvice, Subject

__all__ = ["place_of", "probe"]

_SAMPLES = 64  # at most, to look at one by one
_KINDS = 6  # parts of a batch that are told
_TICK_SECONDS = 0.001
_LEAST_WAIT = 0.0002  # seconds a sample: less is no disk, but the machine's own noise
_SCHEDSTAT = Path("/proc/thread-self/schedstat")


def probe(subject: Subject, memory_bytes: int, seconds: float) -> Probe:
    """Make some samples, then one batch.

    Args:
        subject: whose samples.
        memory_bytes: that all batches which are alive at once may take.
        seconds: after which no further sample is made.

    Raises:
        NoAdvice: the dataset raises, no batch can be made of its samples, or a batch is too large.
    """
    indices = None if subject.is_iterable else _first_indices(subject)
    samples = _samples(subject, indices, seconds)
    batch = _batch(subject, indices)
    nbytes = bytes_of(batch)
    if nbytes * (1 + LEFT_BEHIND) > memory_bytes:
        raise NoAdvice(
            f"a batch takes {nbytes / 1e6:,.0f} MB, and with a worker {1 + LEFT_BEHIND} of them "
            f"are alive at once, which is more than the {memory_bytes / 1e6:,.0f} MB that they may "
            "take: make batches smaller, or allow more (memory_bytes=…, --memory-mb)"
        )
    return Probe(
        batch_bytes=nbytes,
        batch_samples=_size(subject, indices),
        sample_seconds=statistics.median(samples.times),
        core_share=samples.core_share,
        queued_share=samples.queued_share,
        lock_seconds=samples.lock_seconds,
        batches=_epoch_batches(subject),
        kinds=tuple(itertools.islice(kinds_of(batch), _KINDS)),
    )


def _first_indices(subject: Subject) -> list[Any]:
    """Those of a batch, or of some samples that are not batched."""
    loader = subject.loader(Setting())
    if loader.batch_sampler is None:
        return list(itertools.islice(loader.sampler, _SAMPLES))
    for batch in loader.batch_sampler:
        return list(batch)
    raise NoAdvice(
        "no batch is full: the dataset has fewer samples than batch_size, and drop_last leaves "
        "them out"
    )


@dataclass
class _Samples:
    """Of each sample its time; a core's work on it; for how long it wanted a core and had none."""

    times: list[float] = field(default_factory=list)
    works: list[float] = field(default_factory=list)
    queued: list[float] = field(default_factory=list)
    lock_seconds: float = 0.0

    @property
    def queued_share(self) -> float:
        return min(1.0, sum(self.queued) / sum(self.times))

    @property
    def core_share(self) -> float:
        """Of the time in which it had a core, or wanted none."""
        own = sum(self.times) - sum(self.queued)
        waited = own - sum(self.works)
        return 1.0 if waited < _LEAST_WAIT * len(self.times) else max(0.0, 1 - waited / own)


def _samples(subject: Subject, indices: list[Any] | None, seconds: float) -> _Samples:
    """Make some, one by one."""
    found, taken = _Samples(), _one_by_one(subject.dataset, indices)
    end = time.monotonic() + seconds
    with _ticking() as ticks:
        while len(found.times) < _SAMPLES and (not found.times or time.monotonic() < end):
            began, worked, queued = time.perf_counter(), time.process_time(), _queued_seconds()
            try:
                next(taken)
            except StopIteration:
                break
            found.times.append(time.perf_counter() - began)
            found.works.append(time.process_time() - worked)
            found.queued.append(_queued_seconds() - queued)
    if not found.times:
        raise NoAdvice("the dataset gave no sample: an epoch of it has ended at once")
    found.lock_seconds = ticks.longest_hold(max(found.works))
    return found


def _queued_seconds() -> float:
    """For how long this thread has wanted a core and had none (proc(5), schedstat): without that a
    busy machine would look like a slow disk. 0 where the system does not tell.
    """
    try:
        return int(_SCHEDSTAT.read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _one_by_one(dataset: Any, indices: list[Any] | None) -> Iterator[Any]:
    if indices is None:
        try:
            samples = iter(dataset)
        except Exception as error:
            raise NoAdvice(_raised(error, "iter(dataset)")) from error
        for number in itertools.count():
            try:
                next(samples)
            except StopIteration:
                return
            except Exception as error:
                raise NoAdvice(_raised(error, f"sample {number} of an iteration")) from error
            yield None
    for index in indices or ():
        try:
            dataset[index]
        except Exception as error:
            raise NoAdvice(_raised(error, f"index {index!r}")) from error
        yield None


def _raised(error: Exception, what: str) -> str:
    what = f"{what}: {error}" if str(error) else what
    return (
        f"the dataset raised {type(error).__name__} for {what}{place_of(error)}. Mend that sample, "
        "or leave it out"
    )


def place_of(error: BaseException) -> str:
    """Where it was raised, in brackets."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def _batch(subject: Subject, indices: list[Any] | None) -> Any:
    loader = subject.loader(Setting())
    if indices is not None and loader.batch_sampler is not None:  # the same samples once more
        collate_fn = subject.fixed.get("collate_fn")
        loader = labkit.DataLoader(subject.dataset, batch_sampler=[indices], collate_fn=collate_fn)
    try:
        return next(iter(loader))
    except StopIteration:
        raise NoAdvice("no batch is full: drop_last leaves out all that there is") from None
    except (CollateError, UncollatableType) as error:
        raise NoAdvice(
            f"the samples do not make a batch: {error}\nGive the function that makes one: "
            "collate_fn=…, or --collate module:function (for instance one that pads, or `list` "
            "for batches that are lists: --collate builtins:list)."
        ) from error
    except Exception as error:
        who = "collate_fn" if subject.has_own_collate else "dataset"
        raise NoAdvice(_raised(error, "the first batch").replace("dataset", who, 1)) from error


def _size(subject: Subject, indices: list[Any] | None) -> int:
    if indices is not None and subject.fixed.get("batch_size", 1) is not None:
        return len(indices)
    return int(subject.fixed.get("batch_size") or 1)


def _epoch_batches(subject: Subject) -> int | None:
    try:
        return len(subject.loader(Setting()))
    except (TypeError, NotImplementedError):
        return None


class _Ticks:
    """When another thread had its turn."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.is_set():
            self.at.append(time.monotonic())
            time.sleep(_TICK_SECONDS)

    def longest_hold(self, longest_work: float) -> float:
        """For how long it had none, at most; no longer than a sample worked."""
        gaps = [b - a - _TICK_SECONDS for a, b in itertools.pairwise(self.at)]
        return max(0.0, min(max(gaps, default=0.0), longest_work))


@contextmanager
def _ticking() -> Iterator[_Ticks]:
    ticks = _Ticks()
    thread = threading.Thread(target=ticks.run, name="ticks", daemon=True)
    thread.start()
    try:
        yield ticks
    finally:
        ticks.done.set()
        thread.join()
