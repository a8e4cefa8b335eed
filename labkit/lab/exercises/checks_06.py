"""The exercises of notebook 06: a padding collate that builds in shared memory; a pool of memory.

The pool has a module of its own, `checks_06_pool`. Before it: `labkit.lab.copies`, which sees what
is written where. The oracle: `torch.nn.utils.rnn.pad_sequence`.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

import labkit
from labkit.lab.copies import Writes, follow, place_of
from labkit.lab.exercises.checks_06_pool import check_pool
from labkit.lab.exercises.difference import first_difference
from labkit.lab.exercises.exercise import Exercise
from labkit.lab.exercises.trial import Trial
from labkit.sharing import Sender, building_in, make_sender

__all__ = ["EXERCISES"]

Pad = Callable[..., torch.Tensor]

_STALE = 0x4D  # a byte as an earlier batch may have left it


def _cases() -> tuple[tuple[str, list[torch.Tensor], Any], ...]:
    return (
        (
            "three sequences of int64",
            [torch.tensor([5, 6, 7, 8]), torch.tensor([8]), torch.tensor([9, 9])],
            0,
        ),
        ("floats, `padding_value=-1.5`", [torch.ones(2), torch.zeros(5), torch.ones(3)], -1.5),
        ("steps of three values each", [torch.rand(n, 3) for n in (2, 4, 1)], 0),
        ("bools", [torch.tensor([True]), torch.tensor([True, True])], 0),
        ("an empty one beside another", [torch.zeros(0), torch.ones(4)], 7),
        ("only empty ones", [torch.zeros(0), torch.zeros(0)], 0),
        ("a single sequence", [torch.tensor([1, 2, 3])], 0),
    )


def _pad_shared(answer: Pad, trial: Trial) -> None:
    sender = make_sender("arena")
    try:
        for what, samples, value in _cases():
            expected = pad_sequence(samples, batch_first=True, padding_value=value)
            trial.case(
                f"{what}, in the main process (`num_workers=0`)",
                repr(expected),
                "The result has room for the longest: (samples, longest, …).",
            )
            _compare(answer(list(samples), value), expected, samples, trial)
            trial.case(
                f"{what}, in a worker whose memory was used before",
                repr(expected),
                "`labkit.empty_shared(shape, dtype)` gives memory as the batch before left it.",
            )
            _leave_something(sender, expected.nbytes)
            with building_in(sender.allocate):
                _compare(answer(list(samples), value), expected, samples, trial)
        _is_built_in_place(answer, trial, sender)
    finally:
        sender.close()
    _comes_from_a_worker(answer, trial)


def _leave_something(sender: Sender, nbytes: int) -> None:
    """What is given out next has other bytes in it than zeros."""
    if nbytes:
        torch.frombuffer(sender.allocate(nbytes), dtype=torch.uint8).fill_(_STALE)


def _compare(got: Any, expected: torch.Tensor, samples: list[torch.Tensor], trial: Trial) -> None:
    found = first_difference(got, expected)
    if found:
        trial.fail(f"{got!r}: {found}", _about_padding(got, expected, samples))


def _about_padding(got: Any, expected: torch.Tensor, samples: list[torch.Tensor]) -> str:
    if not isinstance(got, torch.Tensor):
        return "The result is one tensor: is there a `return`?"
    if got.shape != expected.shape:
        if got.shape[:2] == expected.shape[1::-1]:
            return "One row a sequence: the batch dimension comes first."
        return "The shape is (samples, longest), then what a step of a sequence has beyond that."
    if got.dtype != expected.dtype:
        return "`empty_shared` makes float32 unless it is told the sequences' dtype."
    for row, right, sample in zip(got, expected, samples, strict=True):
        if not torch.equal(row[: len(sample)], right[: len(sample)]):
            return "The values come first in a row, the padding at its end."
    if torch.equal(got, pad_sequence(samples, batch_first=True)):
        return "The padding is 0 here, whatever `padding_value` says."
    return (
        "What lay in this memory before is still there: recycled memory is not zero. Write the "
        "padding as well as the values."
    )


def _is_built_in_place(answer: Pad, trial: Trial, sender: Sender) -> None:
    samples = [torch.arange(n, dtype=torch.float32) for n in (500, 2000, 1500, 900) * 2]
    nbytes = 4 * 8 * 2000
    trial.case(
        f"eight long sequences, {nbytes:,} bytes when padded, in a worker",
        "a batch in the memory that is sent, and nothing built elsewhere first",
        "Ask `labkit.empty_shared` for the batch's memory, and write there.",
    )
    with building_in(sender.allocate), Writes() as writes:
        got = answer(list(samples))
    if sender.block_at(got.untyped_storage().data_ptr()) is None:
        trial.fail(*_about_place(got))
    elsewhere = writes.outside(got)
    if elsewhere > nbytes // 4:
        trial.fail(
            f"the batch is where it should be, but {elsewhere:,} bytes were written elsewhere",
            "It is built in private memory and then copied, so the copy is still made: it has only "
            "moved. Write the sequences straight into the rows of the shared tensor.",
        )
    with building_in(sender.allocate):
        taken = _most_taken(lambda: answer(list(samples)))
    if taken > nbytes // 2:
        trial.fail(
            f"the batch is where it should be, but numpy or Python took {taken:,} bytes as well",
            "What they build is copied afterwards, also if torch does not see it. Only the "
            "sequences themselves are to be written, each into its row of the shared tensor.",
        )


def _most_taken(function: Callable[[], Any]) -> int:
    """Bytes of numpy's and Python's memory in use beyond those before; torch's is not counted."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _about_place(got: torch.Tensor) -> tuple[str, str]:
    if place_of(got.data_ptr()).is_shared:
        return (
            "a batch in shared memory, but not in that of the sharing strategy",
            "It was moved to a segment of PyTorch's. labkit's pickler does not know that one, and "
            "copies the batch to its own. `labkit.empty_shared` asks for the right memory.",
        )
    return (
        "a batch in memory of this process alone",
        "The values are right, but the pickler has to copy all of it to shared memory. "
        "`torch.stack(…, out=…)` was told where to write; who tells this one?",
    )


def _comes_from_a_worker(answer: Pad, trial: Trial) -> None:
    samples = [torch.ones(n) for n in (300, 1000, 700)]
    trial.case(
        "three sequences, out of `labkit.DataLoader(…, num_workers=1)`",
        "a batch that is received in the memory in which it was built",
        "The loader gives it a list of samples.",
    )
    found = follow(labkit.DataLoader, samples, answer)
    if not found.is_same_memory:
        trial.fail(str(found), "Is there a case in which it builds the batch elsewhere?")


EXERCISES = (
    Exercise(
        "06.pad_shared",
        "pad_shared",
        (
            "Find the shape and the dtype first, ask `labkit.empty_shared` for that, and then "
            "write every element of it once.",
            "`for row, sample in zip(padded, samples)`: `row[: len(sample)] = sample`, and the "
            "padding to `row[len(sample) :]`.",
        ),
        _pad_shared,
        seconds=30,
    ),
    Exercise(
        "06.pool",
        "Pool",
        (
            "Somebody must say when nobody sees the memory any more: `weakref.finalize(memory, "
            "function, argument)` calls the function when `memory` has died.",
            "Take a segment out of `self.free[nbytes]`, or `Segment.create(nbytes)`. When its "
            "exporter dies, append the segment to that list again.",
        ),
        check_pool,
        seconds=20,
    ),
)
