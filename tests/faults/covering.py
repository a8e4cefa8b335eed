"""A few episodes in which every pair of values occurs: of each two factors, each two values.

Most faults that a combination of circumstances brings out need no more than two of them (D. R. Kuhn
et al., "Software Fault Interactions and Implications for Software Testing", IEEE TSE 2004). Before
it: `episode`, the whole grid. After it: `test_episodes`, which runs them.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from tests.faults.episode import Episode

__all__ = ["covering", "pairs_of"]

Pair = tuple[tuple[str, Any], tuple[str, Any]]


def pairs_of(episode: Episode) -> set[Pair]:
    """The pairs of values that occur in an episode."""
    values = [(field.name, getattr(episode, field.name)) for field in fields(episode)]
    return set(itertools.combinations(values, 2))


def covering(episodes: Iterable[Episode], dear: str = "spawn") -> list[Episode]:
    """Some of the episodes, such that every pair that occurs in any occurs in one of them.

    Greedy: always the one with the most pairs that are new. Where two have as many, the one whose
    start method is not the dear one, so that this is chosen as seldom as can be; then the one whose
    fault was chosen less often.
    """
    left = {episode: pairs_of(episode) for episode in episodes}
    wanted = set().union(*left.values()) if left else set()
    uses: Counter[Any] = Counter()
    chosen = []
    while wanted:
        best = max(
            left,
            key=lambda episode: (
                len(left[episode] & wanted),
                episode.start_method != dear,
                -uses[episode.fault],
            ),
        )
        chosen.append(best)
        uses[best.fault] += 1
        wanted -= left.pop(best)
    return chosen
