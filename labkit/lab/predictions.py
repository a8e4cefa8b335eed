"""What a learner expects before anything is measured.

Before it: the learner. After it: `panels`, which asks for one, `plots`, which draws it in, and
`explain`, which says how far off it was.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Prediction"]


@dataclass(frozen=True)
class Prediction:
    """Which setting will be the fastest, and by how much.

    Attributes:
        fastest: the label of the setting whose value will be the least.
        factor: how many times the least value the greatest one will be, 1 or more; None: not said.

    Raises:
        ValueError: the factor is below 1 or no number.
    """

    fastest: str
    factor: float | None = None

    def __post_init__(self) -> None:
        if self.factor is not None and not (math.isfinite(self.factor) and self.factor >= 1):
            raise ValueError(
                f"the factor is how many times as long the slowest takes, so a number of 1 or "
                f"more, but got {self.factor!r}: write 2 for twice as long, 1 for no difference"
            )
