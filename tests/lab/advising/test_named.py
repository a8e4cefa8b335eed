"""What a command line names: a module's or a file's object, or what a function there returns."""

import sys

import pytest

from labkit.lab.advising.named import load, made
from labkit.lab.advising.subject import NoAdvice

PROGRAM = """
from types import SimpleNamespace
dataset = [1, 2, 3]
config = SimpleNamespace(train=dataset)
def make(): return dataset
def wants(folder): return folder
class Images(list):
    def __init__(self): super().__init__(dataset)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The current folder, with some programs in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    (tmp_path / "my_program.py").write_text(PROGRAM)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "my-images.py").write_text(PROGRAM)
    (tmp_path / "needy.py").write_text("import a_package_that_is_not_there\n")
    (tmp_path / "failing.py").write_text("x = 1\nraise OSError('no such disk')\n")
    (tmp_path / "json.py").write_text(PROGRAM)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    "name",
    [
        "my_program:dataset",
        "my_program.py:dataset",
        "./my_program.py:make",
        "my_program:Images",
        "my_program:config.train",
        "sub/my-images.py:dataset",
    ],
)
def test_an_object_or_what_a_callable_without_arguments_returns(name):
    assert made(load(name), name) == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("my_program", "write module:dataset or file.py:dataset"),
        ("my_program:", "write module:dataset or file.py:dataset"),
        ("other_program:dataset", "there is no module 'other_program'"),
        ("other.py:dataset", "there is no file 'other.py'"),
        ("my_program:datset", "Did you mean 'dataset'?"),
        ("my_program:config.x", "has no 'x'. It has 'train'"),
        ("needy:dataset", "needs the module 'a_package_that_is_not_there'"),
        ("failing:dataset", "line 2: raise OSError"),
        ("failing:dataset", 'if __name__ == "__main__":'),
        ("json.py:dataset", "Give the file another name"),
    ],
)
def test_what_is_not_there_is_told_with_what_to_write(name, words):
    with pytest.raises(NoAdvice) as raised:
        load(name)
    assert words in str(raised.value)


def test_a_function_that_wants_arguments_is_told():
    with pytest.raises(NoAdvice, match="is called without arguments, and that raised TypeError"):
        made(load("my_program:wants"), "my_program:wants")
