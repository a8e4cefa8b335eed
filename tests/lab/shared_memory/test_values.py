"""What a child sees of memory, and of a lock, that its parent has."""

import multiprocessing
from functools import partial
from multiprocessing.shared_memory import SharedMemory

import numpy as np
import pytest
import torch

from labkit.lab.shared_memory import Table, module_lock
from labkit.lab.shared_memory.values import (
    add_to,
    look_at_array,
    look_at_tensor,
    seen_by_a_child,
)

METHODS = ("fork", "forkserver")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shared", [False, True])
def test_a_later_write_is_seen_in_shared_memory_and_pickling_moves_a_tensor_there(method, shared):
    tensor = torch.zeros(2)
    if shared:
        tensor.share_memory_()
    change = partial(tensor.fill_, 7)
    seen = seen_by_a_child(look_at_tensor, tensor, change=change, start_method=method)
    is_copy = method == "fork" and not shared
    assert seen == [[0, 0], [0, 0] if is_copy else [7, 7]]
    assert tensor.is_shared() != is_copy


@pytest.mark.parametrize("method", METHODS)
def test_an_array_in_named_memory_shows_the_same(method):
    memory = SharedMemory(create=True, size=8)
    array = np.ndarray((2,), "float32", buffer=memory.buf)
    array[:] = 0
    arguments = (memory.name, (2,), "float32")
    change = partial(array.fill, 7)
    seen = seen_by_a_child(look_at_array, *arguments, change=change, start_method=method)
    assert seen == [[0, 0], [7, 7]]
    del array, change
    memory.close()
    memory.unlink()


def test_a_dict_is_copied():
    counts = {}
    seen = seen_by_a_child(add_to, counts, "a", change=lambda: None, start_method="fork")
    assert seen == [{"a": 1}, {"a": 2}]
    assert counts == {}


def test_a_child_that_dies_is_an_error_and_not_a_wait():
    with pytest.raises(RuntimeError, match="the child ended"):
        seen_by_a_child(print, change=lambda: None, start_method="fork")


def test_a_modules_lock_is_one_lock_only_if_it_is_inherited():
    table = module_lock()
    found = {row[0]: dict(zip(table.heading, row, strict=True)) for row in table.rows}
    for method in multiprocessing.get_all_start_methods():
        one, both = "one holds it", "both hold it"
        assert found["the module's"][method] == (one if method == "fork" else both)
        assert found["given as an argument"][method] == one


def test_a_table_has_the_same_cells_as_text_and_as_html():
    table = Table(("name", "count"), [("a<b", 1), ("c", 22)])
    assert str(table) == repr(table) == "name  count\na<b   1\nc     22"
    html = table._repr_html_()
    assert '<th scope="row"' in html
    assert "a&lt;b" in html
    assert html.count("<td") == 2
