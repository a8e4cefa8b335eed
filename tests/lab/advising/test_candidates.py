"""Nothing is tried beyond the machine, and what is not tried is told."""

from hypothesis import given
from hypothesis import strategies as st

from labkit.lab.advising.candidates import (
    Bounds,
    fewest_alive,
    refinements,
    starts,
    with_other_workers,
)
from labkit.lab.advising.findings import Probe
from labkit.lab.advising.setting import Setting
from labkit.lab.doctor.limits import Limits

GB = 10**9


def a_probe(batch_bytes=1_000_000, core_share=1.0, batches=None) -> Probe:
    return Probe(batch_bytes, 8, 0.001, core_share, 0.0, 0.0, batches, ())


settings = st.builds(
    Setting,
    module=st.sampled_from(["labkit", "torch.utils.data"]),
    num_workers=st.integers(1, 6),
    prefetch_factor=st.sampled_from([None, 1, 4]),
    start_method=st.sampled_from([None, "spawn", "fork"]),
    persistent_workers=st.booleans(),
)
bounds = st.builds(
    Bounds,
    cores=st.integers(1, 64),
    memory_bytes=st.integers(4_000_000, GB),
    worker_memory=st.none() | st.integers(100_000_000, 10 * GB),
    shm_bytes=st.none() | st.integers(1_000_000, GB),
)
probes = st.builds(
    a_probe,
    core_share=st.sampled_from([0.1, 1.0]),
    batches=st.none() | st.integers(1, 1000),
)


@given(settings, probes, bounds)
def test_whatever_is_tried_has_room_and_cores(given_one, probe, limits):
    others, words = with_other_workers(given_one, probe, limits)
    best = fewest_alive(given_one, probe, limits)
    tried = [
        *others,
        *refinements(best, probe, limits, True, None),
        *starts(best, probe, limits, True),
    ]
    for setting in tried:
        assert setting.alive * probe.batch_bytes <= limits.memory_bytes
        assert limits.allow(setting, probe)
    most = limits.cores * (4 if probe.core_share < 0.5 else 1)
    assert all(setting.num_workers <= most for setting in others if setting != best)
    assert len(words) == 1
    assert "not tried" in words[0]


def test_computing_gets_a_worker_a_core_and_waiting_more():
    limits = Bounds(cores=4, memory_bytes=GB)
    computes, _ = with_other_workers(Setting(), a_probe(), limits)
    waits, _ = with_other_workers(Setting(), a_probe(core_share=0.1), limits)
    assert computes[0].num_workers == 4
    assert waits[0].num_workers == 16


def test_memory_keeps_workers_few_and_says_so():
    limits = Bounds(cores=4, memory_bytes=6_000_000)
    tried, (words,) = with_other_workers(Setting(), a_probe(), limits)
    assert [setting.num_workers for setting in tried] == [1]
    assert "6 MB that they may take" in words


def test_a_small_dev_shm_keeps_pytorchs_loader_and_named_memory_out():
    limits = Bounds(cores=4, memory_bytes=GB, shm_bytes=6_000_000)
    by_name = Setting(num_workers=2, sharing_strategy="file_system")
    assert not limits.allow(by_name, a_probe())
    assert not limits.allow(Setting("torch.utils.data", num_workers=2), a_probe())
    assert limits.allow(Setting(num_workers=2), a_probe())


def test_an_epoch_of_two_batches_gets_no_third_worker():
    tried, (words,) = with_other_workers(Setting(), a_probe(batches=2), Bounds(8, GB))
    assert max(setting.num_workers for setting in tried) == 2
    assert "an epoch has no more batches" in words


def test_of_pytorchs_loader_without_workers_workers_are_tried_first():
    tried, _ = with_other_workers(Setting("torch.utils.data"), a_probe(), Bounds(4, GB))
    assert [setting.num_workers for setting in tried] == [4, 2, 1, 0]


def test_from_pytorchs_loader_labkits_own_is_tried_first():
    given_one = Setting("torch.utils.data", num_workers=2)
    tried, _ = with_other_workers(given_one, a_probe(), Bounds(4, GB))
    assert tried[0] == Setting("labkit", num_workers=2)


def test_a_setting_that_does_not_fit_is_made_smaller():
    probe, limits = a_probe(), Bounds(4, memory_bytes=8_000_000)
    small = fewest_alive(Setting(num_workers=4, prefetch_factor=4), probe, limits)
    assert small.alive * probe.batch_bytes <= 8_000_000
    assert small.num_workers == 4


def test_spawned_workers_may_come_from_a_fork_or_a_fork_server_and_a_lock_only_from_a_fork():
    spawned = Setting(num_workers=1, start_method="spawn", persistent_workers=True)
    limits = Bounds(4, GB)
    methods = {setting.method for setting in starts(spawned, a_probe(), limits, pickles=True)}
    assert methods == {"fork", "forkserver"}
    methods = {setting.method for setting in starts(spawned, a_probe(), limits, pickles=False)}
    assert methods == {"fork"}


def test_the_bounds_are_the_doctors():
    limits = Limits(affinity=16, cpu_quota=2.5, memory_available=4 * GB, shm_free=64_000_000)
    found = Bounds.of(limits, GB)
    assert (found.cores, found.memory_bytes, found.worker_memory) == (2, GB, 1.5 * GB)
    assert found.shm_bytes == 64_000_000
