"""A setting: those of a loader's arguments that advice may change.

After it: `subject`, which has the user's; `candidates`, what is tried in its place; `timing`.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch.utils.data

import labkit

__all__ = ["LEFT_BEHIND", "Setting"]

_MAKE: dict[str, Any] = {
    "labkit": labkit.DataLoader,
    "torch.utils.data": torch.utils.data.DataLoader,
}

_NAMES = {
    "num_workers": "num_workers",
    "prefetch_factor": "prefetch_factor",
    "start_method": "multiprocessing_context",
    "sharing_strategy": "sharing_strategy",
    "pin_memory": "pin_memory",
    "persistent_workers": "persistent_workers",
}
"""DataLoader's names, by those in `Setting`. All are defaults where they are 0, None or False."""

LEFT_BEHIND = 3
"""Batches that are alive besides those asked for in advance: one in the consumer's hands, one on
its way, and a slot or two that wait to be used again."""


@dataclass(frozen=True)
class Setting:
    """A loader's arguments, by DataLoader's names; None is its default.

    Attributes:
        module: whose DataLoader it is, "labkit" or "torch.utils.data".
        start_method: `multiprocessing_context`.
        collate: the user's ("own"), or the default in its place.
        preloads: a `labkit.Preloader` is around it.
    """

    module: Literal["labkit", "torch.utils.data"] = "labkit"
    num_workers: int = 0
    prefetch_factor: int | None = None
    start_method: str | None = None
    sharing_strategy: str | None = None
    pin_memory: bool = False
    persistent_workers: bool = False
    collate: Literal["own", "default"] = "own"
    preloads: bool = False

    @property
    def depth(self) -> int:
        """How many batches may be asked for in advance."""
        return self.num_workers * (self.prefetch_factor or 2)

    @property
    def alive(self) -> int:
        """How many batches may be alive at once."""
        return self.depth + LEFT_BEHIND

    @property
    def method(self) -> str:
        """The start method, the process's default one if none is named."""
        default = multiprocessing.get_start_method(allow_none=True)
        return self.start_method or default or multiprocessing.get_all_start_methods()[0]

    def make(self, dataset: Any, fixed: Mapping[str, Any]) -> Any:
        """A loader with these arguments, and the others that are fixed."""
        arguments = {**fixed, "num_workers": self.num_workers, "pin_memory": self.pin_memory}
        if self.collate == "default":
            arguments.pop("collate_fn", None)
        if self.num_workers:
            arguments["persistent_workers"] = self.persistent_workers
            arguments["prefetch_factor"] = self.prefetch_factor
            arguments["multiprocessing_context"] = self.start_method
        if self.module == "labkit" and self.num_workers:
            arguments["sharing_strategy"] = self.sharing_strategy
        return _MAKE[self.module](dataset, **arguments)

    def with_workers(self, count: int) -> Setting:
        """The same with so many workers; without any, what is about workers means nothing."""
        if count:
            return replace(self, num_workers=count)
        return replace(
            self,
            num_workers=0,
            prefetch_factor=None,
            start_method=None,
            sharing_strategy=None,
            persistent_workers=False,
        )

    def written(self) -> dict[str, str]:
        """The arguments that are no defaults, as they are written in a line of code."""
        values = {name: getattr(self, field) for field, name in _NAMES.items()}
        return {name: repr(value) for name, value in values.items() if value}

    def against(self, other: Setting) -> str:
        """In what it differs from another setting, in words."""
        parts = []
        if self.module != other.module:
            parts.append("labkit's loader" if self.module == "labkit" else "PyTorch's loader")
        for field, name in _NAMES.items():
            value = getattr(self, field)
            about_workers = field in ("prefetch_factor", "start_method", "sharing_strategy")
            if value != getattr(other, field) and not (about_workers and value is None):
                parts.append(f"{name}={value!r}")
        if self.collate != other.collate:
            parts.append("the default collate function" if self.collate == "default" else "yours")
        if self.preloads != other.preloads:
            parts.append("a Preloader" if self.preloads else "no Preloader")
        return ", ".join(parts) or "the same"
