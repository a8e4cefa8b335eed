"""`show` gives the source that runs, where it stands, and colours that follow the page."""

import functools
import inspect
import re
from html import unescape
from multiprocessing.reduction import DupFd

import pytest
from torch.utils.data import BatchSampler

import labkit
import labkit.worker
from labkit.lab import show
from labkit.lab.exercises import solution


def text_of(html: str) -> str:
    """What stands in the <pre>, without markup."""
    inside = re.search(r"<pre[^>]*>(.*)</pre>", html, flags=re.DOTALL)[1]
    return unescape(re.sub(r"<[^>]+>", "", inside))


@pytest.mark.parametrize(
    "thing",
    [
        labkit.worker.numpy_seed,
        labkit.DataLoader,
        labkit.DataLoader.__iter__,
        labkit.worker.WorkerInfo.id,
        labkit.worker,
        labkit.default_collate,
    ],
    ids=["function", "class", "method", "property", "module", "public name"],
)
def test_the_source_is_the_file_s(thing):
    found = show(thing)
    with open(found.file) as file:
        lines = file.readlines()
    code = found.code.splitlines(keepends=True)
    assert lines[found.line - 1 : found.line - 1 + len(code)] == code
    assert repr(found) == found._repr_mimebundle_()["text/plain"] == found.code


def test_the_html_has_the_same_text_and_says_where_it_stands():
    found = show(labkit.worker.numpy_seed)
    html = found._repr_mimebundle_()["text/html"]
    assert text_of(html) == found.code
    line = inspect.getsourcelines(labkit.worker.numpy_seed)[1]
    assert f"<code>numpy_seed</code> in labkit/worker.py, line {line}" in html
    assert '<span class="k">def</span>' in html


def test_a_file_of_an_installed_package_is_named_as_in_that_package():
    assert re.fullmatch(r"torch/utils/data/sampler\.py, line \d+", show(BatchSampler).where)
    assert re.fullmatch(r"multiprocessing/reduction\.py, line \d+", show(DupFd).where)


def test_no_colour_is_fixed_so_it_can_be_read_on_light_and_dark():
    html = show(labkit.worker.numpy_seed)._repr_mimebundle_()["text/html"]
    style = re.search(r"<style>(.*)</style>", html, flags=re.DOTALL)[1]
    colours = re.findall(r"[ {]color: ([^;}]+)", style)
    assert colours
    assert all(re.fullmatch(r"var\(--jp-[a-z-]+, inherit\)", colour) for colour in colours)


def test_a_decorated_function_is_shown_itself():
    @functools.lru_cache
    def doubled(x):
        return 2 * x

    found = show(doubled)
    assert "return 2 * x" in found.code
    assert "test_source.py, line " in found.where


def test_markup_in_the_code_is_escaped():
    def tag():
        return "<b>&amp;"

    html = show(tag)._repr_mimebundle_()["text/html"]
    assert "<b>" not in html
    assert text_of(html) == show(tag).code


@pytest.mark.parametrize("thing", [len, 3, labkit.DataLoader([1]), "labkit"])
def test_what_has_no_source_is_refused_with_what_to_give(thing):
    with pytest.raises(TypeError, match="give `show` a function, a class, a method or a module"):
        show(thing)


def test_a_solution_is_shown_in_the_same_way():
    found = solution("03.reorder")
    assert text_of(found._repr_mimebundle_()["text/html"]) == found.code
    assert found.where.startswith("notebooks/solutions/03_the_worker_loop.py, line ")
