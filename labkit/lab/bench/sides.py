"""The loaders that the bench compares, each made with its own defaults.

Before it: `workloads`. After it: `bench`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

import torch.utils.data

import labkit
from labkit.lab import MissingPackage, need
from labkit.lab.bench.trace_cost import Traced
from labkit.lab.bench.workloads import FromMemory, StartUp, Workload
from labkit.lab.resources import labkit_message_bytes, torch_message_bytes

__all__ = ["LABKIT", "TORCH", "Side", "find_peers"]


@dataclass(frozen=True)
class Side:
    """One of the loaders that are compared."""

    name: str
    make: Callable[..., Iterable[Any]]  #: called like DataLoader
    import_line: str | None  #: gives a program its DataLoader; None: no part in start-up
    message_bytes: Callable[[list[Any], Any], int] | None = None  #: (samples, collate_fn) → bytes
    min_workers: int = 0

    def takes_part(self, workload: Workload | StartUp) -> bool:
        """Whether it can do what the workload asks for."""
        if isinstance(workload, StartUp) and self.import_line is None:
            return False
        return workload.num_workers >= self.min_workers

    def collate_fn(self, workload: Workload) -> Callable[[Any], Any] | None:
        """What the workload wants on this side; None: the side's default."""
        if self.name == "labkit" and workload.labkit_collate_fn is not None:
            return workload.labkit_collate_fn
        return workload.collate_fn

    def loader(self, workload: Workload, dataset: FromMemory) -> Iterable[Any]:
        """A fresh loader, with the defaults in everything that the workload leaves open."""
        loader = self.make(
            dataset,
            batch_size=workload.batch_size,
            num_workers=workload.num_workers,
            collate_fn=self.collate_fn(workload),
        )
        return Traced(loader) if self.name == "labkit" and workload.labkit_is_traced else loader


LABKIT = Side(
    "labkit",
    labkit.DataLoader,
    "from labkit import DataLoader",
    lambda samples, collate_fn: labkit_message_bytes(samples, collate_fn or labkit.default_collate),
)
TORCH = Side(
    "torch",
    torch.utils.data.DataLoader,
    "from torch.utils.data import DataLoader",
    lambda samples, collate_fn: torch_message_bytes(
        samples, collate_fn or torch.utils.data.default_collate
    ),
)


def find_peers() -> tuple[list[Side], dict[str, str]]:
    """The peers that can be imported, and for each that cannot: why."""
    found, missing = [], {}
    for name, make in (("torchdata", _torchdata), ("spdl", _spdl)):
        try:
            found.append(make())
        except MissingPackage as error:
            missing[name] = f"skipped: {error}"
    return found, missing


def _torchdata() -> Side:
    module = need("torchdata.stateful_dataloader", "torchdata")
    line = "from torchdata.stateful_dataloader import StatefulDataLoader as DataLoader"
    return Side("torchdata", module.StatefulDataLoader, line)


def _spdl() -> Side:
    make = need("spdl.dataloader", "spdl").get_pytorch_dataloader

    def loader(*args: Any, **options: Any) -> Iterable[Any]:
        made = make(*args, in_order=True, **options)  # as all others do
        weakref.finalize(made, made._shmem.unlink)  # the dataset's copy would stay until the end
        return cast(Iterable[Any], made)

    return Side("spdl", loader, None, min_workers=1)
