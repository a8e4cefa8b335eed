"""What each batch of a simulation costs, drawn from what was measured.

Before it: `measured`. After it: `pipeline`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labkit.lab.simulate.measured import LAYERS, Measured

__all__ = ["Drawn"]


@dataclass(frozen=True)
class Drawn:
    """What each batch costs, by layer: seconds on a core, seconds of waiting. Used round and round.

    What a worker does besides ("loop") is part of its fetch here.

    Attributes:
        batch_bytes: of a batch.
    """

    cpu: dict[str, list[float]]
    wait: dict[str, list[float]]
    batch_bytes: float

    @classmethod
    def of(
        cls, measured: Measured, batch_size: int, batches: int, seed: int, workers: int
    ) -> Drawn:
        """Drawn from what was measured.

        Args:
            workers: whose first batches are cheaper, each a bit less than the one before: all would
                end them at the same time, and it takes long until that has levelled out.
        """
        generator = np.random.default_rng(seed)
        cpu, wait = {}, {}
        for layer in LAYERS:
            cpu[layer], wait[layer] = measured.of(layer).draw(generator, batches, batch_size)
        for costs in (cpu, wait):
            loop = costs.pop("loop")
            costs["fetch"] = [sum(both) for both in zip(costs["fetch"], loop, strict=True)]
            for first in range(min(workers, batches)):
                costs["fetch"][first] *= (first + 0.5) / workers
        return cls(cpu, wait, measured.sample_bytes * batch_size)

    def __len__(self) -> int:
        return len(self.cpu["fetch"])
