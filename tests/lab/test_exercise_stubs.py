"""A stub in a notebook is its solution with lines taken away: nothing of it must be undone."""

import ast
import re
from pathlib import Path

import nbformat
import pytest

from labkit.lab.exercises import all_exercises
from labkit.lab.exercises.exercise import find_solution

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def defined_in(source: str) -> set[str]:
    names = (getattr(node, "name", None) for node in ast.parse(source).body)
    return {name for name in names if name}


def added_lines(stub: str, whole: str) -> list[str]:
    """The stub's lines that are not in the solution, or not in that order."""
    rest = iter(line.rstrip() for line in whole.splitlines())
    lines = [line.rstrip() for line in stub.splitlines() if line.strip()]
    return [line for line in lines if line not in rest]


@pytest.mark.parametrize(
    ("stub", "added"),
    [
        ("def f(x):\n    '''Doc.'''", []),
        ("def f(x):\n    '''Doc.'''\n    return y", []),
        ("def f(x):\n    '''Doc.'''\n    pass", ["    pass"]),
        ("def f(x):\n    return y\n    y = 2 * x", ["    y = 2 * x"]),
        ("def f(x, z):\n    return y", ["def f(x, z):"]),
    ],
)
def test_added_and_moved_lines_are_found(stub, added):
    whole = "def f(x):\n    '''Doc.'''\n    y = 2 * x\n\n    return y\n"
    assert added_lines(stub, whole)[: len(added)] == added
    assert bool(added_lines(stub, whole)) == bool(added)


def cells(number: str) -> list[nbformat.NotebookNode]:
    found = [nbformat.read(path, as_version=4) for path in NOTEBOOKS.glob(f"{number}_*.ipynb")]
    return [cell for book in found for cell in book.cells if cell.cell_type == "code"]


@pytest.mark.parametrize("exercise", all_exercises(), ids=lambda exercise: exercise.id)
def test_a_notebook_has_a_stub_that_only_lacks_lines(exercise):
    code = cells(exercise.id[:2])
    if not any(re.search(r"\bcheck\(", cell.source) for cell in code):
        pytest.skip("the notebook does not use check() yet")
    tagged = [cell.source for cell in code if "exercise" in cell.metadata.get("tags", [])]
    stubs = [source for source in tagged if exercise.answer in defined_in(source)]
    assert len(stubs) == 1, f"no cell with the tag `exercise` defines {exercise.answer}"
    solution = find_solution(exercise)
    assert added_lines(stubs[0], Path(solution.file).read_text()) == []
    assert len(stubs[0].splitlines()) < len(solution.code.splitlines())
    assert any(f'check("{exercise.id}", {exercise.answer})' in cell.source for cell in code)
