"""What becomes of an object that is given to a thread or to a process: is it copied, or shared?

Found by trying, in programs of their own: `programs.counters` and `programs.kinds`. After it:
notebook 07, its exercise `07.copied_or_shared`, and `address_spaces`, which draws it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from labkit.lab.child import output_of
from labkit.lab.programs import counters, kinds

__all__ = ["Way", "by_kind", "handed_over"]


@dataclass(frozen=True)
class Way:
    """What was found of counters, 0 at first, to which a thread or a child process added 1.

    Attributes:
        name: "thread", or the child's start method.
        same_ids: whether each of them has the same id there as here.
        there: their value there.
        here: their value here, afterwards.
    """

    name: str
    same_ids: bool
    there: int
    here: int

    @property
    def is_shared(self) -> bool:
        """Whether what was written there is seen here."""
        return self.here == self.there

    def __str__(self) -> str:
        ids = "all the same" if self.same_ids else "different"
        return f"{self.name:10}  ids: {ids:12}  value there: {self.there}  value here: {self.here}"


def handed_over(limit_s: float = 60) -> list[Way]:
    """Give counters to a thread, and to a process under each start method.

    Raises:
        RuntimeError: the program failed; says what it wrote.
        subprocess.TimeoutExpired: it took longer than `limit_s`.
    """
    found = json.loads(output_of([sys.executable, counters.__file__], limit_s))
    return [
        Way(name, seen["same ids"], seen["there"], seen["here"]) for name, seen in found.items()
    ]


@cache
def by_kind() -> Mapping[str, Mapping[str, int]]:
    """By way and kind of object, the value here after 1 was added to 0 there.

    Raises:
        RuntimeError: the program failed; says what it wrote.
    """
    found: Mapping[str, Mapping[str, int]]
    found = json.loads(output_of([sys.executable, kinds.__file__]))
    return found
