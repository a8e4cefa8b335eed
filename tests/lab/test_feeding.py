"""The sums of what GPUs want and a machine has, their sentence, table and picture."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.lab import feeding
from labkit.lab.feeding import Cost, Machine, drawing
from tests.lab.test_plots import assert_legible, fonts_are_open

__all__ = ["fonts_are_open"]  # a fixture

MACHINE = Machine(gpus=8, cores=64, disk=2e9, network=1.25e9, link=20e9)


def test_each_resource_is_samples_a_second_times_its_cost_against_what_there_is():
    cost = Cost(core_seconds=0.004, disk_bytes=1e5, network_bytes=5e4, link_bytes=6e5)
    found = feeding.feed(1000, cost, MACHINE)
    wanted = {share.resource: (share.wanted, share.there) for share in found.shares}
    assert wanted == {
        "cores": (pytest.approx(32), 64),
        "disk": (pytest.approx(800), 2000),
        "network": (pytest.approx(400), 1250),
        "link to the GPUs": (pytest.approx(4800), 160_000),
    }
    assert {share.resource: share.feeds for share in found.shares}["cores"] == pytest.approx(16)


def test_the_scarcest_comes_first_and_the_sentence_says_how_many_it_feeds():
    found = feeding.feed(1000, Cost(core_seconds=0.016, network_bytes=1e5), MACHINE)
    assert found.limit.resource == "cores"
    assert found.sentence == (
        "only 4.00 of 8 GPUs can be fed; scarcest: cores, for 4.00, then network, for 12.5"
    )
    enough = feeding.feed(1000, Cost(core_seconds=0.004), MACHINE)
    assert enough.sentence == "all 8 GPUs can be fed; scarcest: cores, for 16.0"


@given(st.floats(1, 1e4), st.floats(1e-5, 1), st.floats(1, 1e6), st.floats(1.1, 10))
def test_more_of_the_scarcest_resource_feeds_more_and_of_another_none(rate, core, sent, factor):
    cost = Cost(core_seconds=core, network_bytes=sent)
    found = feeding.feed(rate, cost, MACHINE)
    more = {
        "cores": Machine(8, 64 * factor, 2e9, 1.25e9, 20e9),
        "network": Machine(8, 64, 2e9, 1.25e9 * factor, 20e9),
    }
    scarcest = found.limit.resource
    (other,) = set(more) - {scarcest}
    assert feeding.feed(rate, cost, more[other]).limit.feeds == pytest.approx(found.limit.feeds)
    assert feeding.feed(rate, cost, more[scarcest]).limit.feeds > found.limit.feeds


def test_what_a_sample_does_not_need_is_left_out():
    found = feeding.feed(10, Cost(network_bytes=1), MACHINE)
    assert [share.resource for share in found.shares] == ["network"]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: Cost(core_seconds=-1), "core_seconds below 0"),
        (lambda: Machine(0, 64, 1, 1, 1), "more than 0 of everything"),
        (lambda: feeding.feed(0, Cost(1), MACHINE), "a GPU takes samples"),
        (lambda: feeding.feed(1, Cost(), MACHINE), "costs nothing needs no sums"),
        (lambda: drawing.show({}), "one number of GPUs"),
    ],
)
def test_what_makes_no_sense_is_an_error_that_says_what_to_write(wrong, words):
    with pytest.raises(ValueError, match=words):
        wrong()


def test_an_image_is_measured_in_bytes_and_core_seconds():
    found = feeding.measured(64, repeats=3)
    assert found.decoded_bytes == 64 * 64 * 3
    assert 100 < found.file_bytes < found.decoded_bytes
    assert found.core_seconds > 0
    assert str(found).startswith(f"64 × 64 pixels: a file of {found.file_bytes:,} bytes")


def test_table_text_html_and_picture_say_the_same():
    found = feeding.feed(1000, Cost(core_seconds=0.016, network_bytes=1e5), MACHINE)
    assert "cores     128 cores" in repr(found)
    assert "Only 4.00 of 8 GPUs can be fed" in repr(found)
    assert "<td" in found._repr_html_()
    shown = drawing.show({"one": found, "another": found})
    assert "one: cores 4.00, network 12.5; another: cores" in shown.alt
    assert shown.sentence.startswith("Computed, not measured. One: only 4.00 of 8 GPUs")
    assert_legible(shown.figure)
    bars = shown.figure.axes[0].patches
    assert [bar.get_hatch() for bar in bars] == ["///", "", "///", ""]
    assert [round(bar.get_width(), 2) for bar in bars] == [4.0, 12.5, 4.0, 12.5]
    assert shown.draw(True).get_facecolor() != shown.figure.get_facecolor()
