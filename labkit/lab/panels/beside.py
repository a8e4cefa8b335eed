"""What a panel shows beside its own runs: the recording of the same settings, or why there is none.

Before it: `recorded`. After it: `model`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from labkit.lab import recorded
from labkit.lab.explain import sentence
from labkit.lab.results import Result

__all__ = ["Beside", "look_up"]


@dataclass(frozen=True)
class Beside:
    """A recorded result, and the words that go with it.

    Attributes:
        result: None where no recording has these settings.
        words: what it shows, where it comes from and how old it is; or how to make one.
    """

    result: Result | None
    words: str


def look_up(experiment: str, settings: Mapping[str, Any], simulated: bool = False) -> Beside:
    """The recording of these settings.

    Args:
        experiment: its name in `labkit.lab.on_device.EXPERIMENTS`.
        settings: the panel's.
        simulated: also take one of a simulated device.

    Raises:
        KeyError: there is no such experiment.
    """
    try:
        found = recorded.find(experiment, settings, simulated=simulated)
    except recorded.DamagedRecording as error:
        return Beside(None, str(error))
    if found is None:
        return Beside(None, f"Nothing is recorded for these settings: {recorded.HOW_TO_MAKE_ONE}.")
    return Beside(found.result, f"{sentence(found.result)} {found.words}")
