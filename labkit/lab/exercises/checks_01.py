"""The exercises of notebook 01: two collate functions.

Before it: the notebook's own `collate`, which knows tensors, numbers and dicts. The oracles:
`labkit.default_collate` for tuples, `torch.nn.utils.rnn.pad_sequence` for sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

import labkit
from labkit.lab.exercises.difference import first_difference
from labkit.lab.exercises.exercise import Exercise
from labkit.lab.exercises.trial import Trial

__all__ = ["EXERCISES"]

Collate = Callable[[list[Any]], Any]

_TUPLES: tuple[tuple[str, list[tuple[Any, ...]]], ...] = (
    ("three pairs of numbers", [(1, 0.5), (2, 1.5), (3, 2.5)]),
    (
        "three rows of a table",
        [(torch.tensor([i, i + 0.5]), torch.tensor([float(i)])) for i in range(3)],
    ),
    ("four triples", [(i, i / 2, {"x": i + 2}) for i in range(4)]),
    ("one pair", [(7, 0.25)]),
)


def _collate_tuples(answer: Collate, trial: Trial) -> None:
    for what, samples in _TUPLES:
        expected = labkit.default_collate(samples)
        trial.case(
            f"{what}: `{samples}`",
            repr(expected),
            "Regroup first: all first entries, all second ones, and so on. Then collate each.",
        )
        got = answer(list(samples))
        found = first_difference(got, expected)
        if found:
            trial.fail(f"{got!r}: {found}", _about_tuples(got, samples, expected))


def _about_tuples(got: Any, samples: list[tuple[Any, ...]], expected: list[Any]) -> str:
    if got is None:
        return "It returned nothing: is there a `return`?"
    if isinstance(got, tuple) and first_difference(list(got), expected) is None:
        return "The batches are right. As in PyTorch, they are to come in a list."
    if not isinstance(got, list):
        return "The result is a list with one batch for each position."
    if len(got) == len(samples) != len(expected):
        return "One entry a sample: that is how they came. You want one entry a position."
    if len(got) < len(expected):
        return "A position got lost: how many does a sample of this dataset have?"
    if any(isinstance(group, (list, tuple)) for group in got):
        return "Regrouped, but not collated: each group is to become a batch."
    if "dtype" in (first_difference(got, expected) or ""):
        return "Leave the dtype to `collate`: it takes it from the samples that it is given."
    return "Which samples, and which of their entries, have come into this batch?"


def _texts() -> tuple[tuple[str, list[torch.Tensor]], ...]:
    return (
        (
            "three sequences",
            [torch.tensor([5, 6, 7]), torch.tensor([8]), torch.tensor([9, 9])],
        ),
        ("the longest one last", [torch.tensor([1]), torch.tensor([2, 3, 4, 5])]),
        ("sequences of floats", [torch.tensor([0.5, 0.25]), torch.tensor([1.5])]),
        ("two of the same length", [torch.tensor([1, 2]), torch.tensor([3, 4])]),
        ("an empty one beside another", [torch.tensor([], dtype=torch.int64), torch.tensor([4])]),
        ("a single sequence", [torch.tensor([1, 2, 3])]),
    )


def _collate_padded(answer: Collate, trial: Trial) -> None:
    for what, samples in _texts():
        expected = _padded(samples)
        trial.case(
            f"{what}: `{samples}`",
            repr(expected),
            "The result has room for the longest: (samples, longest), zeros where nothing is.",
        )
        got = answer(list(samples))
        found = first_difference(got, expected)
        if found:
            trial.fail(f"{got!r}: {found}", _about_padding(got, samples, expected))
    three: Any = _texts()[0][1]  # a list serves as a dataset
    trial.case(
        "the same three sequences, out of `labkit.DataLoader(…, batch_size=2)`",
        repr([_padded(three[:2]), _padded(three[2:])]),
        "The loader gives it a list of samples, and the last batch is a smaller one.",
    )
    batches = list(labkit.DataLoader(three, batch_size=2, collate_fn=answer))
    found = first_difference(batches, [_padded(three[:2]), _padded(three[2:])], "batches")
    if found:
        trial.fail(f"{batches!r}: {found}", "Does it keep anything from the call before?")


def _padded(samples: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    lengths = torch.tensor([len(sample) for sample in samples])
    return [pad_sequence(list(samples), batch_first=True), lengths]


def _about_padding(got: Any, samples: list[torch.Tensor], expected: list[torch.Tensor]) -> str:
    if got is None:
        return "It returned nothing: is there a `return`?"
    if not isinstance(got, list) or len(got) != 2:
        return "The result is a list of two tensors: `[padded, lengths]`."
    padded, lengths = got
    if not isinstance(padded, torch.Tensor) or not isinstance(lengths, torch.Tensor):
        return "Both are tensors: a net wants to compute with them."
    if padded.shape == expected[1].shape and lengths.shape == expected[0].shape:
        return "Both are there: the padded sequences come first, the lengths second."
    is_turned = padded.shape != (1, 1) and torch.equal(padded, expected[0].T)
    if is_turned or padded.ndim != 2 or padded.shape[0] != len(samples):
        return "One row a sequence: the batch dimension comes first."
    if padded.shape[1] < expected[0].shape[1]:
        return "Values were cut off: the row must be as long as the longest sequence."
    if padded.shape[1] > expected[0].shape[1]:
        return "Longer than needed: up to the longest sequence of this batch, no further."
    if padded.dtype != expected[0].dtype:
        return "`torch.zeros` gives float32 unless it is told the sequences' dtype."
    if not torch.equal(padded, expected[0]):
        return "The values come first in a row, the zeros at its end."
    return "The lengths are those before padding, as int64, one a sequence."


EXERCISES = (
    Exercise(
        "01.collate_tuples",
        "collate_tuples",
        (
            "`zip(*samples)` regroups the samples by position.",
            "`collate` takes a list: make one of each group.",
        ),
        _collate_tuples,
    ),
    Exercise(
        "01.collate_padded",
        "collate_padded",
        (
            "Begin with zeros of shape (samples, longest) and the sequences' dtype.",
            "Write each sequence over the start of its row.",
        ),
        _collate_padded,
    ),
)
