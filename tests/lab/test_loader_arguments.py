"""The course speaks of every argument where it says so; exclusions are found by trying."""

import inspect
import json
import re
from pathlib import Path

import pytest
import torch.utils.data

import labkit
from labkit.lab import loader_arguments
from labkit.lab.loader_arguments import EXCLUSIONS, WHERE

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def test_every_argument_of_both_loaders_has_its_place():
    names = {
        name
        for loader in (labkit.DataLoader, torch.utils.data.DataLoader)
        for name in inspect.signature(loader).parameters
    }
    assert names == WHERE.keys()
    lines = loader_arguments.table().splitlines()
    assert [line.split()[0] for line in lines] == list(WHERE)


@pytest.mark.parametrize("argument", WHERE)
def test_the_notebook_that_is_named_speaks_of_it(argument):
    (path,) = NOTEBOOKS.glob(f"{WHERE[argument][0]}_*.ipynb")
    cells = json.loads(path.read_text())["cells"]
    assert any(re.search(rf"\b{argument}\b", "".join(cell["source"])) for cell in cells)


def test_an_argument_of_which_the_course_says_nothing_is_an_error(monkeypatch):
    monkeypatch.delitem(WHERE, "timeout")
    with pytest.raises(LookupError, match="timeout"):
        loader_arguments.table()


def test_labkit_refuses_all_that_exclude_each_other_when_it_is_made(monkeypatch):
    rows = loader_arguments.exclusions().splitlines()
    assert rows[0].split() == ["labkit", "PyTorch"]
    assert len(rows) == 1 + len(EXCLUSIONS)
    assert all(row[40:].startswith("when it is made") for row in rows[1:])
    monkeypatch.setattr(
        loader_arguments, "EXCLUSIONS", {"nothing": {}, "bad": {"sampler": iter(["no index"])}}
    )
    rows = loader_arguments.exclusions().splitlines()
    assert rows[1].split("nothing")[1].split() == ["not", "at", "all"] * 2
    assert "when it is used" in rows[2]
