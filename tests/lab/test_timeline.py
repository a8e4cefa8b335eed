"""The timeline shows each span of its window in its lane, and counts what is under way."""

import re
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

import labkit
from labkit.lab import plots, timeline
from labkit.lab.plots.palette import LAYER_STYLES, layer_style
from labkit.lab.timeline.window import Window
from labkit.spans import LAYERS, Span
from tests.lab.test_plots import assert_legible, fonts_are_open, texts

__all__ = ["fonts_are_open"]  # a fixture


@dataclass
class Sample:
    """A trace that was made up."""

    spans: list[Span]
    max_depth: int = 4
    steps: list[tuple[float, int]] = field(default_factory=list)

    def depth(self, loader):
        return self.steps

    def reorder_buffer(self, loader):
        return [(at, value // 2) for at, value in self.steps]


def sample(batches=6, workers=2, fetch=0.010, start_up=0.0, epoch=0) -> Sample:
    """Workers in turn fetch, collate and send; main hands out, waits, gives to the consumer."""
    spans, free, now = [], dict.fromkeys(range(workers), start_up), 100.0
    for batch in range(batches):
        worker = batch % workers
        one = {"batch": batch, "epoch": epoch}
        spans.append(Span("main", "dispatch", now, now + 0.0001, **one))
        begun = max(now, 100.0 + free[worker])
        there = begun + fetch + 0.002
        for lane, layer, start, end in [
            (f"worker {worker}", "wait", now, begun),
            (f"worker {worker}", "fetch", begun, begun + fetch),
            (f"worker {worker}", "collate", begun + fetch, there),
            (f"feeder {worker}", "pickle", there, there + 0.0005),
            (f"feeder {worker}", "send", there + 0.0005, there + 0.001),
        ]:
            spans.append(Span(lane, layer, start, end, worker=worker, **one))
        free[worker] = there - 100.0
        taken = max(now + 0.0001, there + 0.001)
        spans.append(Span("main", "wait", now + 0.0001, taken, **one))
        spans.append(Span("main", "take", taken, taken, **one))
        spans.append(Span("main", "consumer", taken, taken + 0.003, **one))
        now = taken + 0.003
    spans = [span for span in spans if span.end > span.start or span.layer == "take"]
    spans.sort(key=lambda span: span.start)
    steps = [(span.start, i % 5) for i, span in enumerate(spans)]
    return Sample(spans, 2 * workers, steps)


def bars(figure: Figure) -> dict[str, list[tuple[float, float]]]:
    """By layer and lane: from when to when on the time axis."""
    found = {}
    for drawn in figure.axes[0].collections:
        if isinstance(drawn, PolyCollection) and drawn.get_gid():
            ends = [(p.vertices[:, 0].min(), p.vertices[:, 0].max()) for p in drawn.get_paths()]
            found[drawn.get_gid()] = ends
    return found


# What is drawn


def test_each_span_is_a_bar_in_its_lane():
    trace = sample()
    drawn = bars(timeline.timeline(trace))
    began = trace.spans[0].start
    for name, ends in drawn.items():
        layer, _, lane = name.partition(" in ")
        spans = [span for span in trace.spans if (span.layer, span.lane) == (layer, lane)]
        assert len(ends) == len(spans)
        for span, (start, end) in zip(spans, ends, strict=True):
            assert start == pytest.approx((span.start - began) * 1e3)
            assert end > (span.end - began) * 1e3 - 1e-6
    there = {f"{span.layer} in {span.lane}" for span in trace.spans if span.layer != "take"}
    assert set(drawn) == there


def resumed(trace: Sample) -> Sample:
    """The same as an epoch of workers that stayed: it begins with a resume."""
    start = trace.spans[0].start
    resume = Span("worker 0", "resume", start - 0.004, start - 0.002, epoch=trace.spans[0].epoch)
    return replace(trace, spans=[resume, *trace.spans])


def test_the_resume_before_an_epochs_first_batch_is_drawn_and_before_later_ones_it_is_not():
    trace = resumed(sample(epoch=1))
    assert bars(timeline.timeline(trace))["resume in worker 0"] == [(0, pytest.approx(2))]
    assert "resume in worker 0" not in bars(timeline.timeline(trace, batches=range(1, 4)))


def test_lanes_stand_in_order_main_then_each_worker_with_its_feeder():
    lanes = Window.of(sample(batches=24, workers=11)).lanes
    expected = ["main"]
    for worker in range(11):
        expected += [f"worker {worker}", f"feeder {worker}"]
    assert lanes == expected


def test_wide_bars_bear_the_number_of_their_batch():
    figure = timeline.timeline(sample(batches=3, workers=1, fetch=0.05))
    assert [texts(figure).count(str(batch)) >= 1 for batch in range(3)] == [True] * 3


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("workers", [1, 2, 8])
def test_no_text_runs_into_another_or_off_the_page(workers, dark):
    assert_legible(timeline.timeline(sample(batches=20, workers=workers), dark))


@given(
    st.integers(1, 12),
    st.integers(1, 4),
    st.sampled_from([1e-7, 1e-5, 0.003, 0.5, 40.0]),
    st.sampled_from([0.0, 1e-4, 3.0, 500.0]),
)
@settings(max_examples=6)
def test_any_length_of_time_can_be_drawn(batches, workers, fetch, start_up):
    trace = sample(batches, workers, fetch, start_up)
    assert_legible(timeline.timeline(trace))
    assert timeline.timeline_alt_text(trace)


def test_the_legend_names_every_layer_that_is_drawn_and_whose_it_is():
    words = texts(timeline.timeline(sample()))
    for name in ("main process:", "worker:", "feeder thread:"):
        assert name in words
    for layer in ("dispatch", "wait", "consumer (your loop)", "fetch", "collate", "pickle", "send"):
        assert layer in words


def test_layers_that_may_share_a_lane_differ_in_hatching():
    """So they can be told apart without colours."""
    in_main = set(LAYERS) - {"take", "void", "pickle", "send"}  # without workers it fetches, too
    for layers in (in_main, {"wait", "fetch", "collate"}, {"wait", "pickle", "send"}):
        looks = {(layer_style(layer).hatch, layer_style(layer).colour is None) for layer in layers}
        assert len(looks) == len(layers)
    assert in_main | {"pickle", "send"} <= set(LAYER_STYLES)


def test_what_is_under_way_is_drawn_as_steps_with_a_line_at_the_limit():
    trace = sample()
    figure = timeline.timeline(trace)
    steps = figure.axes[1].get_lines()[0]
    inside = Window.of(trace).steps(trace.depth(0))
    assert list(steps.get_ydata()) == [value for _, value in inside]
    assert steps.get_drawstyle() == "steps-post"
    limit = figure.axes[1].get_lines()[1]
    assert set(limit.get_ydata()) == {trace.max_depth}
    assert any(f"prefetch_factor × num_workers = {trace.max_depth}" in t for t in texts(figure))
    assert len({axes.get_xlim() for axes in figure.axes}) == 1


def test_without_workers_there_is_nothing_to_count():
    spans = [
        Span("main", layer, i, i + 1.0, batch=i // 2)
        for i, layer in enumerate(["fetch", "consumer"] * 4)
    ]
    figure = timeline.timeline(Sample(spans, max_depth=0))
    assert len(figure.axes) == 1
    assert "s since the trace began" in texts(figure)
    assert "under way" not in timeline.timeline_alt_text(Sample(spans, max_depth=0))


def test_far_from_the_beginning_time_is_counted_from_the_window_on():
    figure = timeline.timeline(sample(start_up=500.0))
    assert any(re.fullmatch(r"ms since 500 s into the trace", text) for text in texts(figure))
    assert figure.axes[0].get_xlim()[0] == 0


def test_equal_traces_give_the_same_picture():
    one, other = (plots.png(timeline.timeline(sample(batches=2))) for _ in range(2))
    assert one == other


# Which part


def test_the_first_dozen_batches_are_drawn_unless_others_are_asked_for():
    trace = sample(batches=40)
    assert Window.of(trace).batches == (0, 11)
    window = Window.of(trace, range(20, 25))
    assert window.batches == (20, 24)
    assert "batches 20 to 24" in timeline.timeline_alt_text(trace, range(20, 25))
    assert {20, 21, 22, 23, 24} <= {span.batch for span in window.spans}


@given(st.integers(0, 30), st.integers(1, 10))
def test_spans_are_cut_off_at_the_ends_of_the_window(first, count):
    trace = sample(batches=40)
    window = Window.of(trace, range(first, first + count))
    assert window.spans
    for span in window.spans:
        assert window.start <= span.start <= span.end <= window.end
    for one, following in pairwise(window.steps(trace.depth(0))):
        assert window.start <= one[0] <= following[0] <= window.end


def test_only_the_first_epoch_of_the_first_loader_is_drawn():
    first, second = sample(), sample(epoch=1)
    later = [replace(span, start=span.start + 9, end=span.end + 9) for span in second.spans]
    other = [replace(span, loader=7) for span in first.spans]
    trace = Sample(sorted(first.spans + later + other, key=lambda span: span.start))
    assert Window.of(trace).end < 109
    assert bars(timeline.timeline(trace)) == bars(timeline.timeline(first))


def test_a_long_start_up_is_left_out_and_that_is_said():
    trace = sample(start_up=5.0)
    window = Window.of(trace)
    assert window.left_out == pytest.approx(5.0, rel=0.01)
    for words in (" ".join(texts(timeline.timeline(trace))), timeline.timeline_alt_text(trace)):
        assert re.search(r"the workers started for [45]\.\d\d s; that is not drawn", words)
    assert Window.of(sample()).left_out == 0


def test_the_steps_begin_with_what_was_there_before_the_window():
    trace = replace(sample(batches=30), steps=[(0.0, 3), (1e9, 0)])
    window = Window.of(trace, range(20, 22))
    assert window.steps(trace.depth(0)) == [(window.start, 3), (window.end, 3)]


def test_of_ten_thousand_spans_those_are_drawn_that_a_page_can_show():
    trace = sample(batches=1250)
    assert len(trace.spans) >= 10_000
    window = Window.of(trace, range(600, 612))
    drawn = bars(timeline.timeline(trace, batches=range(600, 612)))
    assert sum(map(len, drawn.values())) == len(window.spans) < 200
    with pytest.raises(ValueError, match=r"1250 batches are too many .* batches=range\(0, 12\)"):
        timeline.timeline(trace, batches=range(2000))


def test_a_trace_without_batches_is_refused():
    with pytest.raises(ValueError, match=r"no batch: iterate over a labkit\.DataLoader inside"):
        timeline.timeline(Sample([]))


def test_batches_that_are_not_there_are_refused_with_those_that_are():
    with pytest.raises(ValueError, match=r"has 0 to 5, so write, say, batches=range\(0, 6\)"):
        timeline.timeline(sample(batches=6), batches=range(50, 60))


# In words


def test_the_alt_text_says_who_did_what_for_how_long():
    trace = sample(batches=2, workers=1, fetch=0.097)
    alt = timeline.timeline_alt_text(trace)
    assert alt.startswith("Timeline of batches 0 to 1 of epoch 0, 206 ms long.")
    assert "worker 0: fetch 94%" in alt
    assert "At most 4 tasks were under way at once, and 2 may be." in alt  # as the sample has it


def test_a_shown_trace_has_alt_text_and_text_without_measurements():
    data, metadata = timeline.show(sample())._repr_mimebundle_()
    assert metadata["image/png"]["alt"] == timeline.timeline_alt_text(sample())
    assert data["text/plain"] == "Figure: the timeline of a trace"


def test_a_real_trace_is_drawn():
    with labkit.trace() as trace:
        for _ in labkit.DataLoader(torch.arange(12.0), batch_size=2, num_workers=1):
            pass
    figure = trace.figure()
    assert_legible(figure)
    assert {"fetch in worker 0", "consumer in main"} <= set(bars(figure))
    alt = timeline.timeline_alt_text(trace)
    assert "batches 0 to 5 of epoch 0" in alt
    assert re.search(r"At most [12] tasks were under way at once, and 2 may be", alt)
