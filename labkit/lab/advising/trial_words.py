"""What a trial showed, in words: how many times as fast, with its interval, and both medians.

Before it: `trials`; `labkit.lab.explain`, which judges. After it: `wording`.
"""

from __future__ import annotations

from collections.abc import Iterator

from labkit.lab.advising.findings import Trial
from labkit.lab.explain import compare, fewest_repeats
from labkit.lab.explain.effects import NEGLIGIBLE, Effect
from labkit.lab.explain.wording import number
from labkit.lab.results import Result

__all__ = ["effect_of", "many", "screened_words", "trial_words"]


def effect_of(trial: Trial) -> Effect:
    """How the most promising setting did beside the baseline."""
    return compare(trial.result, trial.compared, trial.baseline)


def trial_words(trial: Trial) -> str:
    """The same in words: factor, interval, both medians."""
    effect = effect_of(trial)
    medians = (
        f"{number(trial.result.median(trial.compared))} ms in place of "
        f"{number(trial.result.median(trial.baseline))} ms with {trial.baseline}"
    )
    what = "to an epoch's first batch, " if trial.about == "start" else ""
    if effect.verdict == "unknown":
        return (
            f"{what}{medians}, which tells nothing beyond chance, of "
            f"{many(effect.pairs, 'repeat')}: give it more time, for {fewest_repeats()} or more "
            "(seconds=…, --seconds)"
        )
    return f"{what}{_effect_words(effect)} ({_interval(effect)}, n = {effect.pairs}): {medians}"


def _effect_words(effect: Effect) -> str:
    if effect.verdict == "less":
        return f"{1 / effect.size:.2f} times as fast"
    if effect.verdict == "more":
        return f"takes {effect.size:.2f} times as long"
    if effect.verdict == "slight":
        sure = f"{NEGLIGIBLE - 1:.0%}"
        return f"no difference that is sure to exceed {sure}, ratio {effect.size:.2f}"
    return f"no difference beyond the spread, ratio {effect.size:.2f}"


def _interval(effect: Effect) -> str:
    low, high = effect.low, effect.high
    if effect.verdict == "less":
        low, high = 1 / effect.high, 1 / effect.low
    return f"95% interval {low:.2f} to {high:.2f}"


def screened_words(trial: Trial, screened: Result) -> Iterator[str]:
    """What was screened and then not measured further, in a sentence, if there is anything."""
    others = [la for la in screened.labels if la not in (trial.baseline, trial.compared)]
    if others:
        told = "; ".join(f"{label} {number(screened.median(label))} ms" for label in others)
        beside = ", ".join(
            f"{label} {number(screened.median(label))} ms"
            for label in (trial.compared, trial.baseline)
        )
        rounds = many(len(screened.repeats[trial.baseline]), "round")
        yield (
            f"Screened only, in {rounds}, which picks what is worth measuring and proves nothing: "
            f"{told}; beside them {beside}."
        )


def many(count: int, what: str) -> str:
    """So many of them: "1 batch", "2,000 samples"."""
    plural = f"{what}es" if what.endswith("ch") else f"{what}s"
    return f"{count:,} {what if count == 1 else plural}"
