"""Whether the default collate function makes the same batches as the user's.

Then it may take its place: it builds the batch in shared memory, where nothing is copied any more.

Before it: `subject`. After it: `investigation`.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch

import labkit
from labkit.lab.advising.subject import Subject

__all__ = ["default_does"]

_SAMPLES = 8  # at most


def default_does(subject: Subject, batch_samples: int) -> bool:
    """Whether both make the same of some samples; False if the user has none of their own."""
    if not subject.has_own_collate or subject.fixed.get("batch_size", 1) is None:
        return False
    dataset, count = subject.dataset, min(batch_samples, _SAMPLES)
    try:
        if subject.is_iterable:
            samples = list(itertools.islice(dataset, count))
        else:
            samples = [dataset[i] for i in range(count)]
        own = subject.fixed["collate_fn"](list(samples))
        return _alike(own, labkit.default_collate(samples))
    except Exception:  # one of them cannot do it
        return False


def _alike(own: Any, default: Any) -> bool:
    if isinstance(own, torch.Tensor):
        same = isinstance(default, torch.Tensor) and own.dtype == default.dtype
        return same and own.shape == default.shape and bool(torch.equal(own, default))
    if type(own) is not type(default):
        return False
    if isinstance(own, dict):
        return own.keys() == default.keys() and all(_alike(own[k], default[k]) for k in own)
    if isinstance(own, list | tuple):
        return len(own) == len(default) and all(map(_alike, own, default))
    return bool(own == default)
