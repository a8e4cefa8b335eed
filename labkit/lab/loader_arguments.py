"""The arguments of DataLoader: where the course uses each, and which exclude each other.

What excludes what is found by trying, with both loaders. After it: notebook 10.
Mirrors: the arguments of `torch.utils.data.DataLoader`.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import torch.utils.data
from torch.utils.data import IterableDataset

import labkit

__all__ = ["EXCLUSIONS", "WHERE", "exclusions", "table"]

WHERE: dict[str, tuple[str, str]] = {
    "dataset": ("01", "index to sample, or a stream of samples"),
    "batch_size": ("01", "samples a batch; None: no batches"),
    "shuffle": ("01", "a new random order each epoch"),
    "sampler": ("01", "the order, by your own iterable of indices"),
    "batch_sampler": ("01", "the batches, by your own iterable of lists of indices"),
    "num_workers": ("03", "processes that load"),
    "collate_fn": ("06", "samples to batch"),
    "pin_memory": ("08", "batches in page-locked memory"),
    "drop_last": ("01", "no last batch that is not full"),
    "timeout": ("11", "seconds to wait for a batch"),
    "worker_init_fn": ("03", "called in each worker, after it was seeded"),
    "multiprocessing_context": ("02", "how workers are started"),
    "generator": ("03", "draws the order and the base seed"),
    "prefetch_factor": ("03", "tasks handed out in advance, a worker"),
    "persistent_workers": ("03", "workers stay for the next epoch"),
    "pin_memory_device": ("10", "deprecated, without effect"),
    "in_order": ("03", "False gives batches as they come"),
    "sharing_strategy": ("05", "labkit's own: how a batch's bytes come"),
    "arena_limit_bytes": ("10", "labkit's own: an end to the arena's growth"),
}
"""By argument: the notebook that shows what it does, and what it decides."""


class _Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(4))


_INDICES = range(4)

EXCLUSIONS: dict[str, dict[str, Any]] = {
    "shuffle and sampler": {"shuffle": True, "sampler": _INDICES},
    "batch_sampler and batch_size": {"batch_sampler": [[0, 1]], "batch_size": 2},
    "batch_sampler and shuffle": {"batch_sampler": [[0, 1]], "shuffle": True},
    "batch_sampler and sampler": {"batch_sampler": [[0, 1]], "sampler": _INDICES},
    "batch_sampler and drop_last": {"batch_sampler": [[0, 1]], "drop_last": True},
    "batch_size=None and drop_last": {"batch_size": None, "drop_last": True},
    "no workers and timeout": {"timeout": 1},
    "no workers and prefetch_factor": {"prefetch_factor": 2},
    "no workers and persistent_workers": {"persistent_workers": True},
    "no workers and multiprocessing_context": {"multiprocessing_context": "spawn"},
    "a stream and shuffle": {"dataset": _Stream(), "shuffle": True},
    "a stream and sampler": {"dataset": _Stream(), "sampler": _INDICES},
    "a stream and batch_sampler": {"dataset": _Stream(), "batch_sampler": [[0, 1]]},
}
"""By words for it: arguments that cannot go together."""

_LOADERS: dict[str, Callable[..., Any]] = {
    "labkit": labkit.DataLoader,
    "PyTorch": torch.utils.data.DataLoader,
}


def table() -> str:
    """Every argument of both loaders, with its notebook and what it decides, as text.

    Raises:
        LookupError: a loader has an argument of which the course says nothing.
    """
    names: dict[str, None] = {}
    for loader in _LOADERS.values():
        names |= dict.fromkeys(inspect.signature(loader).parameters)
    unknown = [name for name in names if name not in WHERE]
    if unknown:
        raise LookupError(f"of these arguments the course says nothing: {', '.join(unknown)}")
    return "\n".join(f"{name:24}{WHERE[name][0]}  {WHERE[name][1]}" for name in names)


def exclusions() -> str:
    """Which of `EXCLUSIONS` each loader refuses, and when: as text, tried now."""
    rows = [f"{'':40}" + "".join(f"{name:16}" for name in _LOADERS)]
    for words, arguments in EXCLUSIONS.items():
        tried = [_refused(loader, arguments) for loader in _LOADERS.values()]
        rows.append(f"{words:40}" + "".join(f"{when:16}" for when in tried))
    return "\n".join(row.rstrip() for row in rows)


def _refused(loader: Callable[..., Any], arguments: dict[str, Any]) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = loader(**{"dataset": range(4), **arguments})
        except ValueError:
            return "when it is made"
        try:
            list(made)
        except Exception:
            return "when it is used"
        return "not at all"
