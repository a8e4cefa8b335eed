"""CONTRIBUTING's table: each row of what the course covers names a heading, modules and tests that
are there.
"""

import ast
import re
from functools import cache
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
ROWS = [
    *(f"A{n}" for n in range(1, 8)),
    *(f"B{n}" for n in range(1, 5)),
    *(f"C{n}" for n in range(1, 14)),
    *(f"D{n}" for n in range(1, 6)),
    *(f"E{n}" for n in range(1, 4)),
]


def table() -> dict[str, list[str]]:
    """The cells of each row, by its name."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| ([A-E]\d+) \| (.*) \|$", text, re.MULTILINE)
    return {name: cells.split(" | ") for name, cells in lines}


@cache
def headings(notebook: str) -> set[str]:
    cells = nbformat.read(ROOT / notebook, as_version=4).cells
    prose = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    return set(re.findall(r"^#+ (.+?)\s*$", prose, re.MULTILINE))


@cache
def functions(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_row_is_there_once_and_in_order():
    assert list(table()) == ROWS
    assert all(len(cells) == 4 for cells in table().values())


@pytest.mark.parametrize("row", ROWS)
def test_what_a_row_names_exists(row):
    subject, sections, modules, tests = table()[row]
    assert len(subject.split()) >= 3
    named = re.findall(r"\[\d\d\]\((notebooks/\w+\.ipynb)\) \*(.+?)\*(?:; |$)", sections)
    assert len(named) == sections.count("](") >= 1
    assert [one for one in named if one[1] not in headings(one[0])] == []
    paths = re.findall(r"`(labkit/[\w/]+\.py)`", modules)
    assert len(paths) == modules.count("`") // 2 >= 1
    assert [path for path in paths if not (ROOT / path).is_file()] == []
    functions_named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", tests)
    assert len(functions_named) == tests.count("`") // 2 >= 1
    assert [one for one in functions_named if one[1] not in functions(one[0])] == []
