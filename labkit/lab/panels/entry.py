"""One run of a panel: its settings, what it found, what was expected, what is recorded.

Before it: `beside`, the recording. After it: `model`, whose history is made of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from labkit.lab.explain import predicted, sentence
from labkit.lab.panels.beside import Beside
from labkit.lab.predictions import Prediction
from labkit.lab.results import Result

__all__ = ["Entry"]


@dataclass(frozen=True)
class Entry:
    """One run of a panel.

    Attributes:
        settings: the arguments that it was run with.
        result: what it found.
        prediction: what was expected; None if nothing was.
        beside: what another machine gave with these settings; None where the panel does not ask.
    """

    settings: Mapping[str, Any]
    result: Result
    prediction: Prediction | None = None
    beside: Beside | None = None

    @property
    def recorded(self) -> Result | None:
        """The recorded result with these settings, if there is one."""
        return self.beside.result if self.beside is not None else None

    @property
    def sentence(self) -> str:
        """What the numbers support."""
        return sentence(self.result)

    @property
    def verdict(self) -> str:
        """How far off the prediction was; "" without one."""
        return predicted(self.result, self.prediction) if self.prediction else ""
