"""The ways a batch can come from a worker: labkit's four sharing strategies and PyTorch's two.

After it: the experiments of this package, each of which tries several ways.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import Dataset

import labkit
from labkit.lab.exercises.confined import run_in_child

__all__ = ["LABKIT", "PYTORCH", "Bundles", "Way", "in_a_child"]


@dataclass(frozen=True)
class Way:
    """A loader and its sharing strategy.

    Attributes:
        package: "labkit" or "PyTorch".
        strategy: by the name that it has there.
    """

    package: str
    strategy: str

    @property
    def label(self) -> str:
        """Its name in a table."""
        return self.strategy if self.package == "labkit" else f"PyTorch: {self.strategy}"

    def loader(self, dataset: Dataset[Any], **arguments: Any) -> Iterable[Any]:
        """A loader with one forked worker. PyTorch's strategy is set for the whole process."""
        arguments = {"num_workers": 1, "multiprocessing_context": "fork", **arguments}
        if self.package == "labkit":
            return labkit.DataLoader(dataset, sharing_strategy=self.strategy, **arguments)
        torch.multiprocessing.set_sharing_strategy(self.strategy)  # type: ignore[no-untyped-call]
        return torch.utils.data.DataLoader(dataset, **arguments)


LABKIT = tuple(
    Way("labkit", strategy) for strategy in ("copy", "file_system", "file_descriptor", "arena")
)
PYTORCH = tuple(Way("PyTorch", strategy) for strategy in ("file_system", "file_descriptor"))


class Bundles(Dataset[list[torch.Tensor]]):
    """Samples of so many tensors of so many bytes. One byte of memory stands for all of them, so
    only a batch takes as much as it says.
    """

    def __init__(self, length: int, tensors: int = 1, tensor_bytes: int = 8) -> None:
        self.length, self.tensors, self.tensor_bytes = length, tensors, tensor_bytes

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> list[torch.Tensor]:
        byte = torch.full((1,), index % 256, dtype=torch.uint8)
        return [byte.expand(self.tensor_bytes) for _ in range(self.tensors)]


def in_a_child(
    work: Callable[..., None],
    *arguments: Any,
    seconds: float,
    tidy: Callable[[list[Any]], None] | None = None,
    cancel: threading.Event | None = None,
) -> list[Any]:
    """Call `work(send, *arguments)` in a new process; returns what it sent.

    What it changes (limits, mounts, PyTorch's strategy) ends with it, and so do the processes of
    its session.

    Args:
        work: may be ended at any point.
        *arguments: for it.
        seconds: its limit.
        tidy: called in the end, whatever happened, with what was sent until then.
        cancel: once it is set, the process is ended.

    Raises:
        RuntimeError: it did not come to its end, or not in time; says what it wrote.
    """
    messages: list[Any] = []
    try:
        ended = run_in_child(work, *arguments, seconds=seconds, messages=messages, cancel=cancel)
    finally:
        if tidy is not None:
            tidy(messages)
    if ended.how != "finished":
        ends = {"time limit": f"was not done after {seconds:g} s", "cancelled": "was cancelled"}
        how = ends.get(ended.how, "died")
        raise RuntimeError(f"an experiment's process {how}. It wrote: {ended.printed or 'nothing'}")
    return messages
