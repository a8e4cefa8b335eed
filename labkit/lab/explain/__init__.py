"""From a result to sentences that say what its numbers support, and no more.

`sentence` stands under a figure; `predicted` says how far off the learner was. Settings are
compared with one of them, in pairs of repeats that were measured next to each other.

Before it: `results`; `effects`, whose verdicts it words. After it: `plots`, `panels`.
"""

from __future__ import annotations

from collections.abc import Sequence

from labkit.lab.explain.effects import NEGLIGIBLE, Effect, Verdict, compare, fewest_repeats
from labkit.lab.explain.wording import ends, is_time, median_interval, number, origin_words
from labkit.lab.predictions import Prediction
from labkit.lab.results import Result

__all__ = ["NEGLIGIBLE", "Effect", "Verdict", "compare", "fewest_repeats", "predicted", "sentence"]

_CLOSE = 1.1  # a prediction so far from the interval is as good as in it
_WIDE = 1.3  # an interval that reaches so far may hide what anybody would notice


def sentence(
    result: Result, prediction: Prediction | None = None, *, baseline: str | None = None
) -> str:
    """What the result shows, and how far off the prediction was, if there is one.

    Args:
        result: of one setting or more.
        prediction: what the learner expected.
        baseline: the setting with which the others are compared; None for the first.

    Raises:
        ValueError: there is no such setting, or one has no repeats.
    """
    if not result.repeats:
        raise ValueError("the result has no settings: measure one at least")
    first = result.labels[0] if baseline is None else baseline
    others = [label for label in result.labels if label != first]
    effects = [compare(result, label, first, len(others)) for label in others]
    if not effects:
        said = _alone(result, first)
    elif any(effect.verdict == "unknown" for effect in effects):
        said = _too_few(result, effects)
    elif len(effects) == 1:
        said = _pair(result, effects[0])
    else:
        said = _several(result, effects)
    if result.origin != "live":
        said = f"{origin_words(result)}: {said}"
    return said if prediction is None else f"{said} {predicted(result, prediction)}"


def predicted(result: Result, prediction: Prediction) -> str:
    """How far off the learner's prediction was.

    Args:
        result: what was measured.
        prediction: what was expected of it.

    Raises:
        ValueError: the prediction names a setting that the result does not have, the result has a
            single one, or one has no repeats.
    """
    others = [label for label in result.labels if label != prediction.fastest]
    if not others:
        raise ValueError("a single setting cannot be the fastest: predict of two or more")
    effects = [compare(result, label, prediction.fastest, len(others)) for label in others]
    if any(effect.verdict == "unknown" for effect in effects):
        return f"Your prediction cannot be judged: {_repeats_wanted(effects)}."
    parts = [] if prediction.factor == 1 else [_fastest_predicted(result, effects)]
    if prediction.factor is not None:
        parts.append(_factor_predicted(result, prediction.factor))
    return " ".join(parts)


def _fastest_predicted(result: Result, effects: Sequence[Effect]) -> str:
    said, best = effects[0].baseline, ends(result)[0]
    ahead = [effect.label for effect in effects if effect.verdict == "less"]
    level = [effect.label for effect in effects if effect.verdict in ("none", "slight")]
    if ahead:
        was = "was" if len(ahead) == 1 else "were"
        better = "faster" if is_time(result) else "lower"
        return f"You expected {said} to be the {best}, but {_listed(ahead)} {was} {better}."
    if level:
        return (
            f"You expected {said} to be the {best}: nothing beat it, but it cannot be told from "
            f"{_listed(level)}."
        )
    return f"You expected {said} to be the {best}, and it was."


def _factor_predicted(result: Result, factor: float) -> str:
    """Of the greatest to the least, which the numbers chose: any pair might have been those two."""
    least, greatest = min(result.labels, key=result.median), max(result.labels, key=result.median)
    if least == greatest:  # all medians are equal
        least, greatest = result.labels[:2]
    count = len(result.labels)
    effect = compare(result, greatest, least, count * (count - 1) // 2)
    said = f"You expected a factor of {factor:,g} from {least} to {greatest}"
    if factor == 1:
        said = f"You expected no difference from {least} to {greatest}"
    if effect.scale == "difference":
        return f"{said}; there is none to compute, since some values are not above 0."
    if effect.verdict == "unknown":
        return f"{said}; that cannot be judged: {_repeats_wanted([effect])}."
    found = f"{_factor(effect.size)} ({_factor(effect.low)} to {_factor(effect.high)})"
    got = "simulated" if result.origin == "simulated" else "measured"
    if effect.low / _CLOSE <= factor <= effect.high * _CLOSE:
        return f"{said}, which fits what was {got}: {found}."
    off = max(effect.size / factor, factor / effect.size)
    way = "low" if factor < effect.low else "high"
    return f"{said}, which is too {way} by a factor of {_factor(off)}: {got} was {found}."


def _alone(result: Result, label: str) -> str:
    if not result.repeats[label]:
        raise ValueError(f"nothing was measured for {label!r}: run the experiment to its end")
    values = result.repeats[label]
    said = f"{label}: the median is {number(result.median(label))} {result.unit}"
    if len(values) == 1:
        return f"{said}, of a single repeat, which tells nothing about the spread."
    interval = median_interval(values)
    low, high = number(interval.low), number(interval.high)
    return f"{said} ({interval.coverage:.0%} interval {low} to {high}, n = {len(values)})."


def _too_few(result: Result, effects: Sequence[Effect]) -> str:
    labels = [effects[0].baseline, *(effect.label for effect in effects)]
    medians = ", ".join(f"{label} {number(result.median(label))}" for label in labels)
    return (
        f"No difference can be told from chance: {_repeats_wanted(effects)}. The medians, for what "
        f"they are worth, in {result.unit}: {medians}."
    )


def _repeats_wanted(effects: Sequence[Effect]) -> str:
    pairs = min(effect.pairs for effect in effects)
    said = f"{pairs} repeats are" if pairs > 1 else "a single repeat is"
    wanted = fewest_repeats(effects[0].comparisons)
    return f"{said} too few, measure {wanted} or more (raise `seconds` if they do not fit)"


def _pair(result: Result, effect: Effect) -> str:
    if effect.verdict == "less" or (effect.verdict == "slight" and effect.size < _neutral(effect)):
        effect = effect.inverse()
    shown = f"({_interval(result, effect)}, n = {effect.pairs})"
    if effect.verdict == "more":
        return f"{_claim(result, effect)} {shown}."
    size = f"{effect.label} to {effect.baseline}, {_size(result, effect)}"
    return _capitalised(f"{_no_difference(result, effect)}: {size} {shown}.") + _caveat(effect)


def _several(result: Result, effects: Sequence[Effect]) -> str:
    """Those that differ, one by one, then those that do not."""
    found = []
    for effect in sorted(effects, key=lambda effect: effect.verdict not in ("more", "less")):
        shown = f"({_range(result, effect)})"
        if effect.verdict in ("more", "less"):
            found.append(f"{effect.label} {_times(result, effect)} {shown}")
        else:
            said = _no_difference(result, effect)
            found.append(f"{effect.label}: {said}, {_size(result, effect)} {shown}")
    pairs = sorted({effect.pairs for effect in effects})
    n = f"{pairs[0]}" if len(pairs) == 1 else f"{pairs[0]} to {pairs[-1]}"
    lead = "" if is_time(result) else f"{result.quantity}, "
    said = f"{lead}compared with {effects[0].baseline}: {'; '.join(found)}."
    return (
        f"{_capitalised(said)} In brackets 95% intervals, for the {len(effects)} comparisons "
        f"together; n = {n}."
    )


def _claim(result: Result, effect: Effect) -> str:
    if effect.scale == "difference":
        said = f"{number(effect.size)} {result.unit} more with {effect.label}"
        return _capitalised(f"{result.quantity}: {said} than with {effect.baseline}")
    if is_time(result):
        return f"{effect.label} {_times(result, effect)} as {effect.baseline}"
    said = f"{_factor(effect.size)} times as much with {effect.label} as with {effect.baseline}"
    return _capitalised(f"{result.quantity}: {said}")


def _times(result: Result, effect: Effect) -> str:
    """The effect without the name of its baseline."""
    if effect.scale == "difference":
        way = "more" if effect.size > 0 else "less"
        return f"{number(abs(effect.size))} {result.unit} {way}"
    if is_time(result):
        return f"took {_factor(effect.size)} times as long"
    return f"{_factor(effect.size)} times as much"


def _size(result: Result, effect: Effect) -> str:
    if effect.scale == "difference":
        return f"difference {number(effect.size)} {result.unit}"
    return f"ratio {_factor(effect.size)}"


def _no_difference(result: Result, effect: Effect) -> str:
    if effect.verdict == "slight":
        return f"no difference that is sure to exceed {NEGLIGIBLE - 1:.0%}"
    if effect.is_constant:
        return "no difference at all"
    where = {
        "live": "on this machine",
        "recorded": "on the machine that was measured",
        "simulated": "in the simulation",
    }
    return f"no difference beyond the spread {where[result.origin]}"


def _caveat(effect: Effect) -> str:
    """What an interval that wide leaves open."""
    if effect.scale == "difference" or 1 / _WIDE <= effect.low <= effect.high <= _WIDE:
        return ""
    said = "The interval is wide enough to hide a large difference"
    return f" {said}: measure again with more repeats, when less else runs."


def _interval(result: Result, effect: Effect) -> str:
    said = _range(result, effect)
    return said if effect.is_constant else f"95% interval {said}"


def _range(result: Result, effect: Effect) -> str:
    if effect.is_constant:
        return "the same in every repeat"
    if effect.scale == "difference":
        return f"{number(effect.low)} to {number(effect.high)} {result.unit}"
    return f"{_factor(effect.low)} to {_factor(effect.high)}"


def _factor(value: float) -> str:
    """Two decimals, or three digits: 0.93, 1.00, 12.3, 1,230, 0.00123."""
    return f"{value:.2f}" if 0.1 <= value < 9.995 else number(value)


def _neutral(effect: Effect) -> float:
    return 1.0 if effect.scale == "ratio" else 0.0


def _listed(labels: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(labels[:-1]), labels[-1]]))


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]
