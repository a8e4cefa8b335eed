"""How the bench measures.

After it: `bench`, `group_run`, `to_device`.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["REPEATS", "Options"]

REPEATS = 7


@dataclass(frozen=True)
class Options:
    """How to measure."""

    repeats: int = REPEATS
    scale: float = 1.0  #: of the time over which a repeat is taken
    peers: bool = False
