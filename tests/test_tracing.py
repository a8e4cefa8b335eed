"""Traces: what holds for the spans of any run, and what is worked out from them."""

import itertools
import json
import mmap
import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import labkit
from labkit import logbook, recording
from labkit.simulated import SimulatedDevice
from labkit.spans import LAYERS, Span, here
from labkit.tracing import Trace
from tests.datasets import EndsAtTwo, Mapped, Samples, ShardedStream

MOMENT = ("take", "void")
WAY = ("sampler", "dispatch", "fetch", "collate", "pickle", "send", "rebuild", "take", "consumer")


def unevenly(index: int) -> torch.Tensor:
    """Batches that overtake each other."""
    time.sleep(0.003 * (index % 5 == 0))
    return torch.full((100,), index)


def key(span: Span) -> tuple[int, int, int]:
    return span.loader, span.epoch, span.batch


def by_lane(trace: Trace) -> dict[Any, list[Span]]:
    lanes: dict[Any, list[Span]] = defaultdict(list)
    for span in trace.spans:
        lanes[span.lane, span.worker >= 0 and span.loader].append(span)
    return lanes


def by_batch(trace: Trace) -> dict[Any, dict[str, Span]]:
    """The spans of each batch that was taken, by layer; of several the first."""
    batches: dict[Any, dict[str, Span]] = defaultdict(dict)
    for span in trace.spans:
        if span.batch >= 0 and span.layer != "wait":
            batches[key(span)].setdefault(span.layer, span)
    return {batch: layers for batch, layers in batches.items() if "take" in layers}


def assert_sound(trace: Trace) -> None:
    """What holds for every trace."""
    assert trace.lost == 0
    for lane in by_lane(trace).values():
        for before, after in itertools.pairwise(lane):
            assert before.end <= after.start, (before, after)
    for layers in by_batch(trace).values():
        on_way = [layers[layer] for layer in WAY if layer in layers]
        for before, after in itertools.pairwise(on_way):
            assert before.start <= after.start, (before, after)  # on whatever process's clock
            if before.layer not in ("dispatch", "send"):  # whose receiver may be quicker
                assert before.end <= after.start, (before, after)
    for loader in {span.loader for span in trace.spans}:
        for steps in (trace.depth(loader), trace.reorder_buffer(loader)):
            assert all(0 <= value <= trace.max_depth for _, value in steps)
            assert [at for at, _ in steps] == sorted(at for at, _ in steps)
            assert not steps or steps[-1][1] == 0
    for span in trace.spans:
        assert span.start <= span.end
        assert span.layer in LAYERS
        assert span.minor_faults >= 0


runs = st.fixed_dictionaries(
    {
        "num_workers": st.integers(0, 3),
        "batch_size": st.one_of(st.none(), st.integers(1, 5)),
        "in_order": st.booleans(),
    },
    optional={
        "sharing_strategy": st.sampled_from(sorted(labkit.get_all_sharing_strategies())),
        "prefetch_factor": st.integers(1, 4),
        "persistent_workers": st.booleans(),
    },
)


@given(run=runs, is_stream=st.booleans(), length=st.integers(0, 17), taken=st.integers(0, 9))
@settings(max_examples=25)
def test_every_trace_is_sound(run, is_stream, length, taken):
    """No lane overlaps itself, nothing is consumed before it is made, the depth is kept, the
    clocks of the processes agree: for all kinds of loaders, for whole epochs and broken ones.
    """
    if run["num_workers"] == 0:
        run = {k: run[k] for k in ("batch_size", "in_order")}
    dataset = ShardedStream(length) if is_stream else Mapped(unevenly, length)
    loader = labkit.DataLoader(dataset, **run)
    with labkit.trace() as trace:
        whole = len(list(loader))
        broken = len(list(itertools.islice(loader, taken)))
        loader.close()
    assert_sound(trace)
    batches = by_batch(trace)
    assert len(batches) == whole + broken
    wanted = {"sampler", "fetch", "collate", "take", "consumer"}
    if run.get("num_workers"):
        wanted |= {"dispatch", "pickle", "send", "rebuild"}
    assert all(layers.keys() >= wanted for layers in batches.values())
    if whole > trace.max_depth > 0:
        assert max(depth for _, depth in trace.depth()) == trace.max_depth


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_what_was_sent_is_counted(method):
    samples = Mapped(torch.ones(1000).mul, 8)
    with labkit.trace() as trace:
        for _ in labkit.DataLoader(
            samples, batch_size=2, num_workers=1, multiprocessing_context=method
        ):
            pass
    assert_sound(trace)
    for layers in by_batch(trace).values():
        assert layers["pickle"].shared_bytes == 2 * 1000 * 4
        assert 0 < layers["send"].message_bytes == layers["rebuild"].message_bytes < 1000
    copied = trace_of(labkit.DataLoader(samples, batch_size=2, sharing_strategy="copy"), workers=1)
    assert all(s.message_bytes > 8000 for s in copied.spans if s.layer == "send")


def trace_of(loader: Any, workers: int = 0) -> Trace:
    if workers:
        arguments = {"batch_size": loader.batch_size, "num_workers": workers}
        arguments["sharing_strategy"] = loader.sharing_strategy
        loader = labkit.DataLoader(loader.dataset, **arguments)
    with labkit.trace() as trace:
        for _ in loader:
            pass
    return trace


def test_page_faults_are_those_of_fresh_memory():
    """4 MiB that are touched for the first time are 1,024 pages."""

    def touch(index: int) -> int:
        with mmap.mmap(-1, 1 << 22) as memory:
            memory.madvise(mmap.MADV_NOHUGEPAGE)
            memory[:] = bytes(1 << 22)
        return index

    trace = trace_of(labkit.DataLoader(Mapped(touch, 2)))
    assert [s.minor_faults >= 1000 for s in trace.spans if s.layer == "fetch"] == [True, True]


def test_while_nothing_is_traced_nothing_is_written():
    iterator = iter(labkit.DataLoader(Samples(8), num_workers=1, persistent_workers=True))
    list(iterator)
    (worker,) = (w for w in recording.traceable() if w.pid == iterator._pool.pid(0))
    assert list(worker.logbook.head.written) == [0, 0]
    assert here.lane is None
    iterator.close()


def test_workers_that_run_already_are_traced_too_and_only_while_it_is_on():
    loader = labkit.DataLoader(Samples(8), num_workers=2, persistent_workers=True)
    list(loader)
    with labkit.trace() as trace:
        list(loader)
    list(loader)
    loader.close()
    assert_sound(trace)
    assert {k[1] for k in by_batch(trace)} == {1}
    assert all({"fetch", "send"} <= layers.keys() for layers in by_batch(trace).values())
    assert "resume" in {s.layer for s in trace.spans}
    assert "start" not in {s.layer for s in trace.spans}


def test_a_trace_that_begins_within_an_epoch_leaves_out_what_was_under_way():
    iterator = iter(labkit.DataLoader(Samples(12), num_workers=2))
    next(iterator)
    with labkit.trace() as trace:
        list(iterator)
    assert len([s for s in trace.spans if s.layer == "take"]) == 11
    assert all(0 <= depth <= trace.max_depth for _, depth in trace.depth())


def test_a_feeder_that_was_idle_when_the_trace_began_knows_its_first_batch():
    iterator = iter(labkit.DataLoader(Samples(6), num_workers=1, prefetch_factor=1))
    next(iterator)
    time.sleep(0.3)  # batch 1 is made meanwhile, and then nobody has a task
    with labkit.trace() as trace:
        list(iterator)
    sent = {span.batch for span in trace.spans if span.layer == "send"}
    assert {2, 3, 4, 5} <= sent


def test_what_a_killed_worker_wrote_is_there():
    with labkit.trace() as trace, pytest.raises(RuntimeError, match="SIGKILL"):
        list(labkit.DataLoader(EndsAtTwo("SIGKILL"), num_workers=1))
    fetched = {s.batch for s in trace.spans if s.layer == "fetch"}
    assert {0, 1} <= fetched
    assert 2 not in fetched  # it never came to its end


def test_the_error_of_a_sample_leaves_a_sound_trace():
    def fail(index: int) -> int:
        return 1 // (index - 2)

    with labkit.trace() as trace, pytest.raises(ZeroDivisionError):
        list(labkit.DataLoader(Mapped(fail), num_workers=2))
    assert_sound(trace)
    assert recording.recorder is None


def test_two_loaders_at_once_and_one_in_a_thread_are_told_apart():
    def in_thread() -> None:
        list(labkit.DataLoader(Samples(6), num_workers=1))

    thread = threading.Thread(target=in_thread, name="other")
    with labkit.trace() as trace:
        thread.start()
        loaders = [labkit.DataLoader(Samples(6), num_workers=n) for n in (0, 1)]
        for _ in zip(*loaders, strict=True):
            pass
        thread.join()
    assert_sound(trace)
    assert len({s.loader for s in trace.spans}) == 3
    assert {"main", "other", "worker 0", "feeder 0"} == {s.lane for s in trace.spans}
    assert len(by_batch(trace)) == 18


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_loader_within_a_dataset_is_part_of_its_fetch(num_workers):
    def nested(index: int) -> torch.Tensor:
        return torch.cat([*labkit.DataLoader(Samples(3), batch_size=2)]) + index

    trace = trace_of(labkit.DataLoader(Mapped(nested, 4), num_workers=num_workers))
    assert_sound(trace)
    assert len([s for s in trace.spans if s.layer == "fetch"]) == 4


def test_a_trace_keeps_no_descriptors_of_workers_that_have_ended():
    folder = f"/proc/{os.getpid()}/fd"
    with labkit.trace() as trace:
        list(labkit.DataLoader(Samples(2), num_workers=2))
        before = len(os.listdir(folder))
        for _ in range(5):
            list(labkit.DataLoader(Samples(2), num_workers=2))
        assert len(os.listdir(folder)) <= before
    assert len([s for s in trace.spans if s.layer == "fetch"]) == 12


def test_a_thread_that_still_iterates_does_not_change_a_trace_that_was_left():
    stop = threading.Event()

    def in_thread() -> None:
        while not stop.is_set():
            list(labkit.DataLoader(Samples(20)))

    thread = threading.Thread(target=in_thread)
    thread.start()
    try:
        for _ in range(20):
            with labkit.trace() as trace:
                time.sleep(0.01)
            found = list(trace.spans)
            time.sleep(0.01)
            assert trace.spans == found
            assert_sound(trace)
    finally:
        stop.set()
        thread.join()


def test_a_forked_child_that_leaves_the_block_does_not_end_its_parents_trace():
    with labkit.trace() as trace:
        batches = iter(labkit.DataLoader(Samples(20), num_workers=1))
        next(batches)
        pid = os.fork()
        if pid == 0:
            trace.__exit__()
            os._exit(0)
        os.waitpid(pid, 0)
        list(batches)
    assert len([s for s in trace.spans if s.layer == "fetch"]) == 20


def test_one_trace_at_a_time_and_each_once():
    with labkit.trace() as trace:
        with pytest.raises(RuntimeError, match="running already"), labkit.trace():
            pass
        list(labkit.DataLoader(Samples(2)))
    with pytest.raises(RuntimeError, match="make a new one"), trace:
        pass
    with labkit.trace():
        pass


def let_lanes_hold(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    nbytes = logbook._HEAD_BYTES + 2 * count * logbook._RECORD.itemsize
    monkeypatch.setattr(logbook.Logbook, "NBYTES", nbytes)


def test_spans_that_are_overwritten_are_counted_and_told(monkeypatch):
    let_lanes_hold(16, monkeypatch)
    monkeypatch.setattr("labkit.tracing._COLLECT_EVERY", 1000)
    with pytest.warns(UserWarning, match="lacks .* spans"), labkit.trace() as trace:
        list(labkit.DataLoader(Samples(40), num_workers=1))
    assert trace.lost > 0
    fetched = [s for s in trace.spans if s.layer == "fetch"]
    assert [s.batch for s in fetched] == list(range(40))[-len(fetched) :]


def test_long_traces_lose_nothing(monkeypatch):
    let_lanes_hold(64, monkeypatch)
    monkeypatch.setattr("labkit.tracing._COLLECT_EVERY", 4)
    trace = trace_of(labkit.DataLoader(Samples(300), num_workers=1))
    assert_sound(trace)
    assert len(by_batch(trace)) == 300


def test_the_saved_file_is_in_the_trace_event_format(tmp_path):
    trace = trace_of(labkit.DataLoader(Samples(6), num_workers=2))
    trace.save(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X", "C"}
    spans_there = [event for event in events if event["ph"] == "X"]
    assert len(spans_there) == len(trace.spans)
    for event, span in zip(spans_there, trace.spans, strict=True):
        assert event["ts"] / 1e6 == pytest.approx(span.start)
        assert event["dur"] >= 0
        assert event["args"]["batch"] == span.batch
    lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert sorted(lanes.values()) == ["feeder 0", "feeder 1", "main", "worker 0", "worker 1"]
    assert {(e["pid"], e["tid"]) for e in spans_there} == lanes.keys()
    assert len({pid for pid, _ in lanes}) == 3
    assert len({tid for _, tid in lanes}) == 5  # no two threads share a track
    counted = {event["name"] for event in events if event["ph"] == "C"}
    assert counted == {"under way", "reorder buffer"}


# What is worked out from spans


def spans_of(batch: int, at: float, fetch: float = 1, consumer: float = 1) -> Iterator[Span]:
    """The spans of a batch whose way begins at `at`; each layer takes 0.25 s or what is given."""
    for layer in WAY:
        seconds = {"fetch": fetch, "consumer": consumer, "take": 0}.get(layer, 0.25)
        worker = 0 if layer in ("fetch", "collate", "pickle", "send") else -1
        lane = "main" if worker < 0 else "worker 0" if "c" in layer[2:5] else "feeder 0"
        yield Span(lane, layer, at, at + seconds, batch, worker=worker)
        at += seconds


def trace_with(spans: list[Span]) -> Trace:
    trace = Trace()
    trace.spans = sorted(spans, key=lambda span: span.start)
    return trace


def test_a_journey_names_what_was_done_and_where_the_batch_waited():
    later = {"fetch": 2.0, "collate": 2.0, "pickle": 5.0, "send": 5.0, "rebuild": 6.0, "take": 10.0}
    moved = {"consumer": 10.0}
    spans = [
        replace(span, start=span.start + later.get(span.layer, moved.get(span.layer, 0)),
                end=span.end + later.get(span.layer, moved.get(span.layer, 0)))
        for span in spans_of(0, 0.0)
    ]  # fmt: skip
    (journey,) = trace_with(spans).journeys()
    assert [(stage.name, stage.seconds) for stage in journey.stages] == [
        *[("sampler", 0.25), ("dispatch", 0.25), ("index queue", 2), ("fetch", 1)],
        *[("collate", 0.25), ("feeder queue", 3), ("pickle", 0.25), ("send", 0.25)],
        *[("result queue", 1), ("rebuild", 0.25), ("reorder buffer", 4), ("take", 0)],
        ("consumer", 1),
    ]
    assert {s.name for s in journey.stages if s.is_wait} == {
        *("index queue", "feeder queue", "result queue", "reorder buffer"),
    }


def test_who_has_it_before_the_sender_is_done_waits_for_nothing():
    spans = [replace(s, end=s.end + 0.1) if s.layer == "send" else s for s in spans_of(0, 0.0)]
    (journey,) = trace_with(spans).journeys()
    sent, arrived = (s for s in journey.stages if s.name in ("send", "result queue"))
    assert sent.seconds == 0.25
    assert arrived.seconds == 0


def busy_with(layer: str, seconds: float, pace: float = 5) -> Trace:
    """Ten batches, one every `pace` seconds."""
    spans = []
    for batch in range(10):
        times = {"fetch": 0.1, "consumer": 0.1, layer: seconds}
        spans += spans_of(batch, batch * pace, **times)
    return trace_with(spans)


def test_the_summary_finds_what_the_consumer_waits_for():
    assert "What it waits for is fetch: the workers" in busy_with("fetch", 5.0).summary()
    assert "the loader keeps up with it" in busy_with("consumer", 5.0).summary()
    assert "Nobody was busy for long" in busy_with("fetch", 0.1).summary()


def test_the_summary_of_a_real_run_finds_it_too():
    def slowly(index: int) -> int:
        time.sleep(0.02)
        return index

    slow_dataset = trace_of(labkit.DataLoader(Mapped(slowly), num_workers=1)).summary()
    assert "is fetch: the workers" in slow_dataset
    assert "is fetch: the main process" in trace_of(labkit.DataLoader(Mapped(slowly))).summary()
    with labkit.trace() as trace:
        for _ in labkit.DataLoader(Samples(8), num_workers=1):
            time.sleep(0.05)
    assert "keeps up" in trace.summary()


def test_the_summary_counts_a_batch_once_that_a_preloader_took_and_gave():
    with labkit.trace() as trace, SimulatedDevice() as device:
        given = list(labkit.Preloader(labkit.DataLoader(Mapped(float), 2, num_workers=1), device))
    assert f"\n{len(given)} batches; " in trace.summary()
    inner = [span for span in trace.spans if span.lane == "preloader"]
    assert "gave no batch yet" in trace_with(inner).summary()


def test_the_summary_of_little_says_so():
    assert "no batch was given" in trace_with([]).summary()
    text = trace_of(labkit.DataLoader(Samples(2))).summary()
    assert text.splitlines()[-1].startswith("2 batches; the first one after")


def test_a_forked_process_does_not_disturb_the_trace():
    with labkit.trace() as trace:
        batches = iter(labkit.DataLoader(Samples(6), num_workers=1))
        next(batches)
        pid = os.fork()
        if pid == 0:
            list(labkit.DataLoader(Samples(3)))
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)
        list(batches)
    assert_sound(trace)
    assert len(by_batch(trace)) == 6
