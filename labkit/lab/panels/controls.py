"""What a learner may choose in a panel.

After it: `model`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Control"]


@dataclass(frozen=True)
class Control:
    """One argument of the experiment that the learner may choose.

    Attributes:
        argument: its name there.
        label: its name for the learner.
        options: the values to choose from, by the words for them.
        value: the one that is chosen at first.
    """

    argument: str
    label: str
    options: Mapping[str, Any]
    value: Any

    def words(self, value: Any) -> str:
        """The words for a value; its repr if it is none of the options."""
        return next((words for words, v in self.options.items() if v == value), repr(value))
