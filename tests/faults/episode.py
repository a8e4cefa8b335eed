"""What an episode is: who is hit, by what, in which stage, under which setting.

The grid is the product of seven factors, less the combinations that mean nothing. After it:
`running`, which runs one; `covering`, which chooses a few.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import labkit

__all__ = ["FACTORS", "Episode", "Outcome", "all_episodes"]

FACTORS: dict[str, tuple[Any, ...]] = {
    "start_method": ("fork", "forkserver", "spawn"),
    "strategy": tuple(sorted(labkit.get_all_sharing_strategies())),
    "kind": ("map", "iterable"),
    "persistent": (False, True),
    "stage": ("idle", "fetching", "collating", "pickling", "sending"),
    "fault": (
        "SIGKILL",
        "SIGSEGV",
        "SIGTERM",
        "SIGSTOP, SIGCONT",
        "os._exit",
        "exception",
        "interpreter exit",
    ),
    "victim": ("a worker", "all workers", "main process", "process group"),
}


@dataclass(frozen=True)
class Episode:
    """One fault. The fields are the factors, in their order."""

    start_method: str
    strategy: str
    kind: str  #: of the dataset
    persistent: bool
    stage: str  #: of the workers when the fault comes; "sending": in the middle of a message
    fault: str
    victim: str

    @property
    def is_possible(self) -> bool:
        """Whether the combination means anything.

        A worker's own code, which may raise, runs while it fetches, collates or pickles. Signals
        alone go to a process group. Of "exits" of an interpreter only the main process's is new.
        """
        if self.fault == "interpreter exit":
            return self.victim == "main process"
        if self.victim == "process group":
            return self.fault.startswith("SIG")
        if self.fault == "exception" and self.victim != "main process":
            return self.stage not in ("idle", "sending")
        return True

    @property
    def hits_workers(self) -> bool:
        return self.victim in ("a worker", "all workers")

    @property
    def workers(self) -> int:
        """How many the loader has. A spawned one imports torch, which takes seconds: one will do
        there, but for all of them to be hit.
        """
        return 1 if self.start_method == "spawn" and self.victim != "all workers" else 2

    @property
    def kills(self) -> bool:
        """Whether who is hit is dead then, at once and without a word."""
        return self.fault in ("SIGKILL", "SIGSEGV", "SIGTERM", "os._exit")

    def __str__(self) -> str:
        persistent = "persistent" if self.persistent else "passing"
        return (
            f"{self.fault} of {self.victim}, {self.stage}: {self.start_method}, {self.strategy}, "
            f"{self.kind}, {persistent}"
        )


@dataclass
class Outcome:
    """How an episode ended."""

    seconds: float = 0.0  #: from the fault to what must follow it soon: an error, workers' ends …
    bound: float = 1.0  #: seconds it may take
    close_seconds: float = 0.0  #: that `close` of the loader took afterwards
    tries: int = 1  #: runs until one kept its bounds; a busy machine may need two
    wrong: list[str] = field(default_factory=list)  #: what was not as it must be; empty: good

    @property
    def is_late(self) -> bool:
        return self.seconds > self.bound or self.close_seconds > CLOSE_BOUND

    @property
    def verdict(self) -> list[str]:
        """All that is to be complained of."""
        late = f"took {self.seconds:.2f} s of {self.bound:.0f}, close {self.close_seconds:.2f} s"
        return [*self.wrong, late] if self.is_late else self.wrong


CLOSE_BOUND = 5.0


def all_episodes() -> Iterator[Episode]:
    """The whole grid, one setting after the other."""
    for values in itertools.product(*FACTORS.values()):
        if (episode := Episode(*values)).is_possible:
            yield episode
