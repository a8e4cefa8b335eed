"""Two collate functions for samples of one shape: one that most people write, and one that knows
where a batch is best built.

Both give what `torch.stack` gives; they differ in how often each byte is written. In a module,
because workers import them. After it: notebook 06, and `experiments`, which times them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

import labkit

__all__ = ["COLLATES", "stack", "stack_into_shared"]


def stack(samples: Sequence[torch.Tensor]) -> torch.Tensor:
    """Samples of shape (…) → (batch, …), in new memory of this process."""
    return torch.stack(list(samples))


def stack_into_shared(samples: Sequence[torch.Tensor]) -> torch.Tensor:
    """Samples of shape (…) → (batch, …); in labkit's workers in the memory that is sent."""
    batch = labkit.empty_shared((len(samples), *samples[0].shape), samples[0].dtype)
    return torch.stack(list(samples), out=batch)


COLLATES: dict[str, Callable[..., torch.Tensor] | None] = {
    "default": None,
    "naive: torch.stack": stack,
    "aware: out=empty_shared": stack_into_shared,
}
"""By the words for it; None for the loader's own."""
