"""A result keeps every repeat, also on its way through a file."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.lab.machine import machine
from labkit.lab.results import Result

finite = st.floats(allow_nan=False, allow_infinity=False)
labels = st.text(min_size=1, max_size=8)


def a_result(**changes) -> Result:
    fields = {
        "question": "How long does the first batch take?",
        "quantity": "time to the first batch",
        "unit": "ms",
        "repeats": {"spawn": (370.0, 350.0, 380.0), "fork": (30.0, 50.0, 31.0)},
    }
    return Result(**{**fields, **changes})


def test_labels_keep_their_order_and_medians_are_those_of_each_setting():
    result = a_result()
    assert result.labels == ["spawn", "fork"]
    assert result.median("fork") == 31.0
    assert result.median("spawn") == 370.0


@given(
    repeats=st.dictionaries(labels, st.lists(finite, max_size=5).map(tuple), max_size=4),
    notes=st.lists(st.text(), max_size=3).map(tuple),
    common=st.dictionaries(labels, st.none() | st.booleans() | st.integers() | st.text()),
    origin=st.sampled_from(["live", "recorded", "simulated"]),
)
def test_a_result_comes_back_from_json_as_it_was(repeats, notes, common, origin):
    result = a_result(repeats=repeats, notes=notes, common=common, origin=origin)
    again = Result.from_json(result.to_json())
    assert again == result
    assert again.labels == result.labels


def test_this_machine_fits_into_json():
    result = a_result(machine=machine())
    assert Result.from_json(result.to_json()) == result


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_repeat_that_is_no_number_is_refused_and_its_setting_named(value):
    with pytest.raises(ValueError, match=r"repeat of 'fork'.*leave .* out of all settings"):
        a_result(repeats={"spawn": (1.0, 2.0), "fork": (1.0, value)})


def test_an_unknown_origin_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="'live', 'recorded', 'simulated'"):
        a_result(origin="guessed")
