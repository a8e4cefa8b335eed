"""The bench's group "device": both loaders beside the steps alone, every batch's values checked."""

import math
from types import SimpleNamespace

import pytest
import torch

from labkit.device import AcceleratorDevice
from labkit.lab.bench import Options, bench, main, to_device
from labkit.lab.bench.results import Measured, Run, figures
from labkit.lab.bench.tables import table
from labkit.lab.bench.to_device import DeviceGroupRun, Size, images_of, size_for
from labkit.simulated import SimulatedDevice

TINY = Options(repeats=2, scale=0.01)


@pytest.fixture
def device(monkeypatch):
    """With small batches."""
    monkeypatch.setattr(to_device, "_IMAGE", (3, 16, 16))
    monkeypatch.setattr(to_device, "size_for", lambda device: Size(4, 1))
    with SimulatedDevice(launch_us=0, slow_motion=10.0) as device:
        yield device


def test_both_sides_and_the_steps_alone_are_measured_in_turns_and_labelled(device):
    run = bench([], TINY, device=device)
    assert run.failures == {}
    assert run.settings["groups"] == ["device"]
    assert [list(m.seconds) for m in run.workloads] == [
        ["labkit", "torch"],
        ["labkit", "torch", "step"],
        ["labkit", "torch", "step"],
    ]
    for measured in run.workloads:
        assert all(len(values) == 2 for values in measured.seconds.values())
        assert measured.batch_bytes == 4 * math.prod((3, 16, 16)) * 4
    told = table(run)
    assert "Device: simulated device, in slow motion 10×" in told
    assert "nothing of a real one's speed" in told
    assert "labkit ÷ step alone" in told
    assert "wanted" in told
    assert "≥" not in told  # no bar for a simulated device


def test_a_side_whose_values_are_wrong_fails_and_the_other_goes_on(device, monkeypatch):
    monkeypatch.setattr(to_device, "_STEPS_MS", {"no compute": 0.0})

    def wrong(device, samples, size):
        batch = device.to_device(torch.zeros(size.batch_size, 3, 16, 16))
        while True:
            yield batch

    monkeypatch.setattr(to_device, "_pytorchs", wrong)
    run = bench([], TINY, device=device)
    (name,) = run.failures
    assert name == "simulated device, no compute, torch"
    assert "batches had wrong values, first 0" in run.failures[name]
    assert len(run.workloads[0].seconds["labkit"]) == TINY.repeats


def test_when_time_is_up_no_new_repeat_begins_and_it_says_so(device, monkeypatch):
    monkeypatch.setattr(to_device, "_STEPS_MS", {"no compute": 0.0})
    run = Run({}, {})
    DeviceGroupRun(device, TINY, run, limit_s=0.0).measure()
    assert "1 of 2 repeats" in run.notes["device"]


def test_a_first_repeat_that_takes_all_the_time_is_not_gone_on_with(device):
    run = Run({}, {})
    DeviceGroupRun(device, TINY, run, limit_s=0.0).measure()
    assert "0 of 2 repeats" in run.notes["device"]
    assert [bool(measured.seconds) for measured in run.workloads] == [True, False, False]


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is one")
def test_without_an_accelerator_it_is_left_out_and_one_line_says_so(capsys):
    assert main(["--only", "device"]) == 0
    told = capsys.readouterr().out
    assert "device: no accelerator is found here; `--device simulated`" in told


def limits(monkeypatch, cores: float, memory: int):
    found = SimpleNamespace(usable_cores=cores, memory_available=memory)
    monkeypatch.setattr(to_device, "read_limits", lambda: found)
    return size_for(AcceleratorDevice(torch.device("cuda:0")))


def test_sizes_follow_from_the_machine(monkeypatch):
    size = limits(monkeypatch, cores=16, memory=128 << 30)
    assert (size.batch_size, size.workers, size.part) == (128, 8, 1.0)
    assert size.batch_bytes == 77_070_336
    assert size.warmup > 3 * 8  # each worker takes its last memory with its third batch
    small = limits(monkeypatch, cores=1, memory=2 << 30)
    assert small.workers == 2
    assert small.batch_size < 128
    assert small.batch_bytes * 16 <= 1 << 30


def test_samples_are_full_of_their_numbers_in_a_few_different_batches():
    samples = images_of(2)
    assert isinstance(samples.samples, torch.Tensor)  # a fork server takes 256 tensors at most
    assert [float(sample[0, 0, 0]) for sample in samples.samples] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    to_device._check([1.0, 5.0, 9.0, 1.0], Size(2, 1))
    with pytest.raises(ValueError, match="1 of 2 batches had wrong values, first 1"):
        to_device._check([1.0, 1.0], Size(2, 1))


def test_the_bars_stand_for_full_batches_on_one_device_only():
    def measured(name):
        return Measured(name, "", 8, seconds={"torch": [40.0], "labkit": [2.5], "step": [2.4]})

    names = ["NVIDIA H200, no compute", "NVIDIA H200, 64 images a batch, no compute"]
    names += ["NVIDIA H200, short step", "NVIDIA H200, long step", "simulated device, long step"]
    found = {(f.name, f.workload): f.wanted for f in figures([measured(name) for name in names])}
    wanted = {key: str(bar) for key, bar in found.items() if bar is not None}
    assert wanted == {
        ("PyTorch ÷ labkit", "NVIDIA H200, no compute"): "≥ 14",
        ("PyTorch ÷ labkit", "NVIDIA H200, short step"): "≥ 12",
        ("labkit ÷ step alone", "NVIDIA H200, long step"): "≤ 1.02",
    }
