"""The preloaders of notebook 09: each mend mends one fault, and overlap comes near its limit."""

import ast
import threading
import time
from pathlib import Path

import nbformat
import pytest
import torch

import labkit
from labkit.lab import panels
from labkit.lab.experiments import Cancelled
from labkit.lab.on_device import EXPERIMENTS, preloaders, preloading
from labkit.lab.on_device import queue_sizes as queues
from labkit.lab.on_device.conduct import (
    QUESTIONS,
    UNREADABLE,
    blocking_copies,
    questions,
    values_read,
)
from labkit.lab.on_device.device_memory import PeakMemory
from labkit.lab.on_device.preloaders import VERSIONS, tensors_of
from labkit.lab.on_device.prepared import BATCH_BYTES, MODEL, Prepared, Supply, end, scale_model
from labkit.simulated import SimulatedDevice

ROOT = Path(__file__).parents[2]
SHORT = {"repeats": 1, "seconds": 0.1}


@pytest.fixture(scope="module")
def supply():
    with scale_model() as device:
        yield Supply(device)


# The versions


@pytest.mark.filterwarnings(  # it is the fault that nobody is told
    "ignore:Exception in thread Thread-[0-9]+ .fill.:pytest.PytestUnhandledThreadExceptionWarning"
)
def test_each_mend_mends_one_fault_and_labkit_has_none(supply):
    table = {name: list(questions(version, supply).values()) for name, version in VERSIONS.items()}
    count = len(QUESTIONS)
    assert table == {
        name: [True] * mended + [False] * (count - mended) for mended, name in enumerate(VERSIONS)
    }
    assert all(questions(labkit.Preloader, supply).values())


def without_types(code: str) -> dict[str, str]:
    """The classes and functions of a text by name, without annotations."""

    class Bare(ast.NodeTransformer):
        def visit_FunctionDef(self, node):
            self.generic_visit(node)
            node.returns = None
            return node

        def visit_arg(self, node):
            node.annotation = None
            return node

        def visit_AnnAssign(self, node):
            return self.visit(ast.Assign([node.target], node.value, lineno=node.lineno))

        def visit_Subscript(self, node):
            plain = isinstance(node.slice, ast.Name) and node.slice.id == "Any"
            return node.value if plain else node

    tree = Bare().visit(ast.parse(code))
    return {node.name: ast.unparse(node) for node in tree.body if hasattr(node, "name")}


def test_the_notebook_builds_the_versions_that_are_measured():
    notebook = nbformat.read(ROOT / "notebooks" / "09_the_preloader.ipynb", as_version=4)
    built: dict[str, str] = {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            built |= without_types(cell.source)
    measured = without_types(Path(preloaders.__file__).read_text())
    names = {version.__name__ for version in VERSIONS.values()} | {"nested"}
    assert names <= measured.keys()
    assert {name: built.get(name) for name in names} == {name: measured[name] for name in names}


def test_the_mended_one_gives_all_batches_in_several_epochs_and_ends_while_the_thread_waits():
    with SimulatedDevice(launch_us=0) as device:
        preloader = preloaders.KeepsContainers([torch.tensor(i) for i in range(5)], device)
        assert [[batch.item() for batch in preloader] for _ in range(2)] == [[0, 1, 2, 3, 4]] * 2
        before = threading.active_count()
        epoch = iter(preloader)
        assert next(epoch).item() == 0
        assert threading.active_count() == before + 1
        epoch.close()
        assert threading.active_count() == before


def test_tensors_are_found_in_any_container():
    with SimulatedDevice(launch_us=0) as device:
        a, b = (device.to_device(torch.ones(1)) for _ in "ab")
        pair = preloading.PRELOADERS  # anything else is no tensor
        assert tensors_of({"x": [a, (b, "word", None)], "y": len(pair)}) == [a, b]


# What they are tried with


def test_a_scale_model_keeps_the_proportions_of_the_card(supply):
    assert MODEL * supply.pinned[0].nbytes == pytest.approx(BATCH_BYTES, rel=1e-4)
    assert 0.99 < supply.copy_seconds / (BATCH_BYTES / 53.6e9) < 20
    assert [batch[0].item() for batch in supply.pageable] == [1, 2, 3, 4, 5, 6]
    assert all(supply.device.is_pinned(batch) for batch in supply.pinned)
    assert not any(supply.device.is_pinned(batch) for batch in supply.pageable)


def test_copies_that_block_are_noted_and_the_device_is_left_as_it_was(supply):
    device, (batch, *_) = supply.device, supply.pageable
    with blocking_copies(device) as found:
        device.to_device(batch)
        device.to_device(supply.pinned[0])
        device.to_device(supply.pinned[0], non_blocking=False)
    device.to_device(batch)
    assert found == [batch.nbytes] * 2


def test_a_prepared_loader_breaks_where_it_is_told_to_and_can_be_ended():
    loader = Prepared([10, 20, 30], broken=1)
    assert len(loader) == 3
    given = iter(loader)
    assert next(given) == 10
    with pytest.raises(ValueError, match="batch 1 is broken"):
        next(given)
    with SimulatedDevice(launch_us=0) as device:
        naive = preloaders.Naive(Prepared([torch.ones(1)] * 3), device)
        end(naive)
        assert not naive.thread.is_alive()


def test_the_peak_counts_what_was_taken_inside_and_nothing_before():
    with SimulatedDevice(launch_us=0) as device:
        kept = device.to_device(torch.ones(10_000))
        del kept
        with PeakMemory(device) as memory:
            for _ in range(3):
                device.to_device(torch.ones(1024))
            both = [device.to_device(torch.ones(1024)) for _ in range(2)]
        assert memory.nbytes == 2 * 4096
        assert len(both) == 2


# What is measured


def test_overlap_comes_within_5_percent_of_the_longer_of_copy_and_step():
    """By the device's own clock; a machine that stands still for a while gets further tries."""
    for _ in range(10):
        result = preloading.preloaders(step_copies=1.0, **SHORT)
        ratio = result.median("labkit.Preloader") / result.median(preloading.LIMIT)
        if 0.95 < ratio < 1.05:
            break
    assert 0.95 < ratio < 1.05
    assert result.median("no preloader") > 1.3 * result.median(preloading.LIMIT)


def test_a_result_says_that_it_is_simulated_and_a_model():
    said, so_far = [], []
    result = preloading.preloaders(
        repeats=2, progress=lambda *step: said.append(step), so_far=so_far.append
    )
    assert result.labels == [preloading.LIMIT, *preloading.TIMED]
    assert (result.origin, result.unit) == ("simulated", "ms")
    assert any("scale model" in note and "not the speed of a card" in note for note in result.notes)
    assert result.machine["simulated"]
    assert said[-1][2] == "done"
    assert [len(each.repeats[preloading.LIMIT]) for each in so_far] == [1]


@pytest.mark.parametrize(("step_copies", "right"), [(0.0, ["waits", "keeps memory"]), (4.0, [])])
def test_the_panel_counts_wrong_batches_by_version(step_copies, right):
    """One that reads early reads right where the reader stands still meanwhile: further tries."""
    panel = panels.preloaders()
    always = {"keeps memory", "labkit.Preloader"}
    for _ in range(5):
        result = panel.run(quantity="wrong batches", step_copies=step_copies, **SHORT)
        none_wrong = {name for name, (count,) in result.repeats.items() if count == 0}
        assert none_wrong >= always
        if none_wrong == {*always, *right}:
            break
    assert none_wrong == {*always, *right}
    assert "Simulated" in panel.sentence


def test_each_place_in_the_queue_costs_one_batch_and_all_is_bounded():
    result = panels.queue_sizes().run(quantity="device memory", **SHORT)
    held = [result.median(label) for label in result.labels]
    for size, most in zip(queues.SIZES, held, strict=True):
        assert size < most <= size + 5.1  # the steps' results take some memory, too
    assert held[-1] > held[0] + 4


def test_a_longer_queue_helps_where_the_loader_is_uneven():
    for _ in range(5):
        result = queues.queue_sizes(loader_times="uneven", **SHORT)
        if result.median("queue_size=8") < 0.95 * result.median("queue_size=1"):
            break
    assert result.median("queue_size=8") < 0.95 * result.median("queue_size=1")


@pytest.mark.parametrize(
    ("experiment", "settings", "words"),
    [
        (preloading.preloaders, {"quantity": "speed"}, "'speed': write one of 'time a"),
        (preloading.preloaders, {"memory": "fast"}, "unknown memory 'fast'"),
        (preloading.preloaders, {"step_copies": -1}, "step_copies is 0 or more"),
        (queues.queue_sizes, {"quantity": "speed"}, "unknown quantity 'speed'"),
        (queues.queue_sizes, {"loader_times": "odd"}, "unknown loader_times 'odd'"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_measured(experiment, settings, words):
    with pytest.raises(ValueError, match=words):
        experiment(**settings)


@pytest.mark.parametrize("experiment", [preloading.preloaders, queues.queue_sizes])
def test_it_can_be_cancelled_and_leaves_nothing(experiment):
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(Cancelled):
        experiment(cancel=cancel)


def test_recordings_are_made_of_settings_that_the_panels_offer():
    for panel in (panels.preloaders(), panels.queue_sizes()):
        offered = {control.argument: control.options.values() for control in panel.controls}
        for recorded in EXPERIMENTS[panel.recorded].recorded:
            assert all(value in offered[name] for name, value in recorded.items())


def test_pinning_takes_the_model_as_long_as_a_host_would_take(supply):
    device, batch = supply.device, supply.pageable[0]
    began = time.monotonic()
    assert device.is_pinned(device.pin(batch))
    assert time.monotonic() - began >= 10 * device.slow_motion * (BATCH_BYTES / 53.6e9)
    assert device.pin(supply.pinned[0]) is supply.pinned[0]


def test_values_are_those_that_the_steps_read(supply):
    device = supply.device
    there = [device.to_device(batch) for batch in supply.pinned[:2]]
    there.append(device.to_device(torch.full((4,), torch.nan)))  # what memory may hold by chance
    assert values_read(there, device) == [1, 2, UNREADABLE]
