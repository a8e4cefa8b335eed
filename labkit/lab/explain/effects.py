"""How one setting of a result compares with another: the effect, its interval, a verdict.

A difference is claimed only if the whole interval lies beyond it, and beyond 3%: repeats side by
side cannot tell smaller ones from what else differs between two runs, such as where things lie in
memory (T. Mytkowicz and others, "Producing wrong data without doing anything obviously wrong!",
ASPLOS 2009). With several comparisons of one result each interval is wider, so that all hold
together (Bonferroni's correction).

Before it: `results`, and `paired`, which has the test. After it: `explain`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from labkit.lab.explain.paired import fewest_pairs, paired_shift
from labkit.lab.results import Result

__all__ = ["NEGLIGIBLE", "Effect", "Scale", "Verdict", "compare", "fewest_repeats"]

NEGLIGIBLE = 1.03
"""Ratios between this and its inverse count as no difference."""

_ERROR_RATE = 0.05

Scale = Literal["ratio", "difference"]
Verdict = Literal["more", "less", "slight", "none", "unknown"]


@dataclass(frozen=True)
class Effect:
    """One setting against another.

    Attributes:
        label, baseline: the settings.
        scale: "ratio" of label to baseline; "difference" in the result's unit, where a value is 0
            or below and no ratio can be taken.
        size: the estimate.
        low, high: its interval, which holds with 95% or more, together with those of all other
            comparisons; it has no end where there are too few repeats.
        pairs: repeats that both settings have.
        comparisons: how many the interval allows for.
        is_constant: whether each pair of repeats says the same.
    """

    label: str
    baseline: str
    scale: Scale
    size: float
    low: float
    high: float
    pairs: int
    comparisons: int = 1
    is_constant: bool = False

    @property
    def verdict(self) -> Verdict:
        """How the label's values lie to the baseline's: above ("more"); below ("less"); different,
        but by what may be negligible ("slight"); not to be told apart ("none"); too few repeats
        to tell ("unknown").
        """
        neutral, margin = (1.0, NEGLIGIBLE) if self.scale == "ratio" else (0.0, 1.0)
        if math.isinf(self.high):
            return "unknown"
        if self.low > neutral * margin:
            return "more"
        if self.high < neutral / margin:
            return "less"
        return "slight" if self.low > neutral or self.high < neutral else "none"

    def inverse(self) -> Effect:
        """The same, seen from the other setting."""
        if self.scale == "difference":
            size, low, high = -self.size, -self.high, -self.low
        elif self.verdict == "unknown":
            size, low, high = 1 / self.size, self.low, self.high
        else:
            size, low, high = 1 / self.size, 1 / self.high, 1 / self.low
        return replace(
            self, label=self.baseline, baseline=self.label, size=size, low=low, high=high
        )


def compare(result: Result, label: str, baseline: str, comparisons: int = 1) -> Effect:
    """How a setting compares with another.

    Args:
        result: has both.
        label: the setting,
        baseline: and the one that it is compared with.
        comparisons: how many like it are made of this result; widens the interval.

    Raises:
        ValueError: there is no such setting, both are the same one, or one has no repeats.
    """
    values, others = _series(result, label), _series(result, baseline)
    if label == baseline:
        raise ValueError(f"{label!r} is compared with itself: name two settings of the result")
    pairs = min(len(values), len(others))  # a run that was cancelled may have one more of a setting
    values, others = values[:pairs], others[:pairs]
    error_rate = _ERROR_RATE / comparisons
    alike = len(set(zip(values, others, strict=True))) == 1
    if min(*values, *others) <= 0:
        shift = paired_shift(values, others, error_rate)
        found = (shift.estimate, shift.low, shift.high)
        return Effect(label, baseline, "difference", *found, pairs, comparisons, alike)
    logs, other_logs = ([math.log(value) for value in series] for series in (values, others))
    shift = paired_shift(logs, other_logs, error_rate)
    ratio = (math.exp(shift.estimate), math.exp(shift.low), math.exp(shift.high))
    return Effect(label, baseline, "ratio", *ratio, pairs, comparisons, alike)


def _series(result: Result, label: str) -> Sequence[float]:
    if label not in result.repeats:
        known = ", ".join(map(repr, result.labels))
        raise ValueError(f"the result has no setting {label!r}: write one of {known}")
    if not result.repeats[label]:
        raise ValueError(f"nothing was measured for {label!r}: run the experiment to its end")
    return result.repeats[label]


def fewest_repeats(comparisons: int = 1) -> int:
    """With fewer repeats nothing is claimed by so many comparisons together."""
    return fewest_pairs(_ERROR_RATE / max(1, comparisons))
