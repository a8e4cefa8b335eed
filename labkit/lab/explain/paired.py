"""How far one series lies above another, when their repeats were measured in pairs.

If a setting makes no difference, either value of a pair could as well have been the other's. So all
2ⁿ ways of swapping values within pairs are equally likely, and a difference counts if few of them
give one as large. That supposes nothing of how the times are spread or drift; what a drift adds, it
adds to both values of a pair. What is compared is the sum of ranks among all 2n values, which an
outlier moves no further than any other large value.

Wilcoxon's signed ranks and the mean of the differences, with the same swaps, miss more: one outlier
the wrong way round has the largest rank or share there, and with few pairs that decides.

Sources: M. D. Ernst, "Permutation methods: a basis for exact inference", Statistical Science 19
(2004), pp. 676–685, for tests by swapping and intervals from them; J. L. Hodges and E. L. Lehmann,
Annals of Mathematical Statistics 34 (1963), pp. 598–611, for the estimate.

Before it: `results`. After it: `explain`, which gives it logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

__all__ = ["Shift", "fewest_pairs", "paired_shift"]

_EXACT_PAIRS = 12  # above, all swaps are too many to try, and a normal distribution is close
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Shift:
    """By how much one series lies above the other: the estimate and its interval."""

    estimate: float
    low: float
    high: float


def fewest_pairs(error_rate: float) -> int:
    """How many pairs it takes until any difference can be told from chance.

    The rarest outcome, all pairs the same way round, has probability 2/2ⁿ.
    """
    return math.ceil(math.log2(2 / error_rate) - _ROUNDING)


def paired_shift(values: Sequence[float], baseline: Sequence[float], error_rate: float) -> Shift:
    """How far `values` lie above `baseline`.

    The estimate is the median of all n² differences between a value of one and a value of the
    other. The interval is that of all shifts which the test does not reject; it misses the true one
    with probability `error_rate` or less, and is infinite with fewer than `fewest_pairs`.

    Args:
        values: n values; the i-th was measured next to the i-th of `baseline`.
        baseline: n values.
        error_rate: such as 0.05 for a 95% interval.

    Raises:
        ValueError: the series are empty or differ in length.
    """
    if len(values) != len(baseline) or len(values) == 0:
        raise ValueError(
            f"pairs are wanted, but got {len(values)} and {len(baseline)} values: give two series "
            "of the same length, at least 1"
        )
    differences = np.subtract.outer(np.asarray(values, float), np.asarray(baseline, float))
    estimate = float(np.median(differences))
    if len(values) < fewest_pairs(error_rate):
        return Shift(estimate, -math.inf, math.inf)
    steps = np.unique(differences)  # only there a rank changes, and with it the test's answer
    tried = np.empty(2 * len(steps) - 1)
    tried[::2], tried[1::2] = steps, (steps[:-1] + steps[1:]) / 2
    rank_differences = _rank_differences(differences, tried)
    (kept,) = np.nonzero(_share_of_swaps(rank_differences) > error_rate)
    low, high = steps[kept[0] // 2], steps[(kept[-1] + 1) // 2]
    return Shift(estimate, float(low), float(high))


def _rank_differences(differences: Floats, shifts: Floats) -> Ints:
    """By shift and pair, twice how many ranks the value stands above its partner, among all 2n,
    once the shift is taken off the values; equal ones share the mean of their ranks.

    Args:
        differences: (value, baseline), n × n.
        shifts: S of them.

    Returns:
        S × n.
    """
    among_values = np.sign(differences[:, :1] - differences[:, :1].T).sum(axis=1)
    among_baseline = np.sign(differences[:1].T - differences[:1]).sum(axis=1)
    across = _more_above_than_below(differences, shifts)
    across += _more_above_than_below(differences.T, shifts)
    ranks: Ints = across + (among_values + among_baseline).astype(np.int64)
    return ranks


def _more_above_than_below(rows: Floats, shifts: Floats) -> Ints:
    """By shift and row, how many of the row's values lie above the shift, less those below."""
    ordered = np.sort(rows, axis=1)
    below = [np.searchsorted(row, shifts, "left") for row in ordered]
    not_above = [np.searchsorted(row, shifts, "right") for row in ordered]
    more: Ints = rows.shape[1] - np.array(below).T - np.array(not_above).T
    return more


def _share_of_swaps(by_pair: Ints) -> Floats:
    """Which share of all ways to swap values within pairs gives a sum as far from 0 as this one.

    Args:
        by_pair: S × n differences; a swap turns the sign of one.

    Returns:
        S probabilities.
    """
    seen = np.abs(by_pair.sum(axis=1))
    n = by_pair.shape[1]
    if n > _EXACT_PAIRS:
        deviation = np.maximum(np.sqrt((by_pair**2).sum(axis=1)), 1)
        return np.array([math.erfc(z / math.sqrt(2)) for z in seen / deviation])
    signs = 1 - 2 * (np.arange(2**n)[:, None] >> np.arange(n) & 1)
    share: Floats = (np.abs(signs @ by_pair.T) >= seen).mean(axis=0)
    return share
