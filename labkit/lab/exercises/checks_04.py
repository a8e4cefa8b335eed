"""The exercises of notebook 04: the bytes in a pickle, and a reducer for storages.

The reducer's check has a module of its own, `checks_04_reducer`.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import torch

from labkit.lab.exercises.checks_04_reducer import check_reducer
from labkit.lab.exercises.exercise import Exercise
from labkit.lab.exercises.trial import Trial

__all__ = ["EXERCISES"]


def _pickled_bytes(answer: Callable[[Sequence[torch.Tensor]], int], trial: Trial) -> None:
    rows = torch.zeros(30, 10_000)  # 1.2 MB
    column = rows[:, :3]
    for given, tensors, thought in (
        ("`[batch]`, float32 of shape (30, 10000)", [rows], "How many bytes has an element?"),
        ("`[batch.double()]`", [rows.double()], "How many bytes has an element?"),
        ("`[]`", [], "Nothing is pickled, so no bytes are."),
        (
            "`[batch[0]]`",
            [rows[0]],
            "A view brings its whole storage, all that `tensor.untyped_storage()` has.",
        ),
        ("`[batch[:, :3]]`", [column], "A view brings its whole storage, also one with gaps."),
        (
            "`[torch.ones(1).expand(30, 10000)]`",
            [torch.ones(1).expand(30, 10_000)],
            "All its elements are one and the same: how large is the storage that they lie in?",
        ),
        (
            "`[batch, batch[1:]]`",
            [rows, rows[1:]],
            "Two views of one storage: plain pickle writes that storage for each of them.",
        ),
        (
            "`[batch, batch]`",
            [rows, rows],
            "The second one is the *same object*: pickle writes that it has been there already.",
        ),
    ):
        _as_many_as_pickle_writes(answer, trial, given, tensors, thought)


def _as_many_as_pickle_writes(
    answer: Callable[[Sequence[torch.Tensor]], int],
    trial: Trial,
    given: str,
    tensors: list[torch.Tensor],
    thought: str,
) -> None:
    message = len(pickle.dumps(tensors))
    objects = {id(tensor): tensor for tensor in tensors}.values()
    memory = sum(tensor.untyped_storage().nbytes() for tensor in objects)
    told = f"{memory:,} bytes of memory, in a message that has {message:,} in all"
    trial.case(given, told, thought)
    got: Any = answer(tensors)  # numpy's integers are welcome, too
    if not isinstance(got, Integral):
        trial.fail(got, "A whole number of bytes was asked for.")
    if got == message:
        trial.fail(
            f"{got:,} bytes",
            "That is the whole message. How many of its bytes are memory of the tensors?",
        )
    if got != memory:
        trial.fail(f"{got:,} bytes", thought)


EXERCISES = (
    Exercise(
        "04.pickled_bytes",
        "pickled_bytes",
        (
            "Not `tensor.nbytes`, which counts what a view shows: plain pickle writes the storage "
            "behind it.",
            "Sum `tensor.untyped_storage().nbytes()` over `{id(tensor): tensor for tensor in "
            "tensors}.values()`, which has each object once.",
        ),
        _pickled_bytes,
    ),
    Exercise(
        "04.reduce_storage",
        "reduce_storage",
        (
            "Two steps: `storage._share_fd_cpu_()` moves the memory to where it can be shared and "
            "gives (descriptor, bytes). `DupFd(descriptor)` can be pickled. On the other side "
            "`.detach()` gives a descriptor, out of which `torch.UntypedStorage._new_shared_fd_cpu"
            "(descriptor, bytes)` makes a storage.",
            "`reduce_storage` returns `(rebuild_storage, (DupFd(fd), nbytes))`, and for an empty "
            "storage `(torch.UntypedStorage, (0,))`. `rebuild_storage` closes its descriptor with "
            "`os.close` when the storage is made, for the mapping needs it no more.",
        ),
        check_reducer,
        seconds=20,
    ),
)
