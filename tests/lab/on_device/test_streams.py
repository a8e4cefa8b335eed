"""Copies and steps on one stream or two: what overlaps, what is read, and how it is drawn."""

import dataclasses

import pytest
import torch

from labkit.lab import panels
from labkit.lab.on_device import EXPERIMENTS, early_reads
from labkit.lab.on_device.drawing import draw
from labkit.lab.on_device.early_reads import READERS, READS, reads_right, to_host
from labkit.lab.on_device.slow_motion import copy_stream
from labkit.lab.on_device.stream_loop import Run, run
from labkit.lab.on_device.two_streams import QUANTITIES, STREAMS, two_streams
from labkit.lab.on_device.work_log import Call
from labkit.simulated import Operation
from labkit.simulated.timeline import COMPUTE, TO_DEVICE
from tests.lab.on_device.conftest import NBYTES
from tests.lab.test_plots import assert_legible, fonts_are_open

__all__ = ["fonts_are_open"]  # a fixture

SMALL = {"batch_bytes": NBYTES, "batches": 3, "step_ms": 50}


def copy(number, start, end, stream="copy stream"):
    return Operation(TO_DEVICE, "copy", start, end, f"copy {number}", NBYTES, stream)


def step(number, start, end):
    return Operation(COMPUTE, "step", start, end, f"step {number}", 0, "default stream")


RUN = Run(
    machine={"device": "simulated device", "simulated": True},
    calls=[Call("copy", "copy 0", 10.0, 10.001), Call("wait", "step 0", 10.002, 10.5)],
    operations=[copy(0, 10, 10.1), copy(1, 10.1, 10.2), step(0, 10.1, 10.15), step(1, 10.2, 10.25)],
    read=[1.0, 0.0],
    expected=[1.0, 2.0],
    title="Two streams, no events",
)


# The loop


@pytest.mark.parametrize(
    ("settings", "overlaps"),
    [
        ({}, True),
        ({"streams": 1}, False),
        ({"pinned": False}, False),
        ({"non_blocking": False}, False),
        ({"ahead": 0}, False),
    ],
    ids=str,
)
def test_copies_overlap_with_steps_only_where_nothing_is_missing(settings, overlaps, slow_device):
    found = run(slow_device, **{**SMALL, **settings})
    assert found.overlaps == overlaps
    assert found.wrong == []
    assert len(found.operations) == 6
    assert {o.stream for o in found.operations} == (
        {"default stream"} if settings == {"streams": 1} else {"default stream", "copy stream"}
    )


def test_a_loop_that_reads_no_results_overlaps_even_from_pageable_memory(slow_device):
    found = run(slow_device, pinned=False, reads_each=False, **SMALL)
    assert found.overlap > 0.03
    assert "wait" not in [call.kind for call in found.calls]


def test_without_events_short_steps_read_what_was_there_before(slow_device):
    found = run(slow_device, events=False, **{**SMALL, "step_ms": 0})
    assert found.wrong == [0, 1, 2]
    assert "3 of 3 steps read a wrong value" in found.sentence


def test_on_one_stream_no_event_is_needed(slow_device):
    assert run(slow_device, events=False, streams=1, **{**SMALL, "step_ms": 0}).wrong == []


def test_runs_share_a_stream_and_its_memory(slow_device):
    run(slow_device, **SMALL)
    reserved = slow_device.memory_reserved()
    run(slow_device, **SMALL)
    assert slow_device.memory_reserved() == reserved
    assert copy_stream(slow_device) is copy_stream(slow_device)


@pytest.mark.parametrize(
    "settings",
    [{"streams": 3}, {"batches": 0}, {"batch_bytes": 0}, {"step_ms": -1}, {"ahead": -1}],
    ids=str,
)
def test_numbers_out_of_range_are_refused(settings):
    with pytest.raises(ValueError, match="1 or 2"):
        run(**settings)


def test_what_a_run_says_is_computed_from_its_operations():
    assert RUN.overlap == pytest.approx(0.05)
    assert RUN.seconds == pytest.approx(0.25)
    assert RUN.wrong == [1]
    assert RUN.sentence == (
        "Simulated: 2 copies and 2 steps took 250 ms; a copy and a step were under way at once for "
        "50.0 ms of it; 1 of 2 steps read a wrong value."
    )
    live = dataclasses.replace(RUN, machine={"device": "cuda:0"}, read=[1.0, 2.0])
    assert live.sentence.startswith("2 copies")
    assert live.sentence.endswith("all steps read right.")


# Its drawing


def test_each_stream_and_the_thread_have_a_lane_and_all_is_said_in_words():
    picture = RUN.picture
    assert picture.sentence == RUN.sentence
    assert "of simulated device" in picture.alt
    assert "copy stream: copy 0 from 0 s to 100 ms, copy 1 from 100 ms to 200 ms." in picture.alt
    assert "step (wrong value) 1 from 200 ms to 250 ms" in picture.alt
    assert "main thread's calls: copy 0" in picture.alt
    for dark in (False, True):
        drawn = picture.draw(dark)
        assert_legible(drawn)
        words = [text.get_text() for text in drawn.texts]
        lanes = [word for word in words if "stream" in word and "," not in word]
        assert lanes == ["copy stream", "default stream"]
        assert "the thread waits" in words
        assert any("wrong" in word or word == "1!" for word in words)
        assert len(drawn.axes[0].collections) == len(RUN.calls) + len(RUN.operations)


def test_a_line_parts_two_copies_in_a_row_and_nothing_else():
    axes = RUN.picture.draw(True).axes[0]
    copies = [operation for operation in RUN.operations if operation.kind == "copy"]
    (line,) = (line for line in axes.lines if line.get_color() == "white")
    began = min(call.start for call in RUN.calls)
    assert list(line.get_xdata()) == pytest.approx([(copies[1].start - began) * 1e3] * 2)


def test_operations_alone_are_drawn_without_the_threads_lane():
    picture = draw(RUN.operations, title="Steps", device="cuda:0")
    words = [text.get_text() for text in picture.figure.texts]
    assert "main thread's calls" not in words
    assert "step that read a wrong value" not in words
    assert picture.alt.startswith("Timeline, Steps: 250 ms long, of cuda:0.")


def test_nothing_cannot_be_drawn():
    with pytest.raises(ValueError, match="run something"):
        draw([], title="Nothing", device="cuda:0")


# The comparisons


def test_one_stream_is_compared_with_two(slow_device):
    few = {"batch_bytes": NBYTES // 2, "batches": 2, "repeats": 1}
    times = two_streams(slow_device, step_ms=25, **few)
    assert times.labels == list(STREAMS)
    assert times.origin == "simulated"
    one, two = (values[0] for values in times.repeats.values())
    assert one >= 74  # of copy and step
    assert two >= 49
    counts = two_streams(slow_device, quantity=QUANTITIES[1], events=False, step_ms=0, **few)
    assert counts.repeats == {"one stream": (0.0,), "two streams": (2.0,)}
    with pytest.raises(ValueError, match="write one of"):
        two_streams(quantity="speed")


@pytest.mark.parametrize("reader", READERS)
def test_who_reads_at_once_reads_wrong_and_after_the_event_right(reader, slow_device):
    assert not reads_right(reader, waits=False, device=slow_device, nbytes=NBYTES)
    assert reads_right(reader, waits=True, device=slow_device, nbytes=NBYTES)


def test_wrong_reads_are_counted(slow_device):
    result = early_reads.early_reads(slow_device, nbytes=NBYTES // 2, repeats=1)
    assert result.repeats == {"at once": (float(READS),), "after the event": (0.0,)}
    with pytest.raises(ValueError, match="nobody is called 'me'"):
        reads_right("me", waits=True, device=slow_device)


def test_pytorchs_tensors_are_copied_by_pytorch():
    assert torch.equal(to_host(torch.ones(2)), torch.ones(2))


@pytest.mark.parametrize("name", ["copies_to_device", "two_streams", "early_reads"])
def test_what_a_panel_shows_at_first_is_among_what_is_recorded(name):
    panel = getattr(panels, name)()
    experiment = EXPERIMENTS[panel.recorded]
    recorded = [experiment.full(settings) for settings in experiment.recorded]
    assert experiment.full(panel.settings) in recorded
