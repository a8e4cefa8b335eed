"""A sentence claims what the numbers support: seldom a difference that is none, mostly one that is.

The bars are held on simulated noise like that of real measurements: log-normal spread, outliers
that are always slow, a drift that neighbours share, and on real ones.
"""

import itertools
import math
import re
import time

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from labkit.lab.explain import (
    NEGLIGIBLE,
    compare,
    fewest_repeats,
    predicted,
    sentence,
)
from labkit.lab.explain.paired import fewest_pairs, paired_shift
from labkit.lab.predictions import Prediction
from labkit.lab.results import DEFAULT_REPEATS, Result

RUNS = 200


def of(unit: str = "ms", quantity: str = "time to the first batch", **fields) -> Result:
    """A result whose settings are the keyword arguments that are no field of it."""
    known = {"origin", "machine"}
    repeats = {k.replace("_", " "): tuple(v) for k, v in fields.items() if k not in known}
    others = {k: v for k, v in fields.items() if k in known}
    return Result("How long?", quantity, unit, repeats, **others)


def spread(median: float, size: float = 0.02, n: int = 9) -> list[float]:
    """Values around a median, none of them alike."""
    return [median * (1 + size * (i - n // 2) / n) for i in np.random.default_rng(1).permutation(n)]


# The bars

NOISES = {
    # of each value; of the drift from one value to the next; share of outliers; heavy tails
    "a quiet machine": (0.03, 0.02, 0.05, False),
    "an ordinary machine": (0.08, 0.04, 0.05, False),
    "a machine that drifts": (0.05, 0.08, 0.05, False),
    "heavy tails": (0.05, 0.03, 0.05, True),
    "many outliers": (0.05, 0.03, 0.1, False),
}


def simulated(rng, slowdowns, noise, n=DEFAULT_REPEATS) -> Result:
    """Settings that take turns in one order and then in the other, as `measuring` lets them."""
    spread, drift, outliers, heavy = noise
    level, rows = 0.0, []
    for repeat in range(n):
        row = {}
        order = range(len(slowdowns))
        for setting in order if repeat % 2 == 0 else reversed(order):
            level += rng.normal(0, drift)
            error = spread * (rng.standard_t(3) if heavy else rng.normal())
            late = rng.exponential(0.4) if rng.random() < outliers else 0.0
            row[setting] = 10 * slowdowns[setting] * math.exp(level + error + late)
        rows.append(row)
    names = [f"setting {i}" for i in range(len(slowdowns))]
    repeats = {name: tuple(row[i] for row in rows) for i, name in enumerate(names)}
    return Result("How long?", "time", "ms", repeats)


def verdict(result: Result) -> str:
    return compare(result, "setting 1", "setting 0").verdict


@pytest.mark.parametrize("noise", NOISES)
def test_of_200_runs_with_equal_settings_at_most_5_percent_claim_a_difference(noise):
    rng = np.random.default_rng(20)
    verdicts = [verdict(simulated(rng, (1, 1), NOISES[noise])) for _ in range(RUNS)]
    assert sum(said in ("more", "less") for said in verdicts) <= 0.05 * RUNS


@pytest.mark.parametrize("noise", NOISES)
def test_of_200_runs_with_one_side_slowed_by_30_percent_at_least_90_percent_find_it(noise):
    rng = np.random.default_rng(30)
    verdicts = [verdict(simulated(rng, (1, 1.3), NOISES[noise])) for _ in range(RUNS)]
    assert verdicts.count("more") >= 0.9 * RUNS
    assert "less" not in verdicts


@pytest.mark.parametrize("n", [6, 7, 8])
def test_fewer_repeats_claim_no_more_differences_where_there_are_none(n):
    rng = np.random.default_rng(n)
    noise = NOISES["an ordinary machine"]
    verdicts = [verdict(simulated(rng, (1, 1), noise, n)) for _ in range(RUNS)]
    assert sum(said in ("more", "less") for said in verdicts) <= 0.05 * RUNS


def claims(result: Result) -> bool:
    """Whether the sentence says of any setting that it takes longer or less long."""
    return "times as long" in sentence(result)


@pytest.mark.parametrize("settings", [3, 4, 5])
def test_several_equal_settings_together_claim_a_difference_in_at_most_5_percent(settings):
    rng = np.random.default_rng(settings)
    noise = NOISES["an ordinary machine"]
    found = [claims(simulated(rng, (1,) * settings, noise)) for _ in range(RUNS)]
    assert sum(found) <= 0.05 * RUNS


def test_the_bars_hold_on_real_measurements():
    """Of a loop of Python, in the processor time that it takes; slowed by 30% is 30% more turns."""

    def took(turns: int) -> float:
        started, total = time.process_time(), 0
        for i in range(turns):
            total += i
        return time.process_time() - started

    def measured(others: int) -> Result:
        rows = []
        for repeat in range(DEFAULT_REPEATS):
            turns = (6_000, others)
            values = [took(n) for n in (turns if repeat % 2 == 0 else reversed(turns))]
            rows.append(values if repeat % 2 == 0 else values[::-1])
        first, second = zip(*rows, strict=True)
        return Result("How long?", "time", "s", {"setting 0": first, "setting 1": second})

    took(50_000)  # the processor wakes up
    equal = [verdict(measured(6_000)) for _ in range(RUNS)]
    slowed = [verdict(measured(7_800)) for _ in range(RUNS)]
    assert sum(said in ("more", "less") for said in equal) <= 0.05 * RUNS
    assert slowed.count("more") >= 0.9 * RUNS


# The test behind it

small = st.integers(-5, 5).map(float)
series = st.integers(1, 6).flatmap(
    lambda n: st.tuples(*[st.lists(small, min_size=n, max_size=n)] * 2)
)


def share_of_swaps(values, baseline) -> float:
    """The definition, by trying all swaps: how often the sum of ranks is as far from the middle."""
    n = len(values)

    def rank_sum(left, right):
        pooled = [*left, *right]
        return sum(sum(o < v for o in pooled) + sum(o == v for o in pooled) / 2 for v in left)

    def distance(swaps):
        pairs = [(b, v) if s else (v, b) for v, b, s in zip(values, baseline, swaps, strict=True)]
        return abs(rank_sum(*zip(*pairs, strict=True)) - n * n)

    seen = distance([False] * n)
    return np.mean([distance(s) >= seen for s in itertools.product([False, True], repeat=n)])


@given(series, st.sampled_from([0.4, 0.2, 0.1]))
def test_the_interval_ends_where_trying_all_swaps_begins_to_reject(pair, error_rate):
    values, baseline = pair
    shift = paired_shift(values, baseline, error_rate)
    # The values are whole, so ranks change at whole shifts only: between them nothing does.
    tried = np.arange(-11, 11.5, 0.5)
    kept = [t for t in tried if share_of_swaps([v - t for v in values], baseline) > error_rate]
    if len(values) < fewest_pairs(error_rate):
        assert (shift.low, shift.high) == (-math.inf, math.inf)
    else:
        assert (shift.low, shift.high) == (math.floor(min(kept)), math.ceil(max(kept)))


@given(series, st.integers(-3, 3), st.sampled_from([0.3, 0.05]))
def test_the_interval_holds_the_estimate_and_moves_with_the_values(pair, by, error_rate):
    values, baseline = pair
    shift = paired_shift(values, baseline, error_rate)
    moved = paired_shift([v + by for v in values], baseline, error_rate)
    turned = paired_shift(baseline, values, error_rate)
    assert shift.low <= shift.estimate <= shift.high
    assert (moved.low, moved.estimate, moved.high) == (
        shift.low + by, shift.estimate + by, shift.high + by,
    )  # fmt: skip
    assert (turned.low, turned.estimate, turned.high) == (
        -shift.high, -shift.estimate, -shift.low,
    )  # fmt: skip


def test_the_true_difference_lies_in_about_95_of_100_intervals():
    rng = np.random.default_rng(5)
    inside = 0
    for n in (6, 9, 10, 14):  # the last by the normal distribution
        for _ in range(100):
            level = rng.normal(0, 1, n).cumsum()
            shift = paired_shift(level + 2 + rng.normal(size=n), level + rng.normal(size=n), 0.05)
            inside += shift.low <= 2 <= shift.high
    assert inside >= 372  # 380 of 400 expected or more; 1 in 40 samples would have fewer than 372


def test_many_pairs_give_an_interval_in_reasonable_time_and_narrower_than_few():
    rng = np.random.default_rng(6)
    values, baseline = rng.normal(1, 1, 60), rng.normal(0, 1, 60)
    many, few = paired_shift(values, baseline, 0.05), paired_shift(values[:9], baseline[:9], 0.05)
    assert many.low > 0
    assert many.high - many.low < (few.high - few.low) / 1.5


def test_one_outlier_the_wrong_way_round_does_not_hide_what_eight_pairs_show():
    slow, fast = spread(130.0), spread(100.0)
    fast[4] = 5000.0
    assert compare(of(a=slow, b=fast), "a", "b").verdict == "more"


@pytest.mark.parametrize(("comparisons", "repeats"), [(1, 6), (2, 7), (3, 7), (4, 8), (6, 8)])
def test_the_fewest_repeats_are_those_from_which_a_clear_difference_is_claimed(
    comparisons, repeats
):
    assert fewest_repeats(comparisons) == repeats
    for n, said in ((repeats - 1, "unknown"), (repeats, "more")):
        result = of(a=spread(500.0, n=n), b=spread(100.0, n=n))
        assert compare(result, "a", "b", comparisons).verdict == said


@pytest.mark.parametrize("lengths", [(2, 3), (0, 0)])
def test_series_that_make_no_pairs_are_refused(lengths):
    with pytest.raises(ValueError, match="same length, at least 1"):
        paired_shift(*([1.0] * n for n in lengths), 0.05)


# Effects


def test_the_ratio_is_of_label_to_baseline_and_its_inverse_the_other_way_round():
    effect = compare(of(a=spread(200.0), b=spread(100.0)), "a", "b")
    assert effect.scale == "ratio"
    assert effect.size == pytest.approx(2, rel=0.02)
    assert 1.9 < effect.low <= effect.size <= effect.high < 2.1
    other = compare(of(a=spread(200.0), b=spread(100.0)), "b", "a")
    assert other.verdict == effect.inverse().verdict == "less"
    inverse = effect.inverse()
    assert (inverse.label, inverse.baseline) == ("b", "a")
    assert (inverse.low, inverse.size, inverse.high) == pytest.approx(
        (other.low, other.size, other.high)
    )


def test_a_drift_that_both_settings_share_is_no_difference_and_hides_none():
    drift = [1.0, 1.1, 1.3, 1.7, 2.2, 2.0, 1.6, 1.2, 1.0]
    equal = [100 * d * (1 + 0.01 * (-1) ** i) for i, d in enumerate(drift)]
    base = [100 * d for d in drift]
    assert compare(of(a=equal, b=base), "a", "b").verdict == "none"
    assert compare(of(a=[1.6 * v for v in base], b=base), "a", "b").verdict == "more"


def test_more_comparisons_make_the_interval_wider():
    result = of(a=spread(110.0, 0.2), b=spread(100.0, 0.1)[::-1])
    effects = [compare(result, "a", "b", count) for count in (1, 3, 10)]
    widths = [effect.high - effect.low for effect in effects]
    assert widths == sorted(widths)
    assert widths[0] < widths[-1]


def test_a_difference_of_less_than_3_percent_is_never_claimed():
    result = of(a=spread(102.0, 0.001), b=spread(100.0, 0.001)[::-1])
    effect = compare(result, "a", "b")
    assert effect.verdict == "slight"
    assert 1 < effect.low < effect.high < NEGLIGIBLE
    assert "No difference that is sure to exceed 3%" in sentence(result)


def test_where_a_value_is_zero_the_difference_is_told_in_its_unit():
    faults = of("faults", "page faults a batch", arena=[0.0] * 8 + [3.0], fd=spread(9400.0))
    effect = compare(faults, "fd", "arena")
    assert (effect.scale, effect.verdict) == ("difference", "more")
    said = sentence(faults)
    assert said.startswith("Page faults a batch: 9,")
    assert "faults more with fd than with arena" in said
    assert sentence(faults, baseline="fd") == said


def test_a_run_cut_short_compares_the_repeats_that_both_have():
    effect = compare(of(a=spread(500.0), b=spread(100.0)[:7]), "a", "b")
    assert (effect.pairs, effect.verdict) == (7, "more")


@pytest.mark.parametrize(
    ("labels", "match"),
    [
        (("a", "c"), "no setting 'c': write one of 'a', 'b', 'empty'"),
        (("a", "a"), "compared with itself"),
        (("a", "empty"), "nothing was measured for 'empty'"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_words(labels, match):
    with pytest.raises(ValueError, match=match):
        compare(of(a=spread(1.0), b=spread(1.0), empty=[]), *labels)


# Sentences


def test_two_settings_that_differ():
    result = of(fork=spread(30.0), spawn=spread(369.0))
    assert re.fullmatch(
        r"spawn took 12\.\d times as long as fork \(95% interval 1\d\.\d to 1\d\.\d, n = 9\)\.",
        sentence(result),
    )
    assert sentence(result) == sentence(result, baseline="spawn")


def test_two_settings_that_do_not():
    a, b = spread(30.0, 0.2), spread(30.0, 0.2)[::-1]
    assert re.fullmatch(
        r"No difference beyond the spread on this machine: spawn to fork, ratio \d\.\d\d "
        r"\(95% interval 0\.\d\d to 1\.\d\d, n = 9\)\.",
        sentence(of(fork=a, spawn=b)),
    )


def test_an_interval_that_could_hide_much_says_so():
    wild = [1.0, 9.0, 2.0, 30.0, 1.5, 14.0, 4.0, 3.0, 8.0]
    said = sentence(of(a=wild, b=wild[::-1]))
    assert "wide enough to hide a large difference" in said
    assert "wide enough" not in sentence(of(a=spread(1.0), b=spread(1.0)[::-1]))


def test_several_settings_are_compared_with_one_of_them():
    result = of(
        fork=spread(30.0, 0.1),
        forkserver=spread(30.0, 0.1)[::-1],
        spawn=spread(369.0),
        fast=spread(10.0),
    )
    said = sentence(result)
    assert said.startswith("Compared with fork: spawn took 12.")
    assert "fast took 0.3" in said
    assert "forkserver: no difference beyond the spread on this machine, ratio 1.0" in said
    assert said.endswith("In brackets 95% intervals, for the 3 comparisons together; n = 9.")
    assert sentence(result, baseline="spawn").startswith("Compared with spawn: fork took 0.08")


def test_quantities_that_are_no_times_are_not_said_to_take_long():
    sizes = of("bytes", "bytes in the message", arena=[400.0] * 9, copy=[4000.0] * 9)
    said = "Bytes in the message: 10.0 times as much with copy as with arena"
    assert sentence(sizes) == f"{said} (the same in every repeat, n = 9)."
    equal = of("bytes", "bytes in the message", arena=[400.0] * 9, copy=[400.0] * 9)
    assert sentence(equal).startswith("No difference at all: copy to arena, ratio 1.00")


def test_one_repeat_that_differs_is_enough_not_to_call_them_the_same():
    wrong = of("reads", "wrong reads", at_once=[3.0, 3, 2, 3, 3, 3, 3, 3, 3], after_it=[0.0] * 9)
    said = "Wrong reads: 3.00 reads more with at once than with after it"
    assert sentence(wrong, baseline="after it") == (
        f"{said} (95% interval 3.00 to 3.00 reads, n = 9)."
    )
    none = of("reads", "wrong reads", at_once=[0.0] * 8 + [1.0], after_it=[0.0] * 9)
    assert sentence(none).startswith("No difference beyond the spread on this machine")


@pytest.mark.parametrize("n", [1, 5])
def test_too_few_repeats_claim_nothing_however_far_apart(n):
    said = sentence(of(a=[1.0 + i for i in range(n)], b=[1000.0 + i for i in range(n)]))
    assert said.startswith("No difference can be told from chance")
    assert "measure 6 or more" in said
    assert "times" not in said


def test_one_setting_alone_is_described_and_compared_with_nothing():
    said = sentence(of(fork=spread(30.0)))
    assert re.fullmatch(r"fork: the median is 30\.0 ms \(96% interval 2.* to 3.*, n = 9\)\.", said)
    assert "tells nothing about the spread" in sentence(of(fork=[30.0]))


@pytest.mark.parametrize(
    ("origin", "begin", "where"),
    [
        (
            "recorded",
            "Recorded on another machine on 2026-01-02: ",
            "the machine that was measured",
        ),
        ("simulated", "Simulated on 2026-01-02: ", "in the simulation"),
    ],
)
def test_what_is_not_from_this_machine_says_so(origin, begin, where):
    given = {"origin": origin, "machine": {"date": "2026-01-02T03:04:05"}}
    different = sentence(of(fork=spread(30.0), spawn=spread(369.0), **given))
    assert different.startswith(begin + "spawn took")
    equal = sentence(of(fork=spread(30.0), spawn=spread(30.0)[::-1], **given))
    assert where in equal
    assert "this machine" not in equal


times = st.floats(1e-3, 1e3)
results = st.integers(1, 4).flatmap(
    lambda k: st.lists(
        st.lists(times | st.just(0.0), min_size=1, max_size=9), min_size=k, max_size=k
    )
)


@given(results, st.sampled_from(["ms", "bytes"]), st.floats(1, 100) | st.none())
def test_any_result_gets_a_sentence_without_a_claim_that_its_effects_do_not_have(
    repeats, unit, factor
):
    result = Result("?", "thing", unit, {f"s{i}": tuple(v) for i, v in enumerate(repeats)})
    said = sentence(result)
    assert said.endswith(".")
    assert "nan" not in said
    assert "inf " not in said
    others = result.labels[1:]
    effects = [compare(result, label, "s0", len(others)) for label in others]
    claimed = sum(effect.verdict in ("more", "less") for effect in effects)
    if any(effect.verdict == "unknown" for effect in effects):
        claimed = 0
    assert len(re.findall(r"times as (?:long|much)|(?<!or) (?:more|less)\b", said)) == claimed
    if others:
        assert predicted(result, Prediction("s0", factor)).startswith("You")


@pytest.mark.parametrize(("result", "match"), [(of(), "no settings"), (of(a=[]), "nothing was")])
def test_a_result_without_values_has_no_sentence(result, match):
    with pytest.raises(ValueError, match=match):
        sentence(result)


def test_an_unknown_baseline_is_refused():
    with pytest.raises(ValueError, match="no setting 'x': write one of 'a', 'b'"):
        sentence(of(a=spread(1.0), b=spread(1.0)), baseline="x")


# Predictions

START = of(fork=spread(30.0), spawn=spread(369.0))


def test_a_prediction_that_came_true():
    said = predicted(START, Prediction("fork", START.median("spawn") / START.median("fork")))
    assert said.startswith("You expected fork to be the fastest, and it was. ")
    assert "which fits what was measured: 12.3" in said


@pytest.mark.parametrize(("factor", "way", "off"), [(2, "low", "6.1"), (100, "high", "8.1")])
def test_a_factor_that_is_off_is_told_by_how_much(factor, way, off):
    said = predicted(START, Prediction("fork", factor))
    assert (
        f"a factor of {factor} from fork to spawn, which is too {way} by a factor of {off}" in said
    )


def test_a_wrong_favourite_is_told_which_ones_were_faster():
    result = of(fork=spread(30.0), spawn=spread(369.0), forkserver=spread(50.0))
    said = predicted(result, Prediction("spawn"))
    assert said == ("You expected spawn to be the fastest, but fork and forkserver were faster.")


def test_a_favourite_that_cannot_be_told_from_another_is_neither_right_nor_wrong():
    result = of(a=spread(30.0, 0.1), b=spread(30.0, 0.1)[::-1], c=spread(90.0))
    assert predicted(result, Prediction("a")) == (
        "You expected a to be the fastest: nothing beat it, but it cannot be told from b."
    )


def test_expecting_no_difference_is_judged_as_such():
    level = of(a=spread(30.0, 0.1), b=spread(30.0, 0.1)[::-1])
    assert predicted(level, Prediction("a", 1)).startswith("You expected no difference")
    assert "fits" in predicted(level, Prediction("a", 1))
    assert "too low by a factor of 12" in predicted(START, Prediction("spawn", 1))


def test_too_few_repeats_judge_no_prediction():
    few = of(a=[1.0] * 5, b=[2.0] * 5)
    assert predicted(few, Prediction("a", 2)).startswith("Your prediction cannot be judged: 5 rep")


def test_of_bytes_the_lowest_is_meant_and_of_a_simulation_nothing_was_measured():
    sizes = of("bytes", "size", a=[1.0] * 9, b=[2.0] * 9, origin="simulated")
    said = predicted(sizes, Prediction("a", 2))
    assert "a to be the lowest, and it was" in said
    assert "which fits what was simulated" in said


def test_the_sentence_ends_with_what_became_of_the_prediction():
    guess = Prediction("fork", 2)
    assert sentence(START, guess) == f"{sentence(START)} {predicted(START, guess)}"


def test_a_prediction_of_something_else_is_refused():
    with pytest.raises(ValueError, match="no setting 'x'"):
        predicted(START, Prediction("x"))
    with pytest.raises(ValueError, match="predict of two or more"):
        predicted(of(a=spread(1.0)), Prediction("a"))


@given(st.lists(times, min_size=6, max_size=9), st.floats(0.01, 100))
def test_units_do_not_matter(values, scale):
    assume(len(set(values)) > 1)
    others = [value * 1.5 for value in reversed(values)]
    effect = compare(of(a=values, b=others), "a", "b")
    scaled = compare(of(a=[v * scale for v in values], b=[v * scale for v in others]), "a", "b")
    assert scaled.size == pytest.approx(effect.size)
    assert (scaled.low, scaled.high) == pytest.approx((effect.low, effect.high))
