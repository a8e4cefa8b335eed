"""What an experiment found: every repeat of every setting, with the machine it ran on.

Before it: `experiments`, which measures. After it: `explain`, which says what the numbers support,
and `plots`, which draws them.
"""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

__all__ = ["DEFAULT_REPEATS", "Origin", "Result"]

DEFAULT_REPEATS = 9
"""With so many, `explain` finds a slow-down by 30% in nine runs of ten or more where single repeats
spread by some 8% and one in twenty is an outlier (tests/lab/test_explain.py has that noise, and
worse). With 7 it is eight or nine of ten; with 5 no difference can be told from chance at 95%,
however large."""

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

    Raises:
        ValueError: a repeat is no finite number, or there is no such origin.
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

    def __post_init__(self) -> None:
        for label, values in self.repeats.items():
            for value in values:
                if not math.isfinite(value):
                    raise ValueError(
                        f"a repeat of {label!r} is {value!r}: leave a repeat that gave no number "
                        "out of all settings, and say so in `notes`"
                    )
        if self.origin not in get_args(Origin):
            known = ", ".join(map(repr, get_args(Origin)))
            raise ValueError(f"unknown origin {self.origin!r}: write one of {known}")

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
        """A result that `to_json` wrote; a tuple among its settings comes back as a list."""
        found = json.loads(text)
        found["repeats"] = {label: tuple(values) for label, values in found["repeats"].items()}
        found["notes"] = tuple(found["notes"])
        return cls(**found)
