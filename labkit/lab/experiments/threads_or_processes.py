"""Loaders that differ in who does the work: the main process, its threads, or worker processes.

Before it: `measuring`; `threaded` and `labkit.DataLoader`, the loaders; `decoding`, the work. After
it: `panels`, and notebook 07.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch.utils.data import Dataset

import labkit
from labkit.lab.decoding import JpegImages, TextRecords
from labkit.lab.experiments.beside import several_threads
from labkit.lab.experiments.measuring import Progress, Where, measure
from labkit.lab.resources import running
from labkit.lab.results import DEFAULT_REPEATS, Result
from labkit.lab.threaded import ThreadLoader

__all__ = ["DATASETS", "QUANTITIES", "WHO", "threads_or_processes"]

DATASETS: dict[str, Callable[[int], Dataset[Any]]] = {
    "decode a JPEG": JpegImages,
    "parse text in Python": TextRecords,
}
"""By the work of a sample; called with the number of samples."""

QUANTITIES = ("time a batch", "time to the first batch")

_BATCH_SIZE = 8
_BATCHES_A_WORKER = 5  # timed, in steady state
_WARMUP_A_WORKER = 3  # more than are handed out ahead
_LIMIT_S = 60.0


def _in_the_main_process(dataset: Dataset[Any], workers: int, method: str) -> Iterable[Any]:
    return labkit.DataLoader(dataset, batch_size=_BATCH_SIZE)


def _threads(dataset: Dataset[Any], workers: int, method: str) -> Iterable[Any]:
    return ThreadLoader(dataset, _BATCH_SIZE, workers)


def _processes(dataset: Dataset[Any], workers: int, method: str) -> Iterable[Any]:
    return labkit.DataLoader(
        dataset, batch_size=_BATCH_SIZE, num_workers=workers, multiprocessing_context=method
    )


WHO = {
    "main process": _in_the_main_process,
    "threads": _threads,
    "processes": _processes,
}
"""By who fetches and collates; called with a dataset, the number of workers, a start method."""


def threads_or_processes(
    work: str = "decode a JPEG",
    *,
    workers: int = 2,
    quantity: str = "time a batch",
    step_ms: float = 0.0,
    start_method: str = "fork",
    repeats: int = DEFAULT_REPEATS,
    seconds: float = 18.0,
    where: Where = "one child",
    progress: Progress | None = None,
    so_far: Callable[[Result], None] | None = None,
    cancel: threading.Event | None = None,
) -> Result:
    """Compare `WHO` of one dataset.

    One call of torch uses one thread, as it does in a worker process, whoever makes it.

    Args:
        work: of a sample, one of `DATASETS`.
        workers: threads, or processes.
        quantity: one of `QUANTITIES`.
        step_ms: of Python code in the main thread for each batch, as a training loop has.
        start_method: of the processes.
        where: "one child", whose GIL nobody else wants; "here" if this process has nothing to do.
        repeats, seconds, progress, so_far, cancel: as in `labkit.lab.experiments.measure`.

    Raises:
        ValueError: there is no such work or quantity, or a number is too small.
        Cancelled, TookTooLong: as `labkit.lab.experiments.measure`.
    """
    for name, known in ((work, DATASETS), (quantity, QUANTITIES)):
        if name not in known:
            raise ValueError(f"unknown: {name!r}. Write one of {', '.join(map(repr, known))}")
    if workers < 1 or step_ms < 0:
        raise ValueError(
            f"workers is 1 or more and step_ms 0 or more, but got {workers!r} and {step_ms!r}"
        )
    common = {"work": work, "workers": workers, "step_ms": step_ms, "start_method": start_method}
    return measure(
        {loader: {"loader": loader} for loader in WHO},
        _batch_ms if quantity == QUANTITIES[0] else _first_batch_ms,
        question=f"Who should {work} for each sample?",
        quantity=quantity,
        common=common,
        repeats=repeats,
        where=where,
        limit_s=_LIMIT_S,
        seconds=seconds,
        progress=progress,
        so_far=so_far,
        cancel=cancel,
    )


def _batch_ms(loader: str, work: str, workers: int, step_ms: float, start_method: str) -> float:
    """Milliseconds a batch in steady state, the step included."""
    warmup, timed = _WARMUP_A_WORKER * workers, _BATCHES_A_WORKER * workers
    dataset = DATASETS[work](_BATCH_SIZE * (warmup + timed + 4 * workers))
    stepping = _stepping(WHO[loader](dataset, workers, start_method), step_ms)
    with several_threads(1), running(stepping) as batches:
        for _ in range(warmup):
            next(batches)
        started = time.perf_counter()
        for _ in range(timed):
            next(batches)
        return (time.perf_counter() - started) / timed * 1e3


def _stepping(loader: Iterable[Any], step_ms: float) -> Iterator[Any]:
    """The batches; after each one this thread runs Python code for so long, by its own clock."""
    with running(loader) as batches:
        for batch in batches:
            yield batch
            end = time.thread_time() + step_ms / 1e3
            while time.thread_time() < end:
                pass


def _first_batch_ms(
    loader: str, work: str, workers: int, step_ms: float, start_method: str
) -> float:
    """Milliseconds from `iter(loader)` to the first batch."""
    dataset = DATASETS[work](_BATCH_SIZE * 2 * workers)
    with several_threads(1):  # which looks for the libraries, milliseconds
        started = time.perf_counter()
        with running(WHO[loader](dataset, workers, start_method)) as batches:
            next(batches)
            return (time.perf_counter() - started) * 1e3
