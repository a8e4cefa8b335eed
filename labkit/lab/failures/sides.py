"""The two loaders whose failures are put beside each other: PyTorch's and labkit's.

After it: `acts`, which break both in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.utils.data

import labkit

__all__ = ["LABKIT", "PYTORCH", "SIDES", "Side"]

PYTORCH, LABKIT = "PyTorch", "labkit"
SIDES = (PYTORCH, LABKIT)


@dataclass(frozen=True)
class Side:
    """A loader with the settings that a failure is tried under.

    Attributes:
        package: `PYTORCH` or `LABKIT`.
        start_method: of its workers.
        sharing_strategy: by its name there; None for the package's default.
    """

    package: str
    start_method: str
    sharing_strategy: str | None = None

    def batches(self, dataset: Any, sharing_strategy: str | None = None, **options: Any) -> Any:
        """An iterator of one worker that gives one sample after another.

        Args:
            dataset: map-style.
            sharing_strategy: that the failure cannot do without; it goes before the side's.
            **options: further arguments of the loader.
        """
        loading = {"batch_size": None, "num_workers": 1, **options}
        loading["multiprocessing_context"] = self.start_method
        strategy = sharing_strategy or self.sharing_strategy
        if self.package == LABKIT:
            return iter(labkit.DataLoader(dataset, sharing_strategy=strategy, **loading))
        if strategy in torch.multiprocessing.get_all_sharing_strategies():  # type: ignore[no-untyped-call]
            torch.multiprocessing.set_sharing_strategy(strategy)  # type: ignore[no-untyped-call]
        return iter(torch.utils.data.DataLoader(dataset, **loading))
