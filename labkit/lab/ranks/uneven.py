"""Ranks that have different numbers of batches, and what becomes of the steps they take together.

A step ends with an `all_reduce`: every rank gives its gradients and gets the sum of all. It needs
all ranks. These functions run in the ranks; `labkit.lab.ranks.Ranks.run` sends them there.

`Steps` is the least that PyTorch's `Join` can look after. Mirrors: torch.distributed.algorithms,
where DistributedDataParallel is such a `Joinable`, too.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join, Joinable, JoinHook

__all__ = ["Steps", "all_reduce_within", "joined", "until_one_ends"]


def all_reduce_within(seconds: float, value: float, group: dist.ProcessGroup) -> float | str:
    """The sum of all ranks' values, or "waits on" if it is not there in time.

    Args:
        seconds: of patience. Without such a limit, gloo waits for half an hour.
        value: this rank's.
        group: spoilt once somebody has given up.
    """
    total = torch.tensor([value])
    work = dist.all_reduce(total, group=group, async_op=True)
    assert work is not None
    try:
        work.wait(timedelta(seconds=seconds))
    except RuntimeError:
        return "waits on"
    return float(total)


def until_one_ends(batches: list[int]) -> int:
    """Ask before each step whether all ranks have a batch left; gives the steps taken.

    Args:
        batches: how many each rank has, by rank.
    """
    steps, mine = 0, batches[dist.get_rank()]
    while True:
        have_one = torch.tensor([steps < mine], dtype=torch.int)
        dist.all_reduce(have_one, dist.ReduceOp.MIN)
        if not have_one:
            return steps
        dist.all_reduce(torch.ones(1))
        steps += 1


class Steps(Joinable):
    """Steps that end with an `all_reduce`; who has no batch left gives zeros to those of others.

    Attributes:
        taken: own steps.
        shadowed: those of others after that.
    """

    def __init__(self) -> None:
        super().__init__()
        self.taken = self.shadowed = 0

    def step(self) -> float:
        """Take a step; gives the sum over the ranks."""
        Join.notify_join_context(self)
        total = torch.ones(1)
        dist.all_reduce(total)
        self.taken += 1
        return float(total)

    def join_hook(self, **_: Any) -> JoinHook:
        return _Shadow(self)

    @property
    def join_device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def join_process_group(self) -> Any:
        return dist.group.WORLD


class _Shadow(JoinHook):
    """What a rank does that has ended: the others' collectives, so that they find a partner."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def main_hook(self) -> None:
        dist.all_reduce(torch.zeros(1))
        self._steps.shadowed += 1


def joined(batches: list[int]) -> tuple[int, int]:
    """Take all batches under `Join`; gives the own steps, and those of others that were shadowed.

    Args:
        batches: how many each rank has, by rank.
    """
    steps = Steps()
    with Join([steps]):
        for _ in range(batches[dist.get_rank()]):
            steps.step()
    return steps.taken, steps.shadowed
