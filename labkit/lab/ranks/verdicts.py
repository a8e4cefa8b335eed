"""Whether what the ranks read is disjoint, complete and equal in number.

Before it: samplers and ranks, which give the indices. After it: tables in notebook 12.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

__all__ = ["Verdict", "judged"]


@dataclass(frozen=True)
class Verdict:
    """What ranks read in one epoch.

    Attributes:
        counts: how many samples each rank read, by rank.
        disjoint: nobody read what another, or it itself, read too.
        complete: every sample was read.
        equal: all read as many.
        repeated: how many reads were of a sample that had been read already.
        missing: how many samples nobody read.
    """

    counts: tuple[int, ...]
    disjoint: bool
    complete: bool
    equal: bool
    repeated: int
    missing: int

    def __str__(self) -> str:
        words = (("disjoint", self.disjoint), ("complete", self.complete), ("equal", self.equal))
        return ", ".join(f"{name}: {'yes' if holds else 'no'}" for name, holds in words)


def judged(shares: Sequence[Sequence[Hashable]], length: int) -> Verdict:
    """Judge what each rank read of samples 0 to length − 1.

    Args:
        shares: the indices that each rank read, by rank.
        length: of the dataset.

    Raises:
        ValueError: an index is not of the dataset.
    """
    reads = Counter(index for share in shares for index in share)
    if strange := sorted(map(str, set(reads) - set(range(length)))):
        raise ValueError(f"read were {', '.join(strange)}, but there are only 0 to {length - 1}")
    counts = tuple(map(len, shares))
    return Verdict(
        counts=counts,
        disjoint=all(times == 1 for times in reads.values()),
        complete=len(reads) == length,
        equal=len(set(counts)) <= 1,
        repeated=sum(counts) - len(reads),
        missing=length - len(reads),
    )
