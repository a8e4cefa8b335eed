"""How often each byte of a batch is written on its way from the samples to the main process.

`follow` sends one batch through a real worker and looks at three things: what torch's operations
write while the collate function runs; in which memory the worker then has the batch; and in which
the main process gets it. Two processes see the same memory where they map the same file at the same
place, and the system tells that (proc(5), `/proc/self/maps`). If it is not the same, somebody has
copied the batch in between. Nothing is taken from how a loader is meant to work.

Before it: `stacking`, with collate functions to follow. After it: notebook 06 and its exercises.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.utils.data
from torch.utils._python_dispatch import TorchDispatchMode

import labkit
from labkit.lab.resources import running

__all__ = ["Copies", "Place", "Writes", "follow", "place_of"]

_WRITE_NOTHING = (
    *("aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty"),
    *("aten::new_empty_strided", "aten::empty_permuted", "aten::from_file"),
    *("aten::resize_", "aten::set_"),
)
"""They give memory, or change what a tensor is a view of."""


@dataclass(frozen=True)
class Copies:
    """What became of one batch.

    Attributes:
        batch_bytes: of its tensors.
        collate_bytes: that torch wrote while it was collated.
        built_in_shared: whether the collate function left all of it in shared memory.
        is_same_memory: whether the main process sees the very memory that it was built in.
    """

    batch_bytes: int
    collate_bytes: int
    built_in_shared: bool
    is_same_memory: bool

    @property
    def by_collate(self) -> float:
        """How many times the batch's bytes the collate function wrote."""
        return self.collate_bytes / self.batch_bytes

    @property
    def times(self) -> float:
        """How often a byte was written in all, on average. A batch that is not received in the
        memory that it was built in was written once more; by the strategy `copy` oftener.
        """
        return self.by_collate + (not self.is_same_memory)

    def __str__(self) -> str:
        memory = "shared" if self.built_in_shared else "private"
        then = "received there" if self.is_same_memory else "copied once more"
        # Somebody wrote the batch; what torch did not see, numpy or Python did.
        least, seen = "", ""
        if self.collate_bytes < self.batch_bytes:
            least, seen = "at least ", " (that torch sees)"
        return (
            f"collate writes {least}{self.by_collate:.3g}×{seen} into {memory} memory, {then}: "
            f"{least}{self.times:.3g}× in all"
        )


def follow(
    loader: Callable[..., Any],
    samples: Sequence[Any],
    collate_fn: Callable[[Any], Any] | None = None,
    **options: Any,
) -> Copies:
    """Load one batch with a worker, and see how often it is written.

    Args:
        loader: `labkit.DataLoader` or `torch.utils.data.DataLoader`.
        samples: of the batch; its tensors are looked at, also those in lists, tuples and dicts.
        collate_fn: makes it; None for the loader's default.
        **options: further arguments of the loader.

    Raises:
        ValueError: the batch has no tensor with memory.
    """
    default = labkit if loader is labkit.DataLoader else torch.utils.data
    noting = _Noting(collate_fn or default.default_collate)
    loading = {"num_workers": 1, "multiprocessing_context": "fork", **options}
    batches = loader(list(samples), batch_size=len(samples), collate_fn=noting, **loading)
    with running(batches) as iterator:
        batch, written, built_in = next(iterator)
        received_in = [place_of(tensor.data_ptr()) for tensor in _tensors(batch)]
        batch_bytes = sum(tensor.nbytes for tensor in _tensors(batch))
    if not batch_bytes:
        raise ValueError(f"the batch is {batch!r}: it has no tensor whose bytes could be counted")
    return Copies(
        batch_bytes=batch_bytes,
        collate_bytes=written,
        built_in_shared=all(place.is_shared for place in built_in),
        is_same_memory=built_in == received_in,
    )


class _Noting:
    """A collate function that also tells what it wrote, and where its batch lies."""

    def __init__(self, collate_fn: Callable[[Any], Any]) -> None:
        self._collate_fn = collate_fn

    def __call__(self, samples: list[Any]) -> tuple[Any, int, list[Place]]:
        with Writes() as writes:
            batch = self._collate_fn(samples)
        return batch, writes.nbytes, [place_of(tensor.data_ptr()) for tensor in _tensors(batch)]


def _tensors(batch: Any) -> Iterator[torch.Tensor]:
    """Those that have memory."""
    if isinstance(batch, torch.Tensor):
        if batch.nbytes:
            yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from _tensors(value)
    elif isinstance(batch, list | tuple):
        for value in batch:
            yield from _tensors(value)


@dataclass(frozen=True)
class Place:
    """Where memory lies, told so that two processes may compare.

    Attributes:
        is_shared: whether other processes may map it too.
        file: device and inode of the file that is mapped, or the process if it is private.
        offset: the byte in that file, or the address.
    """

    is_shared: bool
    file: tuple[str, int]
    offset: int


def place_of(address: int) -> Place:
    """The place of the memory at this address of this process.

    Raises:
        ValueError: nothing is mapped there.
    """
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, rights, offset, device, inode = line.split()[:5]
        start, end = (int(number, 16) for number in addresses.split("-"))
        if start <= address < end:
            if rights[3] != "s":
                break
            return Place(True, (device, int(inode)), address - start + int(offset, 16))
    else:
        raise ValueError(f"nothing is mapped at {address:#x}")
    return Place(False, ("process", os.getpid()), address)


class Writes(TorchDispatchMode):
    """Counts what torch's operations write on this thread while it is entered.

    An operation's schema tells which of its arguments it writes to, and which results are new
    memory. What numpy or Python write, and tensors made of Python's numbers, are not seen.

    Attributes:
        writes: of each operation, in order, (address, bytes) of the tensors that it wrote.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.writes: list[tuple[int, int]] = []

    @property
    def nbytes(self) -> int:
        """All that was written."""
        return sum(nbytes for _, nbytes in self.writes)

    def outside(self, tensor: torch.Tensor) -> int:
        """What was written to other memory than this tensor's."""
        start = tensor.untyped_storage().data_ptr()
        end = start + tensor.untyped_storage().nbytes()
        return sum(nbytes for address, nbytes in self.writes if not start <= address < end)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and keeping dynamo out would import it: seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func._schema.name not in _WRITE_NOTHING:
            written = [*_written_to(func._schema, args, kwargs), *_new(func._schema, result)]
            self.writes += [(tensor.data_ptr(), tensor.nbytes) for tensor in _tensors(written)]
        return result


def _written_to(schema: Any, args: Any, kwargs: Any) -> Iterator[Any]:
    for place, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield args[place] if place < len(args) else kwargs.get(argument.name)


def _new(schema: Any, result: Any) -> Iterator[Any]:
    results = [result] if len(schema.returns) == 1 else result or ()
    for returned, value in zip(schema.returns, results, strict=False):
        if returned.alias_info is None:
            yield value
