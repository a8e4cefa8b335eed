"""The edition for nbgrader: its cells fit nbgrader's schema, stubs lack what is marked, and
nbgrader itself gives full points for right answers and none for stubs.
"""

import builtins
import dis
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbgrader.nbgraderformat import MetadataValidator

from labkit.lab.edition import main
from labkit.lab.edition.regions import BEGIN, END, bound_names, solved
from labkit.lab.exercises import all_exercises
from scripts.execute_notebooks import all_notebooks

NBGRADER = Path(__file__).with_name("marked_by_nbgrader.py")
SMALL = "00_start_here"


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Path:
    """The folder that the command makes."""
    folder = tmp_path_factory.mktemp("course") / "labkit"
    assert main(["nbgrader", str(folder)]) == 0
    return folder


def marked(course: Path, stem: str) -> list[nbformat.NotebookNode]:
    """The cells of which nbgrader is told something."""
    notebook = nbformat.read(course / "source" / stem / f"{stem}.ipynb", as_version=4)
    return [cell for cell in notebook.cells if "nbgrader" in cell.metadata]


def without_regions(source: str) -> str:
    pattern = rf"^ *{BEGIN}\n.*?^ *{END}\n?"
    return re.sub(pattern, "", source + "\n", flags=re.DOTALL | re.MULTILINE)


def lines(source: str) -> list[str]:
    return [line for line in source.splitlines() if line.strip()]


every_notebook = pytest.mark.parametrize("path", all_notebooks(), ids=lambda path: path.stem)


@every_notebook
def test_nbgrader_finds_its_metadata_valid(course, path):
    notebook = nbformat.read(course / "source" / path.stem / path.name, as_version=4)
    nbformat.validate(notebook)
    MetadataValidator().validate_nb(notebook)


@every_notebook
def test_each_exercise_is_a_solution_and_then_a_locked_check_with_points(course, path):
    ids = [exercise.id for exercise in all_exercises() if path.stem.startswith(exercise.id[:2])]
    cells = marked(course, path.stem)
    solutions = [c for c in cells if c.metadata.nbgrader.solution]
    checks = [c for c in cells if c.metadata.nbgrader.grade]
    names = {id.replace(".", "-") for id in ids}
    assert {c.metadata.nbgrader.grade_id for c in solutions} == names
    assert {c.metadata.nbgrader.grade_id for c in checks} == {f"check-{name}" for name in names}
    assert all(c.metadata.nbgrader.locked and c.metadata.nbgrader.points == 10 for c in checks)
    assert all(f'graded("{id}", ' in "".join(c.source for c in checks) for id in ids)
    order = [c.metadata.nbgrader.grade_id for c in cells]
    assert all(order.index(name) < order.index(f"check-{name}") for name in names)


@every_notebook
def test_what_is_left_without_the_marked_lines_is_the_stub_of_the_course(course, path):
    stubs = [
        cell.source
        for cell in nbformat.read(path, as_version=4).cells
        if "exercise" in cell.metadata.get("tags", [])
    ]
    solutions = [c.source for c in marked(course, path.stem) if c.metadata.nbgrader.solution]
    assert [lines(without_regions(source)) for source in solutions] == [*map(lines, stubs)]
    assert all(BEGIN in source for source in solutions)


@every_notebook
def test_the_solutions_use_no_name_that_the_notebook_has_not_bound_before(course, path):
    notebook = nbformat.read(course / "source" / path.stem / path.name, as_version=4)
    known = set(dir(builtins))
    for cell in notebook.cells:
        if cell.cell_type == "code" and not re.search(r"^\s*[%!]", cell.source, re.MULTILINE):
            known |= bound_names(cell.source)
            if cell.metadata.get("nbgrader", {}).get("solution"):
                assert used_globals(compile(cell.source, "cell", "exec")) <= known


def used_globals(code) -> set[str]:
    """The names that functions look for outside of themselves."""
    found = {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
    return found.union(*(used_globals(part) for part in code.co_consts if hasattr(part, "co_code")))


@every_notebook
def test_links_lead_where_things_lie_in_a_course(course, path):
    notebook = nbformat.read(course / "source" / path.stem / path.name, as_version=4)
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert "](solutions/" not in prose
    links = re.findall(r"(?<!!)\]\(([^)\s#]+)", prose)
    folder = course / "source" / path.stem
    own = [link for link in links if not re.match(r"\w+:", link)]
    assert [link for link in own if not (folder / link).exists()] == []


@pytest.mark.timeout(600)
def test_nbgrader_gives_right_answers_all_points_and_stubs_none(course):
    """One notebook, of which only the exercises are left: what else is in it, nbval runs."""
    # nbgrader starts `alembic`, which lies beside Python.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
    ended = subprocess.run(
        [sys.executable, NBGRADER, course, SMALL],
        env={**environment, "PATH": path},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    said = json.loads(ended.stdout.splitlines()[-1])
    ids = [exercise.id for exercise in all_exercises() if SMALL.startswith(exercise.id[:2])]
    assert said["scores"] == {"right": [10 * len(ids)] * 2, "stubs": [0, 10 * len(ids)]}
    released = "\n".join(said["released"])
    assert BEGIN not in released
    assert released.count("# YOUR CODE HERE") == len(ids)
    assert said["locked"] == [True] * len(ids)


# The command's errors, and stubs that do not fit


def test_a_folder_that_is_not_empty_and_an_unknown_number_are_one_sentence(tmp_path, capsys):
    (tmp_path / "mine").touch()
    assert main(["nbgrader", str(tmp_path)]) == 2
    assert "is not empty: name a new folder" in capsys.readouterr().err
    assert main(["nbgrader", str(tmp_path / "new"), "--only", "00", "99"]) == 2
    assert re.search(r"not all of these .* there are: 00, 01", capsys.readouterr().err)
    assert main(["nbgrader", str(tmp_path / "new"), "--only", "00", "--points", "nan"]) == 2
    assert "points are a number" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_file_that_is_no_notebook_is_one_sentence(tmp_path, capsys):
    (tmp_path / "00_none.ipynb").write_text("{}")
    assert main(["nbgrader", str(tmp_path / "new"), "--notebooks", str(tmp_path)]) == 2
    assert "00_none.ipynb is no notebook" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_points_and_notebooks_can_be_chosen(tmp_path):
    assert main(["nbgrader", str(tmp_path), "--only", "00", "--points", "2.5"]) == 0
    assert [path.name for path in (tmp_path / "source").iterdir()] == [SMALL]
    points = [cell.metadata.nbgrader.get("points") for cell in marked(tmp_path, SMALL)]
    assert points == [None, 2.5, None, 2.5]


def test_a_method_that_a_stub_lacks_imports_what_it_needs_itself():
    stub = "class A:\n    def g(self):\n        '''Doc.'''"
    whole = (
        "import os\n\n\nclass A:\n    def f(self):\n        return os.getpid()\n\n"
        "    def g(self):\n        '''Doc.'''\n        return self.f()"
    )
    namespace: dict = {}
    text = solved(stub, whole, known=())
    exec(text, namespace)
    assert namespace["A"]().g() == os.getpid()
    assert "import os" not in solved(stub, whole, known=["os"])
    assert lines(without_regions(text)) == lines(stub)


def test_a_stub_with_a_line_of_its_own_is_an_error_that_shows_it():
    with pytest.raises(ValueError, match="not in its solution: '    pass'"):
        solved("def f():\n    pass", "def f():\n    return 1", known=())
    with pytest.raises(ValueError, match="do not define g"):
        solved("def g():\n    '''Doc.'''", "def f():\n    return 1", known=())
