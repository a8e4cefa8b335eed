"""Where an experiment on a device runs, what it notes of that, and its steps."""

import pytest
import torch

from labkit.lab.on_device import Experiment, here, measure, place, step, steps, the_device
from labkit.lab.results import Result
from labkit.simulated import Operation, SimulatedDevice


@pytest.fixture
def device():
    with SimulatedDevice(launch_us=0) as device:
        yield device


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is one")
def test_without_an_accelerator_the_device_is_a_simulated_one_in_slow_motion():
    device = the_device(slow_motion=3.0)
    with device:
        assert device.is_simulated
        about = here(device)
    assert about["device"] == "simulated device, in slow motion 3×"
    assert about["simulated"] is True
    assert {"date", "torch", "numpy", "python", "labkit", "cores"} <= about.keys()


def test_a_result_says_that_the_device_was_simulated_while_it_is_made_and_after(device):
    so_far: list[Result] = []
    result = measure(
        device,
        {"a": lambda: 1.0, "b": lambda: 2.0},
        repeats=2,
        warmup=0,
        so_far=so_far.append,
        notes=("A note.",),
    )
    for found in (result, *so_far):
        assert found.origin == "simulated"
        assert found.machine["device"] == "simulated device"
        assert found.notes == ("A note.",)
    assert len(so_far) == 1


def test_a_step_reads_its_batch_at_its_end(device):
    done: list[Operation] = []
    device.on_operation.append(done.append)
    batch = device.to_device(torch.arange(5.0))
    assert step(device, batch, 0.01).item() == 4.0
    assert step(device, batch, 0.0, read=torch.sum).item() == 10.0
    steps = [op for op in done if op.kind == "step"]
    assert len(steps) == 2
    assert steps[0].end - steps[0].start >= 0.01 - 1e-9


class Counted:
    """Stands for a product that takes so many seconds."""

    def __init__(self, seconds):
        self.seconds, self.count = seconds, 0

    def repeat(self, count):
        self.count += count


@pytest.mark.parametrize("seconds", [6e-3, 1.4e-3, 50e-6, 1e-6])
def test_a_step_on_an_accelerator_is_as_many_products_as_take_that_long(seconds):
    products = [Counted(205e-6), Counted(15e-6)]
    steps._run(products, seconds)
    took = sum(product.count * product.seconds for product in products)
    assert took == pytest.approx(seconds, abs=8e-6)
    assert products[1].count <= 205 / 15 + 1  # most of it is done by few large ones


def test_the_drivers_version_is_read_where_it_stands(tmp_path, monkeypatch):
    path = tmp_path / "version"
    line = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan\nGCC version: 12.2\n"
    path.write_text(line)
    monkeypatch.setattr(place, "_NVIDIA", path)
    assert place._driver() == "570.86.15"
    monkeypatch.setattr(place, "_NVIDIA", tmp_path / "none")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert place._driver() is None


def run(device=None, nbytes=10, kind="plain", *, repeats=3, seconds=1.0, cancel=None) -> Result:
    raise NotImplementedError


def test_settings_are_the_same_whether_a_default_is_named_or_not():
    experiment = Experiment(run, recorded=({}, {"nbytes": 5}), tried=({"nbytes": 1},))
    full = {"nbytes": 10, "kind": "plain"}
    assert experiment.full({}) == experiment.full({"nbytes": 10, "repeats": 7}) == full
    assert experiment.full({"kind": ("a", 1)}) == {"nbytes": 10, "kind": ["a", 1]}
    assert experiment.settings(simulated=False) == ({}, {"nbytes": 5})
    assert experiment.settings(simulated=True) == ({"nbytes": 1},)
    assert Experiment(run).settings(simulated=True) == ({},)
