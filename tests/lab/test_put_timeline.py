"""What happens around a put() is watched, and told in words and as a figure.

No test asserts how long anything takes, only what comes before what.
"""

import re

import pytest

from labkit.lab.plots.pictures import png
from labkit.lab.put_timeline import Put, show, watch, watching
from tests.lab.test_plots import assert_legible, fonts_are_open

__all__ = ["fonts_are_open"]  # a fixture


def put(**changes) -> Put:
    usual = {
        "nbytes": 4096,
        "returned": 50e-6,
        "pickling": 1e-3,
        "pickled": 3e-3,
        "last_private": 2e-3,
        "first_shared": 2.1e-3,
        "received": 4e-3,
        "shared_at_return": False,
        "thread": "QueueFeederThread",
        "written_there_seen_here": True,
    }
    return Put(**{**usual, **changes})


def test_the_feeder_thread_shares_the_tensor_and_both_processes_see_it():
    seen = watch(100_000)
    assert seen.nbytes == 100_000
    assert seen.thread == "QueueFeederThread"
    assert 0 < seen.pickling <= seen.pickled
    assert seen.pickling < seen.first_shared
    assert seen.last_private <= seen.first_shared
    assert seen.pickling < seen.received
    assert seen.written_there_seen_here


def test_a_receiver_that_does_not_come_is_not_waited_for_for_ever(monkeypatch):
    monkeypatch.setattr(watching, "_LIMIT_S", 0.2)
    monkeypatch.setattr(watching, "_receive", lambda queue, report: report.poll(None))
    with pytest.raises(TimeoutError, match=r"said nothing for 0\.2 s"):
        watch(1000)


def test_the_sentence_says_what_was_seen():
    said = put().sentence
    assert "put() came back after 50.0 µs; the tensor was not shared then." in said
    assert "The thread QueueFeederThread was at it from 1.00 ms to 3.00 ms" in said
    assert "is_shared() was last seen False at 2.00 ms and first seen True at 2.10 ms" in said
    assert "the other process had it after 4.00 ms" in said
    assert "This process saw what the other wrote into it." in said
    assert "already shared then" in put(shared_at_return=True).sentence
    assert "did not see" in put(written_there_seen_here=False).sentence


@pytest.mark.parametrize("seconds", [1e-5, 1e-3, 3.0])
def test_the_figure_has_a_lane_for_each_and_all_words_are_on_it(seconds):
    shown = show(put(pickled=seconds, received=seconds * 1.1, returned=min(seconds, 50e-6)))
    texts = {text.get_text() for text in shown.figure.texts}
    assert {"main thread", "feeder thread", "tensor.is_shared()", "another process"} <= texts
    assert {"pickle", "False", "True", "has the tensor", "One put() of 4,096 bytes"} <= texts
    assert_legible(shown.figure)
    assert shown.alt.startswith("Timeline of one put() of 4,096 bytes")
    assert shown.sentence in shown.alt
    assert not re.search(r"\d", shown.title)
    assert shown.png != png(shown.draw(True))


def test_a_long_time_between_two_looks_is_drawn_as_unknown():
    assert "?" in {text.get_text() for text in show(put(last_private=1e-3)).figure.texts}
    assert "?" not in {text.get_text() for text in show(put()).figure.texts}
    assert_legible(show(put(last_private=1e-3)).figure)
