"""nbval, which runs every notebook from top to bottom in a new kernel, really compares.

The notebooks are test items of their own (`pyproject.toml`), so nothing here runs a whole one. What
nbval would let pass (a cell that should raise and does not, an unknown magic) the contract forbids.
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

from scripts.execute_notebooks import CELL_TIMEOUT, all_notebooks

ROOT = Path(__file__).resolve().parents[2]
CHECKED = "nbval-check-output"
RAISES = "raises-exception"

FIRST = all_notebooks()[0]

every_notebook = pytest.mark.parametrize("path", all_notebooks(), ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def nbval_says(tmp_path_factory) -> str:
    """What one run of nbval says of all the notebooks that are made here: starting it takes long.

    - The course's first, cut off after its first checked cell, with a wrong value planted there.
      That all other checked cells would be compared is known from how they are stored (contract:
      counts, outputs) and from the sanitising below.
    - One with every kind of output that is compared, right, and then wrong.
    - One in which a spawned worker prints.
    """
    folder = tmp_path_factory.mktemp("nbval") / "notebooks"
    shutil.copytree(FIRST.parent, folder, ignore=shutil.ignore_patterns("*.ipynb"))
    nbformat.write(planted(FIRST), folder / FIRST.name)
    kinds = every_kind_of_output()
    nbformat.write(kinds, folder / "right.ipynb")
    for cell in kinds.cells:
        plant_wrong_values(cell)
    nbformat.write(kinds, folder / "wrong.ipynb")
    (folder / "worker.py").write_text("def work():\n    print('from the worker')\n")
    nbformat.write(with_a_printing_worker(), folder / "printing.ipynb")
    return nbval(folder).stdout


def planted(path: Path) -> NotebookNode:
    notebook = nbformat.read(path, as_version=4)
    first = next(i for i, cell in enumerate(notebook.cells) if has_tag(cell, CHECKED))
    notebook.cells = notebook.cells[: first + 1]
    plant_wrong_values(notebook.cells[-1])
    return notebook


def every_kind_of_output() -> NotebookNode:
    new = nbformat.v4.new_output
    table = {"text/html": "<td>3</td>", "text/plain": "<IPython.core.display.HTML object>"}
    cells = [
        ("print(12)", new("stream", text="12\n")),
        ("6 * 7", new("execute_result", {"text/plain": "42"}, execution_count=2)),
        (
            "from IPython.display import HTML; HTML('<td>3</td>')",
            new("execute_result", table, execution_count=3),
        ),
        ("raise ValueError('5 samples')", new("error", ename="ValueError", evalue="5 samples")),
    ]
    return checked_notebook(cells)


def with_a_printing_worker() -> NotebookNode:
    source = (
        "import multiprocessing, worker\n"
        "process = multiprocessing.get_context('spawn').Process(target=worker.work)\n"
        "process.start()\n"
        "process.join()"
    )
    return checked_notebook([(source, nbformat.v4.new_output("stream", text="from the worker\n"))])


def checked_notebook(cells: list[tuple[str, NotebookNode]]) -> NotebookNode:
    notebook = nbformat.v4.new_notebook()
    for count, (source, output) in enumerate(cells, 1):
        tags = [CHECKED, RAISES] if output.output_type == "error" else [CHECKED]
        cell = nbformat.v4.new_code_cell(source, metadata={"tags": tags}, execution_count=count)
        cell.outputs = [output]
        notebook.cells.append(cell)
    return notebook


def failed(said: str, notebook: str) -> list[int]:
    """Return the numbers of the code cells of a notebook of which nbval says that they failed."""
    found = re.findall(rf"^FAILED .*?\b{re.escape(notebook)}::Cell (\d+)", said, re.MULTILINE)
    return [int(number) for number in found]


@pytest.mark.timeout(600)
def test_a_planted_wrong_value_makes_nbval_fail(nbval_says):
    code = [cell for cell in planted(FIRST).cells if cell.cell_type == "code"]
    assert failed(nbval_says, FIRST.name) == [len(code) - 1], nbval_says


@pytest.mark.timeout(600)
def test_nbval_compares_text_a_table_and_an_error(nbval_says):
    assert failed(nbval_says, "right.ipynb") == [], nbval_says
    assert failed(nbval_says, "wrong.ipynb") == [0, 1, 2, 3], nbval_says
    assert nbval_says.count("Cell outputs differ") == 4 + 1


@pytest.mark.timeout(600)
def test_what_spawned_workers_print_reaches_the_cell_under_nbval(nbval_says):
    assert "notebooks/printing.ipynb ." in nbval_says
    assert failed(nbval_says, "printing.ipynb") == [], nbval_says


@every_notebook
def test_sanitising_leaves_every_checked_value_to_be_compared(path):
    """A rule in nbval.cfg that matched too much would let wrong values pass."""
    for cell in nbformat.read(path, as_version=4).cells:
        if has_tag(cell, CHECKED):
            wrong = copy.deepcopy(cell)
            plant_wrong_values(wrong)
            assert sanitised(cell) != sanitised(wrong), cell.source


def test_no_cell_may_run_longer_than_a_limit_that_both_ways_of_running_share():
    options = (ROOT / "pyproject.toml").read_text()
    assert f'"--nbval-cell-timeout={CELL_TIMEOUT}"' in options


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
    # With CI set, pytest says everything twice, in full.
    environment = {k: v for k, v in os.environ.items() if k not in ("CI", "BUILD_NUMBER")}
    environment["PYTHONPATH"] = str(ROOT)
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
