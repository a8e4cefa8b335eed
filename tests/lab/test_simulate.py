"""The simulated loader against what can be worked out by hand; none of it is timed."""

import statistics
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import labkit
from labkit.lab import simulate
from labkit.lab.datasets import Payload, Waiting, Working
from labkit.lab.simulate.bounds import bounds
from labkit.lab.simulate.images import FILE, images
from labkit.lab.simulate.measured import LAYERS, Costs, Measured
from labkit.lab.simulate.metering import Meter
from labkit.lab.simulate.shared_cores import SharedCores

MS = 1e-3


def costs(**layers) -> Measured:
    """Each layer's (cpu, wait) in ms: of a sample for fetch and collate, else of a batch."""
    found = {}
    for name, (cpu, wait) in layers.items():
        if name in ("fetch", "collate", "here"):
            found[name] = Costs((cpu * MS,), (wait * MS,))
        else:
            found[name] = Costs(fixed_cpu=cpu * MS, fixed_wait=wait * MS)
    return Measured(found, batch_size=1, sample_bytes=1e6)


def rate(measured: Measured, **arguments) -> float:
    return simulate.predict(measured, **arguments).batches_per_second


# Against closed forms


def test_without_workers_a_batch_takes_the_sum_of_all():
    measured = costs(fetch=(2, 3), collate=(1, 0))
    for n in (1, 4):
        expected = 1 / ((n * 6 + 10) * MS)
        assert rate(
            measured, cores=8, num_workers=0, batch_size=n, step_seconds=10 * MS
        ) == pytest.approx(expected)


def test_without_workers_a_copy_comes_on_top_unless_it_is_made_ahead_of_time():
    measured = costs(fetch=(2, 0))
    at = {"cores": 8, "num_workers": 0, "step_seconds": 5 * MS, "link_bytes_per_second": 1e9 / 3}
    assert rate(measured, **at) == pytest.approx(1 / (10 * MS))  # 2 + 3 + 5
    assert rate(measured, **at, preloader=True) == pytest.approx(1 / (5 * MS), rel=0.01)


def test_one_worker_takes_its_own_time_beside_a_short_step():
    measured = costs(fetch=(2, 3), collate=(1, 0), loop=(1, 0), rebuild=(0.1, 0))
    found = rate(measured, cores=8, num_workers=1, batch_size=4, step_seconds=5 * MS)
    assert found == pytest.approx(1 / ((4 * 6 + 1) * MS), rel=0.01)


def test_many_workers_are_bound_by_a_slow_step_and_what_the_loop_does_besides():
    measured = costs(fetch=(2, 3), dispatch=(0.5, 0), rebuild=(1.5, 0))
    at = {"cores": 64, "num_workers": 16, "batch_size": 4, "step_seconds": 20 * MS}
    found = simulate.predict(measured, **at)
    assert found.batches_per_second == pytest.approx(1 / (22 * MS), rel=0.01)
    assert found.device_busy == pytest.approx(20 / 22, rel=0.01)
    ahead = simulate.predict(measured, **at, preloader=True)
    assert ahead.batches_per_second == pytest.approx(1 / (20 * MS), rel=0.01)
    assert ahead.device_busy == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize("gpus", [1, 2])
def test_with_more_work_than_cores_it_is_the_work_over_the_cores(gpus):
    measured = costs(fetch=(4, 0), collate=(1, 0), feeder=(1, 0), rebuild=(2, 0))
    found = simulate.predict(measured, cores=3, num_workers=12, prefetch_factor=3, gpus=gpus)
    assert found.batches_per_second == pytest.approx(3 / (8 * MS), rel=0.03)
    assert found.cores_busy == pytest.approx(3, rel=0.03)
    assert found.bounds[0].part == "the cores"


def test_waiting_takes_no_core():
    waiting, working = costs(fetch=(0, 5)), costs(fetch=(5, 0))
    at = {"cores": 2, "num_workers": 8}
    assert rate(waiting, **at) == pytest.approx(8 / (5 * MS), rel=0.02)
    assert rate(working, **at) == pytest.approx(2 / (5 * MS), rel=0.02)


def test_crowded_cores_are_slower():
    measured = costs(fetch=(4, 0))
    slower = Measured(measured.layers, 1, crowded=1.5)
    at = {"cores": 4, "num_workers": 8}
    assert rate(slower, **at) == pytest.approx(rate(measured, **at) / 1.5, rel=0.02)
    assert rate(slower, cores=4, num_workers=1) == pytest.approx(rate(measured, **at) / 4, rel=0.02)


def test_the_memory_is_shared_by_all_devices():
    measured = costs(collate=(1, 0))  # 1 MB read and written in 1 ms: 2 GB/s
    at = {"cores": 64, "num_workers": 4, "gpus": 4}
    free = rate(measured, **at)
    assert free == pytest.approx(16 / MS, rel=0.06)
    limited = simulate.predict(measured, **at, memory_bytes_per_second=8e9)
    assert limited.batches_per_second == pytest.approx(4 / MS, rel=0.06)
    assert limited.bounds[0].part == "the memory"


def test_each_device_has_a_link_of_its_own():
    measured = costs(fetch=(1, 0))
    at = {"cores": 64, "num_workers": 8, "link_bytes_per_second": 1e8, "preloader": True}
    assert rate(measured, **at) == pytest.approx(1 / (10 * MS), rel=0.01)
    assert rate(measured, **at, gpus=2) == pytest.approx(2 / (10 * MS), rel=0.01)


def test_a_larger_batch_costs_more_samples_and_no_more_of_what_is_fixed():
    layers = {"fetch": Costs((MS,), (0.0,), fixed_cpu=3 * MS), "loop": Costs(fixed_cpu=2 * MS)}
    measured = Measured(layers, batch_size=8)
    found = {n: 1 / rate(measured, cores=2, num_workers=1, batch_size=n) for n in (1, 10, 200)}
    assert found == pytest.approx({n: (n + 5) * MS for n in found}, rel=0.01)


def test_a_deeper_prefetch_helps_where_some_batches_are_slow():
    slow = Costs((0.0,) * 11 + (60 * MS,), (0.0,) * 12)
    measured = Measured({"fetch": slow}, batch_size=1)
    at = {"cores": 8, "num_workers": 2, "step_seconds": 5 * MS}
    little = simulate.predict(measured, **at, prefetch_factor=1)
    much = simulate.predict(measured, **at, prefetch_factor=8)
    assert much.batches_per_second > 1.2 * little.batches_per_second
    assert "come unevenly" in little.sentence


# What holds for every setting

SETTINGS = st.fixed_dictionaries(
    {
        "cores": st.sampled_from([1, 2, 3.5, 16]),
        "num_workers": st.integers(0, 5),
        "prefetch_factor": st.integers(1, 4),
        "batch_size": st.sampled_from([1, 3, 100]),
        "step_seconds": st.sampled_from([0.0, 2 * MS, 30 * MS]),
        "gpus": st.integers(1, 3),
        "link_bytes_per_second": st.sampled_from([None, 1e9]),
        "memory_bytes_per_second": st.sampled_from([None, 1e10]),
        "preloader": st.booleans(),
        "seed": st.integers(0, 99),
    }
)
UNEVEN = Measured(
    {
        **{layer: Costs(fixed_cpu=0.1 * MS) for layer in LAYERS if layer != "here"},
        "fetch": Costs((0.1 * MS, 0.5 * MS, 5 * MS), (0.0, 1 * MS, 0.2 * MS)),
    },
    batch_size=4,
    sample_bytes=10_000,
)


@given(SETTINGS)
def test_batches_are_given_in_order_each_once_and_never_too_many_are_under_way(settings):
    found = simulate.predict(UNEVEN, **settings)
    trace = found.trace
    taken = [span.batch for span in trace.spans if span.layer == "take"]
    assert taken == list(range(len(taken)))
    stepped = [span.batch for span in trace.spans if span.layer == "step"]
    assert stepped == list(range(len(stepped)))
    assert len(stepped) <= len(taken)
    times = found.taken_at[0]
    assert list(times) == sorted(times)
    if settings["num_workers"]:
        for layer in ("dispatch", "fetch", "collate", "send", "rebuild"):
            done = Counter(span.batch for span in trace.spans if span.layer == layer)
            assert set(done.values()) == {1}
            assert set(taken[:-1]) <= set(done)  # what was given went through all of them
        assert max(depth for _, depth in trace.depth()) <= trace.max_depth
        waiting = max(value for _, value in trace.reorder_buffer())
        assert waiting <= trace.max_depth


@given(SETTINGS)
def test_no_more_comes_out_than_any_part_allows_and_the_same_again(settings):
    found = simulate.predict(UNEVEN, **settings)
    least = found.bounds[0].batches_per_second
    assert 0 < found.batches_per_second <= 1.35 * least  # the draws are few, their mean is not that
    assert 0 <= found.device_busy <= 1
    assert found.cores_busy <= settings["cores"] * (1 + 1e-9)
    again = simulate.predict(UNEVEN, **settings)
    assert again.batches_per_second == found.batches_per_second
    assert again.noted == found.noted


@given(SETTINGS)
def test_a_thread_does_one_thing_at_a_time(settings):
    found = simulate.predict(UNEVEN, **settings)
    ends: dict[str, float] = {}
    for span in sorted(found.spans, key=lambda span: (span.start, span.end)):
        assert span.start >= ends.get(span.lane, 0.0) - 1e-9, span
        ends[span.lane] = span.end


@pytest.mark.parametrize(("workers", "factor"), [(1, 1), (3, 2), (8, 4)])
def test_littles_law_holds_for_the_batches_under_way(workers, factor):
    """On average there are as many as come in a second times the seconds that each is there."""
    found = simulate.predict(UNEVEN, cores=2, num_workers=workers, prefetch_factor=factor)
    handed, taken = (
        {span.batch: span.end for span in found.spans if span.layer == layer}
        for layer in ("dispatch", "take")
    )
    times = found.taken_at[0]
    start, end = times[20], times[-1]
    inside = [batch for batch, at in taken.items() if start < at <= end]
    staying = statistics.fmean(taken[batch] - handed[batch] for batch in inside)
    steps = found.trace.depth()
    area = sum(
        (min(after, end) - max(at, start)) * value
        for (at, value), (after, _) in pairwise(steps)
        if after > start and at < end
    )
    assert area / (end - start) == pytest.approx(len(inside) / (end - start) * staying, rel=0.1)
    assert area / (end - start) <= workers * factor


# The cores


def test_jobs_share_the_cores_evenly():
    machine, ended = SharedCores(2), {}
    for seconds in (1.0, 2.0, 3.0):
        machine.work(seconds, lambda seconds=seconds: ended.setdefault(seconds, machine.now))
    machine.after(0.25, lambda: ended.setdefault("timer", machine.now))

    def tick() -> None:
        machine.after(0.1, tick)

    tick()
    machine.run(lambda: len(ended) == 4)
    # Three at 2/3 until the first has its second at 1.5; then a core for each.
    assert ended == pytest.approx({"timer": 0.25, 1.0: 1.5, 2.0: 2.5, 3.0: 3.5})
    assert machine.worked == pytest.approx(6.0)  # and nothing since


def test_a_simulation_with_nothing_left_says_so():
    with pytest.raises(RuntimeError, match="nothing is left"):
        SharedCores(1).run(lambda: False)


# What is measured


def test_draws_have_the_mean_and_the_spread_of_the_batches_that_they_are_from():
    generator = np.random.default_rng(0)
    sums = generator.gamma(4.0, size=(4000, 8)).sum(axis=1)
    layer = Costs.of_batches(sums.tolist(), [0.0] * 4000, samples=8)
    for n in (8, 2, 500):
        drawn, _ = layer.draw(np.random.default_rng(1), 4000, n)
        assert np.mean(drawn) == pytest.approx(4 * n, rel=0.05)
        assert np.std(drawn) == pytest.approx((4 * n) ** 0.5, rel=0.1)
    assert layer.mean(10) == pytest.approx((sums.mean() * 10 / 8, 0.0))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"num_workers": -1}, "num_workers"),
        ({"prefetch_factor": 0}, "prefetch_factor"),
        ({"cores": 0}, "cores"),
        ({"step_seconds": -1.0}, "step_seconds"),
        ({"link_bytes_per_second": 0.0}, "link_bytes_per_second"),
        ({"num_workers": 1_000_000}, "2,000,000 batches under way.*one of several equal machines"),
        ({"num_workers": 64, "gpus": 1_000}, "128,000 batches under way"),
    ],
)
def test_what_no_machine_has_is_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        simulate.predict(UNEVEN, **{"cores": 2, "num_workers": 1, **wrong})
    with pytest.raises(ValueError, match="unknown layers"):
        Measured({"decode": Costs()}, 1)
    with pytest.raises(ValueError, match="nothing costs"):
        simulate.predict(Measured({}, 1), cores=1, num_workers=1)
    with pytest.raises(ValueError, match="finite"):
        Costs((float("nan"),), (0.0,))


def test_the_least_bound_is_named_and_the_next_one():
    measured = costs(fetch=(2, 8), rebuild=(1, 0))
    found = simulate.predict(measured, cores=2, num_workers=4)
    parts = [bound.part for bound in bounds(measured, found.settings)]
    assert parts[:2] == ["the workers", "the cores"]
    assert "What holds it back: the workers" in found.sentence
    assert "Next would be the cores" in found.sentence
    assert found.sentence.startswith("Predicted, not measured:")
    text = found.as_text()
    assert found.sentence in text
    assert "Cores: 2, of which" in text
    for bound in found.bounds:
        assert f"  {bound.part}: " in text


def test_a_trace_gives_costs_that_come_back_from_json():
    loader = labkit.DataLoader(Waiting(Payload(160, 1000), 0.001), batch_size=4, num_workers=2)
    with labkit.trace() as trace:
        for _ in loader:
            pass
    found = simulate.measured(trace, batch_size=4, cpu_share=0.0)
    cpu, wait = found.of("fetch").mean(4)
    assert cpu == 0
    assert wait >= 4 * MS
    assert 1000 <= found.sample_bytes < 1100
    assert Measured.from_json(found.to_json()) == found
    at = {"cores": 64, "num_workers": 2, "batch_size": 4}
    assert rate(found, **at) <= 1.1 * 2 / wait
    trace.spans = [span for span in trace.spans if span.layer != "take" or span.batch < 20]
    unfinished = simulate.measured(trace, batch_size=4)
    assert unfinished.sample_bytes == found.sample_bytes
    with pytest.raises(ValueError, match="batches after the first"):
        simulate.measured(trace, warmup=38)
    with pytest.raises(ValueError, match="cpu_share"):
        simulate.measured(trace, cpu_share=2)
    with pytest.raises(ValueError, match="batch_size"):
        simulate.measured(trace, batch_size=0)


def test_measuring_tells_work_from_waiting():
    dataset = Waiting(Working(Payload(64, 1000), 0.001), 0.002)
    found = simulate.measure(dataset, batch_size=4, seconds=0.1)
    for layer in ("fetch", "here"):
        cpu, wait = found.of(layer).mean(4)
        assert cpu >= 4 * MS
        assert wait >= 0.5 * 8 * MS  # short of it where others take the core between two clocks
    work, _ = found.of("fetch").mean(4)
    both = simulate.predict(found, cores=1, num_workers=16, batch_size=4)
    assert both.batches_per_second <= 1.1 / work
    assert found.crowded >= 1
    assert found.machine["cores"] >= 1


def test_a_meter_changes_no_sample_and_keeps_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    meter = Meter(workers=2)
    plain = Payload(24, 10)
    loader = labkit.DataLoader(
        meter.dataset(plain),
        batch_size=2,
        num_workers=2,
        collate_fn=meter.collate(labkit.default_collate),
    )
    batches = list(loader)
    expected = list(labkit.DataLoader(plain, batch_size=2))
    assert all(map(torch.equal, batches, expected))
    records = meter.records(warmup=1)
    assert [len(record.fetch_cpu) for record in records] == [4, 4]  # of 6 each
    assert all(value >= 0 for record in records for value in record.fetch_wait)
    meter.close()
    assert list(tmp_path.iterdir()) == []


def test_the_recorded_costs_say_where_they_are_from():
    found = images()
    assert Measured.from_json(FILE.read_text()) == found
    assert set(found.layers) == set(LAYERS)
    assert {"date", "cpu", "cores", "python", "torch", "labkit"} <= set(found.machine)
    assert found.sample_bytes >= 224 * 224 * 3
