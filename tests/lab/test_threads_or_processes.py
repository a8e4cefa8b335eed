"""Main process, threads and processes are compared by the same work, and told apart by name."""

import os
import threading
import time
from contextlib import contextmanager

import pytest
import torch

from labkit.lab import panels
from labkit.lab.experiments import threads_or_processes as experiment
from labkit.lab.experiments.threads_or_processes import QUANTITIES, WHO, threads_or_processes
from labkit.lab.resources import running
from labkit.lab.results import Result


class WhoLoads:
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return os.getpid(), threading.get_ident()


@pytest.mark.parametrize("who", WHO)
def test_each_loads_where_its_name_says(who):
    with running(WHO[who](WhoLoads(), 2, "fork")) as batches:
        pids, threads = map(set, zip(*[(int(b[0][0]), int(b[1][0])) for b in batches], strict=True))
    here = {os.getpid()}
    assert (pids == here) == (who != "processes")
    if who == "main process":
        assert threads == {threading.get_ident()}
    if who == "threads":
        assert threading.get_ident() not in threads


def test_they_are_measured_side_by_side():
    result = threads_or_processes("parse text in Python", workers=1, step_ms=15, repeats=1)
    assert result.labels == list(WHO)
    assert result.quantity == QUANTITIES[0]
    assert result.common["workers"] == 1
    assert all(value >= 15 for (value,) in result.repeats.values())  # the step counts, too


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_each_quantity_has_its_own_measurement_and_the_torch_threads_come_back(
    quantity, monkeypatch
):
    def measure_one(settings, function, *, common, **_):
        return function(loader="threads", **common)

    monkeypatch.setattr(experiment, "measure", measure_one)
    before = torch.get_num_threads()
    value = threads_or_processes(workers=1, quantity=quantity, step_ms=5)
    assert value > 0
    assert torch.get_num_threads() == before


def test_the_scan_of_the_libraries_is_not_in_the_time_to_the_first_batch(monkeypatch):
    @contextmanager
    def slowly(threads):
        time.sleep(1)
        yield

    monkeypatch.setattr(experiment, "several_threads", slowly)
    dataset_and_loader = "main process", "parse text in Python"
    assert experiment._first_batch_ms(*dataset_and_loader, 1, 0.0, "fork") < 1000


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"work": "dig"}, "'decode a JPEG'"),
        ({"quantity": "weight"}, "'time a batch'"),
        ({"workers": 0}, "workers is 1 or more"),
        ({"step_ms": -1}, "step_ms 0 or more"),
    ],
)
def test_bad_arguments_are_refused_with_what_to_write(options, words):
    with pytest.raises(ValueError, match=words):
        threads_or_processes(**options)


def test_the_panel_s_controls_are_arguments_that_the_experiment_takes(monkeypatch):
    asked = []

    def note(settings, function, *, common, **options):
        asked.append((function, common))
        return Result(
            options["question"], options["quantity"], "ms", dict.fromkeys(settings, (1.0,))
        )

    monkeypatch.setattr(experiment, "measure", note)
    panel = panels.threads_or_processes()
    for control in panel.controls:
        for value in control.options.values():
            assert panel.run(**{control.argument: value}).labels == panel.labels
    assert len({repr(found) for found in asked}) > 8  # the controls do something
