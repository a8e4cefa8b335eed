"""A pipeline does what its settings say, its figures fit each other, and its words its figures."""

import dataclasses
import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import labkit
from labkit.lab import curve, image_folder, loading_cost, panels, pipeline_timeline
from labkit.lab.experiments import pipeline as experiment
from labkit.lab.experiments.pipeline import LIMIT, WAS, YOURS, busy_sentence, pipelines, tuned
from labkit.lab.image_samples import SIDE
from labkit.lab.loading_cost import LoadingCost
from labkit.lab.pipeline import COPIES, PRELOADER, Pipeline, end, epoch_ms, run, steps_alone
from labkit.lab.plots.pictures import png
from labkit.lab.results import Result
from labkit.simulated import SimulatedDevice


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return str(image_folder.make(tmp_path_factory.mktemp("images"), images=8))


@pytest.fixture
def device():
    with SimulatedDevice(launch_us=0) as there:
        yield there


@pytest.fixture(scope="module")
def fonts_are_open():
    """matplotlib keeps the files of fonts open, once it has used them."""
    png(curve.Curve((2.0, 1.0), "loss", 1.5, "a level").figure())


SETTINGS = [
    {},
    {"num_workers": 1, "copies": PRELOADER, "pixels": "uint8", "decoding": "draft"},
    {"num_workers": 1, "loader": "PyTorch", "copies": "pinned, in the loop"},
    {"num_workers": 1, "persistent_workers": True, "collate": "aware: out=empty_shared"},
    {"num_workers": 1, "sharing_strategy": "copy", "prefetch_factor": 1, "copies": PRELOADER},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_every_batch_reaches_the_device_whatever_the_settings(images, device, settings):
    pipeline = Pipeline(images, batch_size=2, step_ms=1.0, **settings)
    loader = pipeline.make_loader(4)
    assert len(loader) == 4
    try:
        got = [batch.cpu() for batch, _ in COPIES[pipeline.copies](loader, device)]
        assert [(b.shape, b.dtype) for b in got] == 4 * [
            ((2, 3, SIDE, SIDE), getattr(torch, pipeline.pixels))
        ]
        ran = run(loader, pipeline, device)
        assert ran.batch_ms >= 1.0
        assert 0 < ran.busy <= 1
    finally:
        end(loader)


def test_steps_alone_keep_the_device_busy_and_take_what_they_were_told(images, device):
    alone = steps_alone(Pipeline(images, step_ms=4.0), device)
    assert alone.batch_ms >= 4.0
    assert alone.busy > 0.9


def test_an_epoch_has_all_its_steps(images, device):
    pipeline = Pipeline(images, batch_size=2, step_ms=3.0)
    assert epoch_ms(pipeline.make_loader(4), pipeline, device) >= 4 * 3.0


def test_too_few_batches_to_time_are_an_error(images, device):
    pipeline = Pipeline(images, batch_size=2)
    with pytest.raises(ValueError, match="3 batches are wanted, but there were 2"):
        run(pipeline.make_loader(2), pipeline, device)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"copies": "by hand"}, "unknown copies"),
        ({"decoding": "half"}, "unknown decoding 'half': write one of 'full', 'draft'"),
        ({"pixels": "int8"}, "unknown pixels"),
        ({"collate": "mine"}, "unknown collate"),
        ({"loader": "torch"}, "unknown loader"),
        ({"step_ms": float("nan")}, "step_ms is 0 or more"),
        ({"step_ms": -1.0}, "step_ms is 0 or more"),
        ({"loader": "PyTorch", "sharing_strategy": "arena", "num_workers": 1}, "is labkit's"),
        ({"num_workers": -1}, "num_workers"),
        ({"num_workers": 1, "start_method": "tea"}, "start method"),
    ],
)
def test_what_is_not_there_is_refused_before_anything_is_measured(images, settings, words):
    with pytest.raises(ValueError, match=words):
        pipelines({"this": Pipeline(images, **settings)})


def test_an_unknown_quantity_and_no_pipeline_are_errors(images):
    with pytest.raises(ValueError, match="unknown quantity"):
        pipelines({"this": Pipeline(images)}, quantity="joy")
    with pytest.raises(ValueError, match="nothing to compare"):
        pipelines({})


def test_tuned_compares_both_with_the_limit_in_one_process(images, monkeypatch):
    monkeypatch.setenv("LABKIT_MEASURE_SECONDS", "0.1")
    seen = []
    result = tuned(
        folder=images,
        workers=1,
        decoding="draft",
        step_ms=2.0,
        copies=PRELOADER,
        progress=lambda done, total, text: seen.append((done, total)),
    )
    assert result.labels == [WAS, YOURS, LIMIT]
    assert result.origin in ("simulated", "live")
    assert result.settings[YOURS]["num_workers"] == 1
    assert result.settings[WAS]["decoding"] == "full"
    assert result.common["step_ms"] == 2.0
    assert images not in repr(result)
    assert result.median(LIMIT) >= 2.0 - 1e-6
    assert seen[-1][0] == seen[-1][1]
    assert busy_sentence(result) in result.notes
    assert any("ms of a core" in note for note in result.notes)


def a_result(**medians):
    return Result(
        "?", "time a batch", "ms", {k.replace("_", " "): (v,) for k, v in medians.items()}
    )


def test_the_busy_share_is_steps_alone_to_all_and_who_waited_is_named():
    said = busy_sentence(a_result(as_it_was=50.0, yours=10.0, steps_alone=10.0))
    assert "20% (as it was), 100% (yours)" in said
    assert "Steps waited for batches: as it was." in said
    assert "Nothing is left to gain" in busy_sentence(a_result(yours=10.1, steps_alone=10.0))


def test_the_panel_offers_every_field_of_a_pipeline_but_folder_and_batch_size():
    offered = {control.argument for control in panels.pipeline().controls}
    fields = {field.name for field in dataclasses.fields(Pipeline)} - {"folder", "batch_size"}
    assert offered == fields - {"num_workers"} | {"workers", "quantity"}
    assert panels.pipeline().labels == [experiment.WAS, YOURS, LIMIT]


# What loading costs


@given(st.integers(1, 400), st.integers(0, 400), st.integers(1, 50), st.integers(1, 64))
def test_the_fewest_workers_keep_up_and_one_less_does_not(core, wait, step, cores):
    workers = LoadingCost(core, wait).fewest_workers(step, cores)
    if workers is None:
        assert core > cores * step
        return
    assert core <= cores * step
    assert workers * step >= core + wait
    assert workers == 1 or (workers - 1) * step < core + wait


def test_the_sentence_says_what_the_numbers_say():
    assert "here no number of workers" in LoadingCost(30.0).sentence(10.0, 2)
    assert "1 core one can come every 30.0 ms" in LoadingCost(30.0).sentence(10.0, 1)
    assert "so 1 worker can" in LoadingCost(5.0).sentence(10.0, 1)
    assert "so 4 workers can" in LoadingCost(10.0, 30.0).sentence(10.0, 1)


def test_only_work_counts_as_work():
    class Sleeps:
        def __iter__(self):
            for _ in range(4):
                loading_cost.time.sleep(0.02)
                yield None

    assert loading_cost.measure(Sleeps(), batches=3).core_ms < 10
    with pytest.raises(ValueError, match="6 batches are wanted, but the loader gave 4"):
        loading_cost.measure(Sleeps())


def test_the_work_is_measured_with_one_thread_of_pytorchs_as_in_a_worker():
    before, seen = torch.get_num_threads(), []

    def threads():
        while True:
            seen.append(torch.get_num_threads())
            yield None

    torch.set_num_threads(2)
    try:
        loading_cost.measure(threads(), batches=3)
        assert set(seen) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_loader_with_workers_is_refused(images):
    loader = Pipeline(images, num_workers=1).make_loader(2)
    with pytest.raises(ValueError, match="num_workers=0"):
        loading_cost.measure(loader)


# The picture of both


def test_workers_copies_and_steps_stand_in_one_timeline_and_no_spans_of_a_lane_overlap(
    images, device
):
    pipeline = Pipeline(images, batch_size=2, step_ms=2.0, num_workers=2, copies=PRELOADER)
    with labkit.trace() as trace:
        run(pipeline.make_loader(16), pipeline, device)
    together = pipeline_timeline.Together(trace)
    assert len({span.loader for span in together.spans}) == 1
    alt = pipeline_timeline.show(trace, range(4, 12)).alt
    for lane in ("worker 0", "worker 1", "preloader", "copies (simulated", "steps (simulated"):
        assert lane in alt
    assert "batches 4 to 11" in alt
    assert "and 4 may be" in alt
    for lane in {span.lane for span in together.spans}:
        spans = [s for s in together.spans if s.lane == lane]
        assert all(a.end <= b.start + 1e-9 for a, b in itertools.pairwise(spans)), lane


def test_a_trace_without_workers_stays_as_it_is(images, device):
    pipeline = Pipeline(images, batch_size=2, step_ms=0.0)
    with labkit.trace() as trace:
        run(pipeline.make_loader(3), pipeline, device)
    assert pipeline_timeline.Together(trace).spans == trace.spans


def test_no_words_of_the_timeline_are_cut_off_beside_long_names_of_lanes(
    images, device, fonts_are_open
):
    pipeline = Pipeline(images, batch_size=2, step_ms=1.0, num_workers=2, copies=PRELOADER)
    with labkit.trace() as trace:
        run(pipeline.make_loader(8), pipeline, device)
    figure = pipeline_timeline.show(trace).figure
    drawn = figure.canvas.get_renderer() if hasattr(figure.canvas, "get_renderer") else None
    for text in figure.texts:
        extent = text.get_window_extent(drawn)
        assert extent.x0 >= 0, text.get_text()
        assert extent.x1 <= figure.bbox.width, text.get_text()
