"""Every notebook runs from top to bottom in a new kernel, and nbval really compares.

nbval itself runs the notebooks as test items of their own (`pyproject.toml`); here they run once
more with nbclient, which sees what nbval lets pass: a cell that should raise and does not, an
unknown magic that aborts its cell.
"""

import copy
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from nbval.plugin import get_sanitize_patterns

from scripts.execute_notebooks import all_notebooks, execute

ROOT = Path(__file__).resolve().parents[2]
CHECKED = "nbval-check-output"
RAISES = "raises-exception"

every_notebook = pytest.mark.parametrize("path", all_notebooks(), ids=lambda path: path.stem)


@every_notebook
@pytest.mark.timeout(600)
def test_it_runs_with_nbclient_and_raises_where_it_says_so(path, monkeypatch):
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # see conftest.py in the root
    executed = execute(path)
    for cell in executed.cells:
        if cell.cell_type == "code":
            raised = any(output.output_type == "error" for output in cell.outputs)
            assert raised == has_tag(cell, RAISES), cell.source


@every_notebook
@pytest.mark.timeout(300)
def test_a_planted_wrong_value_makes_nbval_fail(path, tmp_path):
    copied = shutil.copytree(path.parent, tmp_path / "notebooks") / path.name
    notebook = nbformat.read(copied, as_version=4)
    first = next(cell for cell in notebook.cells if has_tag(cell, CHECKED))
    plant_wrong_values(first)
    nbformat.write(notebook, copied)

    result = nbval(copied, "--exitfirst")

    assert result.returncode == 1, result.stdout
    number = [cell for cell in notebook.cells if cell.cell_type == "code"].index(first)
    assert re.search(rf"^FAILED .*::Cell {number}\b", result.stdout, re.MULTILINE), result.stdout
    assert "Cell outputs differ" in result.stdout


@every_notebook
def test_sanitising_leaves_every_checked_value_to_be_compared(path):
    """A rule in nbval.cfg that matched too much would let wrong values pass."""
    for cell in nbformat.read(path, as_version=4).cells:
        if has_tag(cell, CHECKED):
            wrong = copy.deepcopy(cell)
            plant_wrong_values(wrong)
            assert sanitised(cell) != sanitised(wrong), cell.source


def test_nbval_sees_a_wrong_value_in_text_in_a_table_and_in_an_error(tmp_path):
    sources = {
        "print(12)": None,
        "6 * 7": None,
        "from IPython.display import HTML; HTML('<td>3</td>')": None,
        "raise ValueError('5 samples')": [RAISES],
    }
    notebook = nbformat.v4.new_notebook()
    for source, tags in sources.items():
        cell = nbformat.v4.new_code_cell(source, metadata={"tags": [CHECKED, *(tags or [])]})
        notebook.cells.append(cell)
    path = tmp_path / "wrong.ipynb"
    nbformat.write(notebook, path)
    executed = execute(path)
    for cell in executed.cells:
        plant_wrong_values(cell)
    nbformat.write(executed, path)
    assert "4 failed" in nbval(path).stdout


def test_what_spawned_workers_print_reaches_the_cell_under_nbval(tmp_path):
    (tmp_path / "worker.py").write_text("def work():\n    print('from the worker')\n")
    source = (
        "import multiprocessing, worker\n"
        "process = multiprocessing.get_context('spawn').Process(target=worker.work)\n"
        "process.start()\n"
        "process.join()"
    )
    cell = nbformat.v4.new_code_cell(source, metadata={"tags": [CHECKED]}, execution_count=1)
    cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text="from the worker\n")]
    path = tmp_path / "printing.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    result = nbval(path)
    assert result.returncode == 0, result.stdout


def has_tag(cell: NotebookNode, tag: str) -> bool:
    return tag in cell.metadata.get("tags", [])


def plant_wrong_values(cell: NotebookNode) -> None:
    """Add one to each digit in a cell's outputs, or a word where there is no digit."""
    for output in cell.outputs:
        for holder, key in texts(output):
            text = holder[key]
            wrong = re.sub(r"\d", lambda digit: str((int(digit[0]) + 1) % 10), text)
            holder[key] = wrong if wrong != text else text + "planted"


def texts(output: NotebookNode) -> list[tuple[NotebookNode, str]]:
    if output.output_type == "stream":
        return [(output, "text")]
    if output.output_type == "error":
        return [(output, "evalue")]
    return [(output.data, kind) for kind in output.data if kind.startswith("text/")]


def sanitised(cell: NotebookNode) -> list[str]:
    """Return a cell's output texts as nbval compares them."""
    found = [holder[key] for output in cell.outputs for holder, key in texts(output)]
    for pattern, replacement in get_sanitize_patterns((ROOT / "tests/nbval.cfg").read_text()):
        found = [re.sub(pattern, replacement, text) for text in found]
    return found


def nbval(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on a notebook with this repository's settings for nbval."""
    command = [sys.executable, "-m", "pytest", path, "-c", ROOT / "pyproject.toml"]
    command += ["--rootdir", path.parent, "-p", "conftest", "-p", "no:cacheprovider", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
