"""The exercises of notebook 03: a worker's loop, sharding, the reorder buffer.

The loop has a module of its own, `checks_03_worker_loop`.
"""

from __future__ import annotations

import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

import labkit
from labkit.lab.exercises.checks_03_worker_loop import check_worker_loop
from labkit.lab.exercises.exercise import Exercise
from labkit.lab.exercises.trial import Trial

__all__ = ["EXERCISES"]


class _Signed(IterableDataset[tuple[int, Any]]):
    """Another dataset's samples, each with the worker that gave it (0 in the main process)."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        info = get_worker_info()
        worker = 0 if info is None else info.id
        return ((worker, sample) for sample in self._dataset)


def _shard(answer: Callable[[int], Any], trial: Trial) -> None:
    warnings.simplefilter("ignore")  # more workers than cores are meant
    for length, workers in ((10, 0), (10, 1), (10, 2), (10, 3), (7, 2), (2, 3), (0, 2)):
        trial.case(
            f"`Sharded({length})` in a DataLoader with num_workers={workers}",
            f"each of 0 … {length - 1} once" if length else "no sample",
            "Without workers, `get_worker_info()` is None: then there is one share, all of it."
            if workers == 0
            else "`get_worker_info()` has `id`, from 0, and `num_workers`.",
        )
        dataset = _Signed(answer(length))
        context = "fork" if workers else None
        loader = labkit.DataLoader(
            dataset, batch_size=None, num_workers=workers, multiprocessing_context=context
        )
        signed = list(loader)
        _every_sample_once(trial, [sample for _, sample in signed], length, workers)
        _everybody_has_a_share(trial, Counter(worker for worker, _ in signed), length, workers)


def _every_sample_once(trial: Trial, samples: list[Any], length: int, workers: int) -> None:
    count = Counter(samples)
    strange = [sample for sample in samples if sample not in range(length)]
    missing = [sample for sample in range(length) if sample not in count]
    twice = [sample for sample in range(length) if count[sample] > 1]
    if strange:
        trial.fail(
            f"samples that are not in the dataset: {strange}",
            "Where does a worker's share end? The last one may be shorter than the others.",
        )
    if twice and min(count.values()) == workers:
        trial.fail(
            f"each sample {workers} times",
            "Every worker has a copy of the dataset and gives all of it. In `__iter__`, in the "
            "worker, ask who you are (in `__init__` nobody is a worker yet).",
        )
    if twice:
        trial.fail(
            f"more than once: {twice}; missing: {missing}",
            "Two shares overlap. Where does one worker's end, and the next one's begin?",
        )
    if missing:
        trial.fail(
            f"missing: {missing}",
            f"{length} samples over {workers or 1} workers: who takes what a whole division "
            "leaves over, and is there a worker that begins too late?",
        )


def _everybody_has_a_share(trial: Trial, shares: Counter[int], length: int, workers: int) -> None:
    most = -(-length // max(1, workers))
    if shares and max(shares.values()) > most:
        worker, count = shares.most_common(1)[0]
        trial.fail(
            f"worker {worker} gives {count} of {length} samples",
            f"Every sample comes once, but one worker has most of the work. With {workers} "
            f"workers, none needs to give more than {most}.",
        )


class _Batch:
    """A batch whose end can be noticed."""

    def __init__(self, idx: int) -> None:
        self.idx = idx

    def __repr__(self) -> str:
        return f"batch {self.idx}"


class _Arrivals:
    """Results in order of arrival; knows how many have been taken, and holds none itself."""

    def __init__(self, order: Iterable[int]) -> None:
        self._order = iter(order)
        self.taken: list[int] = []
        self.alive: dict[int, weakref.ref[_Batch]] = {}

    def __iter__(self) -> Iterator[tuple[int, _Batch]]:
        return self

    def __next__(self) -> tuple[int, _Batch]:
        idx = next(self._order)
        self.taken.append(idx)
        batch = _Batch(idx)
        self.alive[idx] = weakref.ref(batch)
        return idx, batch


_SEVERAL = "One arrival can free several batches: go on giving as long as the next is there."
_ORDERS: tuple[list[int], ...] = ([0, 1, 2], [1, 0, 2], [2, 1, 0, 3], [1, 3, 2, 0, 5, 4], [])


def _reorder(answer: Callable[[Iterable[tuple[int, Any]]], Any], trial: Trial) -> None:
    for order in _ORDERS:
        numbers = ", ".join(map(str, order))
        _give_in_order(answer, trial, order, f"results arrive in the order {numbers or '(none)'}")
    many = [1, 0, *range(2, 200)]
    _give_in_order(answer, trial, many, "200 results arrive in the order 1, 0, 2, 3, 4, …")


def _give_in_order(answer: Callable[..., Any], trial: Trial, order: list[int], given: str) -> None:
    trial.case(
        given,
        "batches in the order 0, 1, 2, …, each as soon as it and all before it are there",
        "Keep what comes early under its number; after each arrival, look what can be given.",
    )
    arrivals = _Arrivals(order)
    given_out = answer(arrivals)
    if isinstance(given_out, list):
        trial.fail(
            f"a list of {len(given_out)}, after {len(arrivals.taken)} arrivals",
            "A list is there only when all has arrived. `yield` gives a batch when it is its turn.",
        )
    batches = iter(given_out)
    for expected in range(len(order)):
        batch = next(batches, None)
        _is_the_next(trial, batch, expected, arrivals, order)
        del batch
        if expected and arrivals.alive[expected - 1]() is not None:
            trial.fail(
                f"batch {expected - 1} is still held when batch {expected} is given",
                "Let go of what is given: take it out of the buffer (`pop`), and let no variable "
                "still name it (`del batch`), or it stays in memory.",
            )
    if next(batches, None) is not None:
        trial.fail("more batches than results", "Is a batch given twice?")


def _is_the_next(
    trial: Trial, batch: Any, expected: int, arrivals: _Arrivals, order: list[int]
) -> None:
    if isinstance(batch, tuple):
        trial.fail(batch, "Only the batch is given on: its number has done its work.")
    if not isinstance(batch, _Batch):
        trial.fail(
            f"the end, after {expected} of {len(order)} batches",
            _SEVERAL,
        )
    if batch.idx != expected:
        trial.fail(
            f"{batch!r} where batch {expected} was due",
            "It must wait in a buffer until all with a smaller number have been given.",
        )
    needed, before = (_arrivals_needed(order, due) for due in (expected, expected - 1))
    if len(arrivals.taken) > needed:
        thought = (
            _SEVERAL
            if needed == before
            else f"It could have been given after {needed}: give it before you take the next "
            "result, or the training loop waits for nothing."
        )
        trial.fail(f"batch {expected} after {len(arrivals.taken)} arrivals", thought)


def _arrivals_needed(order: list[int], due: int) -> int:
    """After how many arrivals batch `due` and all before it are there."""
    return max((order.index(idx) + 1 for idx in range(due + 1)), default=0)


EXERCISES = (
    Exercise(
        "03.worker_loop",
        "worker_loop",
        (
            "While the parent is alive: get with a timeout, then ask what it is: a "
            "`ResumeIteration`, `None`, a task to skip, or a task to do. Exactly one `put` for "
            "each that is done.",
            "Keep two variables, `fetcher` and `iteration_end`. Around `fetcher.fetch(indices)`: "
            "`except StopIteration` sets `iteration_end` and makes the end marker, `except "
            "Exception` makes the wrapper; both become `data`.",
        ),
        check_worker_loop,
        seconds=40,
    ),
    Exercise(
        "03.shard",
        "Sharded",
        (
            "Ask `get_worker_info()` in `__iter__`: that runs in the worker.",
            "Worker `id` of `num_workers` gives `range(id, length, num_workers)`; without "
            "workers that is id 0 of 1.",
        ),
        _shard,
        seconds=20,
    ),
    Exercise(
        "03.reorder",
        "in_order",
        (
            "A dict from number to batch holds what came early; a counter says which is due.",
            "After each arrival: `buffer[idx] = batch; del batch`, so that only the buffer holds "
            "it; then `while due in buffer: yield buffer.pop(due); due += 1`.",
        ),
        _reorder,
    ),
)
