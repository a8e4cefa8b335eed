"""What the episodes load, and how a worker is brought to a stage: the hooks are in the data.

Sample i of epoch e is `1000 * e + i`, so order and epoch can be read off a batch. Epoch 1 is the
one in which the fault comes: the second batch of a worker that is to be hit is armed.
"""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset

import labkit
from labkit.collate import default_collate
from tests.faults.episode import Episode
from tests.faults.gate import Hook

__all__ = ["BATCHES", "PlantedError", "armed", "die_quietly", "expected", "make_loader"]

BATCH_SIZE = 2
BATCHES = 8  # an epoch
_SAMPLES = BATCHES * BATCH_SIZE
_FILLER_BYTES = 4 << 20  # more than a socket holds


class PlantedError(ValueError):
    """What a worker's own code raises."""


@dataclass(frozen=True)
class Stage:
    """The stage in which armed batches stop, and what knows them.

    Args:
        name: of the stage; "": nowhere.
        firsts: the first values of the armed batches.
        hook: where to report.
    """

    name: str
    firsts: frozenset[int]
    hook: Hook

    def meet(self, name: str, first: int) -> None:
        """At this stage, with the batch that begins with this value: wait, if it is armed."""
        if self.name == name and first in self.firsts:
            self.obey()

    def obey(self) -> None:
        """Wait here, and do what is ordered."""
        if self.hook.wait(self.name) == "raise":
            raise PlantedError(f"planted while {self.name}")


class SlowToPickle:
    """Comes with an armed batch: pickling it is the stage, or the moment before sending it."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def __reduce__(self) -> tuple[Any, ...]:
        self.stage.obey()
        return str, ("pickled",)


class Numbers(Dataset[Any]):
    """Map-style."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.epoch = 0

    def __len__(self) -> int:
        return _SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        value = 1000 * self.epoch + index
        self.stage.meet("fetching", value)
        return torch.full((100,), value)


class NumberStream(IterableDataset[Any]):
    """Iterable: each worker has a part of its own."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.epoch = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = labkit.get_worker_info()
        assert info is not None
        part = _SAMPLES // info.num_workers
        for index in range(info.id * part, (info.id + 1) * part):
            value = 1000 * self.epoch + index
            self.stage.meet("fetching", value)
            yield torch.full((100,), value)


@dataclass
class Collate:
    """The default collate, with the stages that come after it."""

    stage: Stage

    def __call__(self, samples: list[torch.Tensor]) -> dict[str, Any]:
        first = int(samples[0][0])
        self.stage.meet("collating", first)
        batch = {"x": default_collate(samples)}
        if first in self.stage.firsts:
            if self.stage.name == "sending":
                batch["filler"] = bytes(_FILLER_BYTES)
            if self.stage.name in ("pickling", "sending"):
                batch["slow"] = SlowToPickle(self.stage)
            if self.stage.name == "idle":
                self.stage.hook.report("idle")
        return batch


@dataclass
class Prepare:
    """The `worker_init_fn`: a planted death is quiet, and a worker can be told to exit."""

    hook: Hook
    with_agent: bool

    def __call__(self, worker_id: int) -> None:
        die_quietly()
        if self.with_agent:
            threading.Thread(target=_exit_when_told, args=(self.hook,), daemon=True).start()


def die_quietly() -> None:
    """No core file, and no traceback from whoever handles crashes: they are planted."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)


def _exit_when_told(hook: Hook) -> None:
    if hook.wait("agent") == "exit":
        os._exit(7)


def make_loader(episode: Episode, hook: Hook) -> labkit.DataLoader[Any]:
    """The loader of an episode, its second batches of epoch 1 armed."""
    numbers = armed(episode, 1 if episode.victim == "a worker" else episode.workers)
    firsts = frozenset(expected(episode, 1)[number][0] for number in numbers)
    stage = Stage(episode.stage, firsts, hook)
    dataset = Numbers(stage) if episode.kind == "map" else NumberStream(stage)
    with_agent = episode.fault == "os._exit" and episode.hits_workers
    return labkit.DataLoader(
        dataset,
        BATCH_SIZE,
        num_workers=episode.workers,
        prefetch_factor=1,
        collate_fn=Collate(stage),
        worker_init_fn=Prepare(hook, with_agent),
        persistent_workers=episode.persistent,
        multiprocessing_context=episode.start_method,
        sharing_strategy=episode.strategy,
    )


def armed(episode: Episode, victims: int) -> list[int]:
    """The numbers of the second batches of so many workers."""
    return list(range(episode.workers, episode.workers + victims))


def expected(episode: Episode, epoch: int) -> list[list[int]]:
    """The batches of an epoch, in order."""
    if episode.kind == "map":
        starts = list(range(0, _SAMPLES, BATCH_SIZE))
    else:
        parts = range(0, _SAMPLES, _SAMPLES // episode.workers)
        starts = [
            part + turn * BATCH_SIZE for turn in range(BATCHES // episode.workers) for part in parts
        ]
    return [[1000 * epoch + start + i for i in range(BATCH_SIZE)] for start in starts]
