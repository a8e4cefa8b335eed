"""An experiment on a device, with the settings of which recordings are made.

After it: the experiments, which check their arguments here; the table `EXPERIMENTS` of the package,
and `record`, which runs them.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from labkit.lab.results import Result

__all__ = ["Experiment", "check_known"]

_MEASURING = {
    *("device", "repeats", "warmup", "where", "limit_s", "seconds"),
    *("progress", "so_far", "cancel"),
}


@dataclass(frozen=True)
class Experiment:
    """What can be measured on a device.

    Attributes:
        run: `run(device, **settings)`, which also takes `seconds`, `progress`, `so_far` and
            `cancel` as `labkit.lab.experiments.measure` does; a function of a module.
        recorded: the settings that are recorded on an accelerator, each in a recording of its own.
        tried: the settings with which it is tried on the simulated device, small ones; None for
            those of `recorded`.
    """

    run: Callable[..., Result]
    recorded: tuple[Mapping[str, Any], ...] = ({},)
    tried: tuple[Mapping[str, Any], ...] | None = None

    def settings(self, simulated: bool) -> tuple[Mapping[str, Any], ...]:
        """The settings with which it is recorded on such a device."""
        return self.tried if simulated and self.tried is not None else self.recorded

    def full(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings with the defaults of those left out, as JSON has them.

        Two such dicts are equal where the same was asked for. How long and how often it was
        measured is no setting.
        """
        parameters = inspect.signature(self.run).parameters.values()
        defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        full = {**defaults, **settings}
        full = {name: value for name, value in full.items() if name not in _MEASURING}
        found: dict[str, Any] = json.loads(json.dumps(full))
        return found


def check_known(argument: str, value: str, known: Sequence[str]) -> None:
    """Check an argument that is one of a few words.

    Raises:
        ValueError: it is none of them; names them.
    """
    if value not in known:
        raise ValueError(
            f"unknown {argument} {value!r}: write one of {', '.join(map(repr, known))}"
        )
