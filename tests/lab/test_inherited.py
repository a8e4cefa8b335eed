"""What a child inherits is found by trying, and told as text and as a table."""

import multiprocessing
import sys

import pytest

from labkit.lab.inherited import Inherited, inherited
from labkit.lab.programs import inheritance

EVERYWHERE = {"a folder added to sys.path", "an argument's value"}
NOWHERE = {"its other threads"}


@pytest.mark.skipif(sys.platform != "linux", reason="fork and forkserver")
def test_each_start_method_hands_on_what_it_should():
    found = inherited().found
    has = {method: {thing for thing in things if things[thing]} for method, things in found.items()}
    every = set(found["fork"])
    assert list(has) == ["fork", "forkserver", "forkserver, torch preloaded", "spawn"]
    assert has["fork"] == every - NOWHERE
    assert has["forkserver"] == EVERYWHERE
    assert has["forkserver, torch preloaded"] == EVERYWHERE | {"torch, imported before"}
    assert has["spawn"] == EVERYWHERE | {"a new environment variable"}


def test_a_child_that_looks_here_finds_all_that_it_is_told_of(monkeypatch):
    """So nothing in the table can be "–" for a reason of the looking."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    monkeypatch.setattr(inheritance, "value", "changed")
    monkeypatch.setenv(inheritance._VARIABLE, "1")
    monkeypatch.setattr(sys, "path", [*sys.path, inheritance._FOLDER])
    import torch

    with receiver, sender, open(__file__) as file, inheritance._held_by_a_thread():
        parent = {
            "random state": torch.get_rng_state().tolist(),
            "descriptor": file.fileno(),
            "file": inheritance._file_at(file.fileno()),
            "argument": [1, 2, 3],
        }
        inheritance.look(parent, sender)
        assert set(receiver.recv().values()) == {True}


def test_a_table_has_a_row_a_thing_and_a_column_a_method():
    table = Inherited(
        {"fork": {"a < b": True, "a lock": True}, "spawn": {"a < b": True, "a lock": False}}
    )
    assert table.rows == [
        ["the child has", "fork", "spawn"],
        ["a < b", "yes", "yes"],
        ["a lock", "yes", "–"],
    ]
    assert str(table).splitlines()[2].split() == ["a", "lock", "yes", "–"]
    page = table._repr_html_()
    assert page.count('<th scope="row"') == 2
    assert page.count('<th scope="col"') == 3
    assert "a &lt; b" in page
    assert "a < b" not in page
