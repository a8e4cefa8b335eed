"""The exercises of notebook 12: the indices of a rank, and the shard of one worker of one rank.

The first is held to PyTorch's own sampler; of the second it is counted what all workers of all
ranks give together. Before it: `trial`, which runs the answer. Mirrors:
torch.utils.data.distributed.DistributedSampler.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data.distributed import DistributedSampler

import labkit
from labkit.lab.datasets import Indices
from labkit.lab.exercises.exercise import Exercise
from labkit.lab.exercises.trial import Trial

__all__ = ["EXERCISES"]

_LENGTHS = ((12, 4, False), (10, 4, False), (10, 4, True), (2, 5, False), (3, 4, True))


def _rank_indices(answer: Callable[[int, int, int, bool], Any], trial: Trial) -> None:
    for length, ranks, drop_last in _LENGTHS:
        shares = [_of_the_sampler(length, rank, ranks, drop_last) for rank in range(ranks)]
        for rank, expected in enumerate(shares):
            trial.case(
                f"`rank_indices({length}, {rank}, {ranks}, {drop_last})`",
                f"{expected}, as PyTorch's sampler gives them",
                "Make the list of all indices first, then bring it to a length that the ranks "
                "divide, then take this rank's part.",
            )
            got = answer(length, rank, ranks, drop_last)
            if got is None:
                trial.fail(got, "It must return the list.")
            _is_this_share(trial, list(got), expected, length, ranks, drop_last)


def _of_the_sampler(length: int, rank: int, ranks: int, drop_last: bool) -> list[int]:
    return list(DistributedSampler(Indices(length), ranks, rank, False, drop_last=drop_last))


def _is_this_share(
    trial: Trial, got: list[Any], expected: list[int], length: int, ranks: int, drop_last: bool
) -> None:
    if got == expected:
        return
    each = len(expected)
    if any(index not in range(length) for index in got):
        trial.fail(got, f"There are only samples 0 to {length - 1}: which ones are padded with?")
    if len(got) > each and drop_last:
        trial.fail(
            got,
            f"With `drop_last` nobody reads more than {length} // {ranks} samples: what is left "
            "over is dropped.",
        )
    if len(got) < each and each > 1:
        trial.fail(
            got,
            f"All ranks must read as many, here {each}, or one waits for the others' last step. "
            "Without `drop_last`, pad the list before you take a part of it.",
        )
    if len(got) != each:
        trial.fail(
            got,
            f"{length} samples are fewer than {ranks} ranks: padding must go round the list more "
            "than once.",
        )
    if got == list(range(got[0], got[0] + each)):
        trial.fail(
            got,
            "A block of neighbours is a share, too. PyTorch deals the samples out in turn, like "
            "cards: take every so many-th.",
        )
    trial.fail(got, "PyTorch pads with the samples from the beginning of the list.")


_SETTINGS = ((12, 2, 2), (9, 3, 0), (10, 2, 2), (7, 2, 3), (0, 2, 1))
_GIVEN = "`Sharded({}, rank, {})` in a loader of each rank, with num_workers={}"


def _shard(answer: Callable[[int, int, int], Any], trial: Trial) -> None:
    warnings.simplefilter("ignore")  # more workers than cores are meant
    for length, ranks, workers in _SETTINGS:
        trial.case(
            _GIVEN.format(length, ranks, workers),
            f"each of 0 … {length - 1} once in all, and shares of the ranks that differ by at most "
            "one"
            if length
            else "no sample",
            "Without workers, `get_worker_info()` is None: then there is worker 0 of 1."
            if workers == 0
            else "The rank stands in `self`; ask for the worker in `__iter__`.",
        )
        shares = [_loaded(answer(length, rank, ranks), workers) for rank in range(ranks)]
        _every_sample_once(trial, shares, length, ranks, workers)
        _equal_shares(trial, shares, workers)


def _loaded(dataset: Any, workers: int) -> list[Any]:
    context = "fork" if workers else None
    return list(
        labkit.DataLoader(
            dataset, batch_size=None, num_workers=workers, multiprocessing_context=context
        )
    )


def _every_sample_once(
    trial: Trial, shares: Sequence[list[Any]], length: int, ranks: int, workers: int
) -> None:
    count = Counter(sample for share in shares for sample in share)
    missing = [sample for sample in range(length) if sample not in count]
    twice = [sample for sample in range(length) if count[sample] > 1]
    strange = [sample for sample in count if sample not in range(length)]
    if strange:
        trial.fail(f"samples that are not in the dataset: {strange}", "Where does a share end?")
    within = any(len(set(share)) < len(share) for share in shares)
    if twice and set(count.values()) == {ranks * workers}:
        trial.fail(
            f"each sample {ranks * workers} times",
            "Every worker of every rank gives all of it. Who are they?",
        )
    if twice and set(count.values()) == {workers} and within:
        trial.fail(
            f"each sample {workers} times, in one rank",
            "The workers of a rank give the same: each has a copy of the dataset, and must ask "
            "which worker it is.",
        )
    if twice and set(count.values()) == {ranks} and not within:
        trial.fail(
            f"each sample {ranks} times, once in each rank",
            "The ranks give the same: `get_worker_info()` knows nothing of other ranks.",
        )
    if twice:
        trial.fail(
            f"more than once: {twice}; missing: {missing}",
            f"There are {ranks} × {workers or 1} who share. Two of them begin at the same sample: "
            "give each a number of its own.",
        )
    if missing:
        trial.fail(f"missing: {missing}", "Who takes what a whole division leaves over?")


def _equal_shares(trial: Trial, shares: Sequence[list[Any]], workers: int) -> None:
    counts = list(map(len, shares))
    if max(counts) - min(counts) > 1:
        trial.fail(
            f"each sample once, but the ranks give {' and '.join(map(str, counts))}",
            f"All {workers} workers of the first rank come before the next rank's, so what is left "
            "over stays in that rank. Number them so that neighbours are of different ranks.",
        )


EXERCISES = (
    Exercise(
        "12.rank_indices",
        "rank_indices",
        (
            "`indices = list(range(length))`. Its length must become a multiple of `ranks`: cut "
            "the end off, or add samples from the beginning, as often as it takes.",
            "Each rank reads `each = length // ranks`, or `-(-length // ranks)` if nothing is "
            "dropped. `indices * ranks` goes round often enough: cut it at `each * ranks`, then "
            "`[rank::ranks]`.",
        ),
        _rank_indices,
    ),
    Exercise(
        "12.shard",
        "Sharded",
        (
            "Number all who share, from 0 on; the n-th of N gives `range(n, length, N)`. N is "
            "ranks × workers.",
            "Worker `w` of rank `r` gets the number `w * ranks + r`: so the ranks take turns. "
            "`r * workers + w` gives each sample once, too, but not equal shares.",
        ),
        _shard,
        seconds=30,
    ),
)
