"""A few episodes in which every pair of values occurs: of each two factors, each two values. Or
every three.

Most faults that a combination of circumstances brings out need no more than two of them (D. R. Kuhn
et al., "Software Fault Interactions and Implications for Software Testing", IEEE TSE 2004). Before
it: `episode`, the whole grid. After it: `test_episodes`, which runs them.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from tests.faults.episode import Episode

__all__ = ["covering", "met_in"]

Combination = tuple[tuple[str, Any], ...]


def met_in(episode: Episode, size: int = 2) -> set[Combination]:
    """The combinations of so many values that occur in an episode."""
    values = [(field.name, getattr(episode, field.name)) for field in fields(episode)]
    return set(itertools.combinations(values, size))


def covering(episodes: Iterable[Episode], size: int = 2, dear: str = "spawn") -> list[Episode]:
    """Some of the episodes, such that every combination that occurs in any occurs in one of them.

    Greedy: always the one with the most combinations that are new. Where two have as many, the one
    whose start method is not the dear one, so that this is chosen as seldom as can be; then the one
    whose fault was chosen less often.
    """
    number = itertools.count()
    bit_of: defaultdict[Combination, int] = defaultdict(lambda: 1 << next(number))
    # A set of combinations as the bits of a number, for there are many episodes.
    left = {episode: sum(bit_of[met] for met in met_in(episode, size)) for episode in episodes}
    wanted = (1 << len(bit_of)) - 1
    uses: Counter[Any] = Counter()
    chosen = []
    while wanted:
        best = max(
            left,
            key=lambda episode: (
                (left[episode] & wanted).bit_count(),
                episode.start_method != dear,
                -uses[episode.fault],
            ),
        )
        chosen.append(best)
        uses[best.fault] += 1
        wanted &= ~left.pop(best)
    return chosen
