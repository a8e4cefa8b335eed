"""The command that holds the simulation to what is measured: what it draws, asks and writes."""

import os
import re
from dataclasses import replace

import pytest

from labkit.lab.simulate.__main__ import main
from labkit.lab.simulate.measured import LAYERS, Measured
from labkit.lab.simulate.validation import WORKLOADS, Row, Validation, draw, markdown, validating
from labkit.lab.simulate.validation.loading import batches_per_second, others
from labkit.lab.simulate.validation.workloads import Case


def row(predicted: float, measured: list[float]) -> Row:
    case = Case(WORKLOADS[0], 2, 4, 16, 5.0)
    count = len(measured)
    return Row(case, predicted, 50.0, measured, [55.0] * count, [1.25] * count)


def validation(*errors: float) -> Validation:
    rows = [row(100 * (1 + error), [90.0, 100.0, 130.0]) for error in errors]
    return Validation(rows, 7, 0.2, {"cpu": "some", "date": "2020-02-02"}, 12.3, "the command")


def test_settings_are_drawn_by_seed_of_every_kind_and_none_that_was_traced():
    cases = draw(seed=3, count=10)
    assert cases == draw(seed=3, count=10)
    assert cases != draw(seed=4, count=10)
    assert len(set(cases)) == 10
    assert {case.workload for case in cases} == set(WORKLOADS)
    for seed in range(50):
        for case in draw(seed, 10):
            fit = case.workload.fit_batch_size
            assert case.batch_size not in (fit, 2 * fit)


@pytest.mark.parametrize(
    ("errors", "holds"), [([0.1] * 9 + [0.9], True), ([-0.14] * 8 + [0.2, -0.2], False)]
)
def test_nine_of_ten_must_be_within_fifteen_percent(errors, holds):
    found = validation(*errors)
    assert found.holds == holds
    assert (" holds here" in found.verdict) == holds
    assert (" does not hold here" in found.verdict) == (not holds)


def test_the_table_has_every_setting_with_its_spread_its_error_and_what_was_around_it():
    text = markdown(validation(0.1, -0.3))
    rows = [line for line in text.splitlines() if line.startswith(f"| {WORKLOADS[0].name}")]
    assert [[cell.strip() for cell in line.split("|")[2:-1]] for line in rows] == [
        ["2", "4", "16", "5", "110", "100", "90.0 to 130", "+10%", "1.10", "1.2"],
        ["2", "4", "16", "5", "70.0", "100", "90.0 to 130", "-30%", "1.10", "1.2"],
    ]
    for said in ("the command", "seed 7", "2020-02-02", "some", "3 repeats", "1 of 2 settings"):
        assert said in text


def test_the_table_says_what_is_never_drawn():
    (big,) = [workload for workload in WORKLOADS if 0 not in workload.workers]
    found = validation(0.1)
    assert "Never drawn" not in markdown(found)
    found.rows[0].case = replace(found.rows[0].case, workload=big)
    assert "- Never drawn: big batches without workers: " in markdown(found)


def test_everything_is_predicted_before_anything_of_it_is_measured(monkeypatch):
    order = []
    monkeypatch.setattr(validating, "others", lambda: 0.0)
    monkeypatch.setattr(validating, "_costs", lambda *_: order.append("costs"))
    monkeypatch.setattr(validating, "_reference", lambda *_: order.append("reference") or 1.0)
    monkeypatch.setattr(validating, "_predicted", lambda *_: order.append("predicted") or 2.0)
    monkeypatch.setattr(
        validating, "batches_per_second", lambda *_: order.append("measured") or 1.0
    )
    found = validating.validate(seed=1, settings=4, repeats=3)
    assert order.index("measured") > max(i for i, what in enumerate(order) if what == "predicted")
    assert order.count("measured") == 12
    after = order[order.index("measured") - 1 :]
    assert after == ["reference", "measured"] * 12
    assert [len(row.measured) for row in found.rows] == [3] * 4
    assert not found.holds


def test_the_commands_measure_and_write(tmp_path, capsys):
    table, costs = tmp_path / "table.md", tmp_path / "costs.json"
    short = ["--settings", "1", "--repeats", "1", "--seconds", "0.05", "--out", str(table)]
    assert main(["validate", *short]) in (0, 1)  # a busy machine is not to be predicted
    text = table.read_text()
    assert re.search(r"of the measured: [01] of 1 settings", text)
    assert "Python" in text
    assert str(table) in capsys.readouterr().out
    assert main(["fit", "--seconds", "0.05", "--out", str(costs)]) == 0
    found = Measured.read(costs)
    assert set(found.layers) == set(LAYERS)
    assert found.of("fetch").mean(1)[0] > 0


def test_a_step_bounds_what_is_measured_and_others_are_counted():
    dataset = WORKLOADS[0].make().dataset
    rate = batches_per_second(dataset, 1, 2, 4, step_seconds=0.01, seconds=0.1)
    assert 0 < rate <= 100
    assert 0 <= others() < 100 * (os.cpu_count() or 1)
