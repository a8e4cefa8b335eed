"""Simulated time: waits that take no core, and work that shares cores.

With no more work than cores, each has a core of its own; with more, all go on at the same rate,
each as if it had its share of a core (processor sharing: L. Kleinrock, "Queueing Systems" II, 1976,
chapter 4; Linux' scheduler comes close to it). Two things slow all work down besides:

- `crowded`: with all cores at work, each is slower (its clock, its caches, its twin thread);
- memory: work that moves bytes has to share what the memory moves in a second.

All work of one kind goes on at one rate. So a job is noted once, with the reading of its kind's own
clock at which it will be done, and no job is looked at when a rate changes.

After it: `pipeline`, which says what is done when.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

__all__ = ["SharedCores"]

_Then = Callable[[], None]
_Noted = tuple[float, int, _Then, float]  # when it ends, its number, what follows, bytes a second

_NEVER = float("inf")
_ASKED_EVERY = 64  # things: to ask after each would cost more than they do


class SharedCores:
    """A machine's cores and its memory, in simulated seconds.

    Args:
        cores: how many.
        crowded: how many times as long work takes when all cores are at work, 1 or more.
        memory_bytes_per_second: what work with bytes may move in all; None for no limit.

    Attributes:
        now: the time.
        worked: seconds that cores were at work.
    """

    def __init__(
        self,
        cores: float,
        crowded: float = 1.0,
        memory_bytes_per_second: float | None = None,
    ) -> None:
        self.now = 0.0
        self.worked = 0.0
        self._cores = cores
        self._slower = crowded - 1
        self._bandwidth = memory_bytes_per_second
        self._number = 0  # of the next thing: of two at one time, the earlier noted comes first
        self._timers: list[_Noted] = []
        self._plain: list[_Noted] = []  # which end at a reading of the kind's own clock
        self._moving: list[_Noted] = []
        self._plain_clock = self._moving_clock = 0.0
        self._demand = 0.0  # bytes a second that all moving work would move if nothing held it up

    def after(self, seconds: float, then: _Then) -> None:
        """Call this in so many seconds; until then nobody works."""
        self._number += 1
        heapq.heappush(self._timers, (self.now + seconds, self._number, then, 0.0))

    def work(self, seconds: float, then: _Then, nbytes: float = 0.0) -> None:
        """Call this when a core has worked for so many seconds, and moved so many bytes."""
        self._number += 1
        if seconds <= 0:
            heapq.heappush(self._timers, (self.now, self._number, then, 0.0))
        elif nbytes and self._bandwidth is not None:
            self._demand += nbytes / seconds
            done = self._moving_clock + seconds
            heapq.heappush(self._moving, (done, self._number, then, nbytes / seconds))
        else:
            heapq.heappush(self._plain, (self._plain_clock + seconds, self._number, then, 0.0))

    def run(self, enough: Callable[[], bool]) -> None:
        """Go from one thing that ends to the next, and do what follows each, until it is enough.

        Args:
            enough: asked now and then.

        Raises:
            RuntimeError: nothing is left that could end.
        """
        while not enough():
            for _ in range(_ASKED_EVERY):
                self._step()

    def _step(self) -> None:
        plain, moving = self._plain, self._moving
        working = len(plain) + len(moving)
        share, moving_share = self._shares(working) if working else (1.0, 1.0)
        at, which = self._timers[0][0] if self._timers else _NEVER, self._timers
        if plain:
            done = self.now + (plain[0][0] - self._plain_clock) / share
            if done < at:
                at, which = done, plain
        if moving:
            done = self.now + (moving[0][0] - self._moving_clock) / moving_share
            if done < at:
                at, which = done, moving
        if at == _NEVER:
            raise RuntimeError("nothing is left that could end: whoever waits waits for ever")
        passed = at - self.now
        if passed > 0:
            self.now = at
            self.worked += passed * share * working
            self._plain_clock += passed * share
            self._moving_clock += passed * moving_share
        _, _, then, demand = heapq.heappop(which)
        if which is moving:
            self._demand = self._demand - demand if moving else 0.0
        then()

    def _shares(self, working: int) -> tuple[float, float]:
        """How fast plain work goes on, and work that moves bytes; 1 on a core of its own."""
        busy = working if working < self._cores else self._cores
        share = busy / working
        if self._slower and busy > 1:
            share /= 1 + self._slower * (busy - 1) / (self._cores - 1)
        if not self._demand or self._bandwidth is None:
            return share, share
        return share, share * min(1.0, self._bandwidth / (share * self._demand))
