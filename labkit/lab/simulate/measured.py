"""What the layers of a loader cost: distributions that a simulation draws from.

Before it: `from_trace`, `measuring`, which find it. After it: `drawn`, `bounds`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["LAYERS", "PER_SAMPLE", "Costs", "Measured"]

LAYERS = ("fetch", "collate", "loop", "feeder", "dispatch", "rebuild", "here")
"""What a batch costs, in the order of its way: "fetch" and "collate" of the worker, "loop" for what
the worker does besides; "feeder", its thread that pickles and sends; of the main process "dispatch"
(sampler, dispatch, take) and "rebuild" (receive, rebuild). "here": fetch and collate in the main
process, without workers, where no memory is recycled."""

PER_SAMPLE = ("fetch", "collate", "here")
"""Those that take twice as long for twice as many samples; the others are of a batch, however large
it is, for the bytes of a batch lie in shared memory and do not travel."""

_DRAWN = 64  # samples are drawn one by one; of larger batches the sum is scaled


@dataclass(frozen=True)
class Costs:
    """What a layer costs for a batch of n samples: what is fixed, and n times a draw.

    Attributes:
        cpu, wait: of one sample, in seconds: on a core, and waiting for something that is none. The
            i-th of both belong together. A draw may be below zero where its spread was worked out
            from that of whole batches; a batch's sum is not.
        fixed_cpu, fixed_wait: of a batch, whatever its size.
    """

    cpu: tuple[float, ...] = (0.0,)
    wait: tuple[float, ...] = (0.0,)
    fixed_cpu: float = 0.0
    fixed_wait: float = 0.0

    def __post_init__(self) -> None:
        if not self.cpu or len(self.cpu) != len(self.wait):
            raise ValueError(
                f"costs are pairs of cpu and wait, at least one, but got {len(self.cpu)} of cpu "
                f"and {len(self.wait)} of wait"
            )
        if not all(map(math.isfinite, (*self.cpu, *self.wait, self.fixed_cpu, self.fixed_wait))):
            raise ValueError("costs are finite numbers of seconds, but one is inf or nan")

    @classmethod
    def of_batches(cls, cpu: Sequence[float], wait: Sequence[float], samples: int) -> Costs:
        """From whole batches of so many samples: the sum of n draws has their mean and spread."""

        def of_one(values: Sequence[float]) -> tuple[float, ...]:
            mean = statistics.fmean(values) / samples
            return tuple(mean + (value / samples - mean) * samples**0.5 for value in values)

        return cls(of_one(cpu), of_one(wait))

    def mean(self, samples: int) -> tuple[float, float]:
        """The mean of a batch: seconds of cpu, seconds of waiting."""
        return (
            self.fixed_cpu + samples * statistics.fmean(self.cpu),
            self.fixed_wait + samples * statistics.fmean(self.wait),
        )

    def draw(
        self, generator: np.random.Generator, batches: int, samples: int
    ) -> tuple[list[float], list[float]]:
        """Seconds of cpu and of waiting for each of so many batches."""
        few = min(samples, _DRAWN)
        picked = generator.integers(len(self.cpu), size=(batches, few))
        pairs = ((self.cpu, self.fixed_cpu), (self.wait, self.fixed_wait))
        cpu, wait = (_summed(values, picked, samples, fixed) for values, fixed in pairs)
        return cpu, wait

    def and_on_average(self, other: Costs) -> Costs:
        """These, and the mean of others on top of each."""
        cpu, wait = statistics.fmean(other.cpu), statistics.fmean(other.wait)
        return Costs(
            tuple(value + cpu for value in self.cpu),
            tuple(value + wait for value in self.wait),
            self.fixed_cpu + other.fixed_cpu,
            self.fixed_wait + other.fixed_wait,
        )

    def scaled(self, cpu: float) -> Costs:
        """The same with its cpu so many times as large."""
        more = tuple(cpu * value for value in self.cpu)
        return dataclasses.replace(self, cpu=more, fixed_cpu=cpu * self.fixed_cpu)


def _summed(
    values: tuple[float, ...], picked: NDArray[np.int64], samples: int, fixed: float
) -> list[float]:
    array = np.asarray(values)
    drawn = picked.shape[1]
    sums = array[picked].sum(axis=1)
    mean = drawn * array.mean()
    whole = samples * array.mean() + (samples / drawn) ** 0.5 * (sums - mean)
    costs: list[float] = np.maximum(whole + fixed, 0.0).tolist()
    return costs


@dataclass(frozen=True)
class Measured:
    """What the layers of one loader cost, and where that was found.

    Attributes:
        layers: by the names in `LAYERS`.
        batch_size: samples of a batch when it was measured.
        sample_bytes: of a batch, by its samples: what is copied to a device, and what a collate
            reads and writes. 0 where nobody told.
        crowded: how many times as long the same work takes on a core when all cores are at work.
        what: what was loaded, in a few words.
        machine: where and with which versions (`labkit.lab.machine.machine`).
        notes: what a reader must know besides, a sentence each.
    """

    layers: dict[str, Costs]
    batch_size: int
    sample_bytes: float = 0.0
    crowded: float = 1.0
    what: str = "a trace"
    machine: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        unknown = set(self.layers) - set(LAYERS)
        if unknown:
            raise ValueError(f"unknown layers {sorted(unknown)}: there are {', '.join(LAYERS)}")
        if self.batch_size < 1:
            raise ValueError(f"a batch has 1 sample or more, but got {self.batch_size!r}")

    def of(self, layer: str) -> Costs:
        """The costs of a layer; nothing where it was not seen.

        Loading in the main process costs what it costs in a worker, where nobody has seen it.
        """
        if layer == "here" and layer not in self.layers:
            return self.of("fetch").and_on_average(self.of("collate"))
        return self.layers.get(layer, Costs())

    def to_json(self) -> str:
        """As JSON text, which `from_json` reads."""
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Measured:
        """What `to_json` wrote."""
        found = json.loads(text)
        found["layers"] = {
            name: Costs(**{**costs, "cpu": tuple(costs["cpu"]), "wait": tuple(costs["wait"])})
            for name, costs in found["layers"].items()
        }
        found["notes"] = tuple(found["notes"])
        return cls(**found)

    @classmethod
    def read(cls, path: str | Path) -> Measured:
        """What a file holds that `to_json` wrote."""
        return cls.from_json(Path(path).read_text())
