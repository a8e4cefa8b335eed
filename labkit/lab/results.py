"""What an experiment found: every repeat of every setting, with the machine it ran on.

Before it: `experiments`, which measures. After it: `explain`, which says what the numbers support,
and `plots`, which draws them.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Origin", "Result"]

Origin = Literal["live", "recorded", "simulated"]


@dataclass(frozen=True)
class Result:
    """One quantity under several settings, measured side by side.

    Attributes:
        question: what was asked, such as "How long does the first batch take?".
        quantity: what was measured, such as "time to the first batch".
        unit: its unit, such as "ms"; less is better.
        repeats: by a setting's label, one value a repeat. The i-th repeats of all settings were
            measured next to each other, so they may be compared in pairs.
        settings: by label, the arguments in which the settings differ.
        common: the arguments that all of them share.
        machine: where and with which versions (`labkit.lab.machine.machine`).
        origin: "live" from this machine, "recorded" on another, "simulated".
        notes: what a reader must know besides, a sentence each.
    """

    question: str
    quantity: str
    unit: str
    repeats: dict[str, tuple[float, ...]]
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    common: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    origin: Origin = "live"
    notes: tuple[str, ...] = ()

    @property
    def labels(self) -> list[str]:
        """The settings' labels, in the order in which they were asked for."""
        return list(self.repeats)

    def median(self, label: str) -> float:
        """The median of a setting's repeats, in `unit`."""
        return statistics.median(self.repeats[label])

    def to_json(self) -> str:
        """The result as JSON text, which `from_json` reads."""
        return json.dumps(dataclasses.asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Result:
        """A result that `to_json` wrote."""
        found = json.loads(text)
        found["repeats"] = {label: tuple(values) for label, values in found["repeats"].items()}
        found["notes"] = tuple(found["notes"])
        return cls(**found)
