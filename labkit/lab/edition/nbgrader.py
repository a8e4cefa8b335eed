"""A course folder for nbgrader: an assignment for each notebook, with points for its checks.

Before it: `regions`. After it: nbgrader (https://nbgrader.readthedocs.io), which makes of it what
learners get, and marks what they hand in. Its cells' metadata have schema version 3.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from labkit.lab import need
from labkit.lab.edition.regions import bound_names, solved
from labkit.lab.exercises.exercise import all_exercises

nbformat = need("nbformat")

__all__ = ["SCHEMA_VERSION", "make"]

SCHEMA_VERSION = 3

_CONFIG = '''\
"""nbgrader's settings for this course. Run nbgrader in this folder:

    nbgrader generate_assignment {first}     # release/: what learners get
    nbgrader autograde {first}               # marks what lies in submitted/LEARNER/{first}/
    nbgrader generate_feedback {first}
    nbgrader export                                # all points as a table, grades.csv

Whoever marks needs what the notebooks need: labkit with its lab, `pip install 'labkit[lab]'`.
"""

c = get_config()  # noqa: F821 (nbgrader gives it)
c.CourseDirectory.course_id = "labkit"
# As in the course: a stub is a function with its docstring, to be filled in.
c.ClearSolutions.code_stub = {{"python": "# YOUR CODE HERE"}}
c.ExecutePreprocessor.timeout = 120  # seconds for a cell
'''

_CHECK = """\
# This cell gives points: it must run without an error.
from labkit.lab.exercises import graded

graded("{id}", {answer})"""


def make(out: Path, notebooks: Path, only: Collection[str] = (), points: float = 10) -> list[Path]:
    """Write the folder; gives the paths of the notebooks in it.

    Args:
        out: the course's folder, new or empty.
        notebooks: the folder with the course's notebooks, `solutions/` and `data/`.
        only: the numbers of the notebooks; all if empty.
        points: of each exercise.

    Raises:
        FileExistsError: there is something in `out` already.
        FileNotFoundError: no such notebooks.
        ValueError: points are none, a file is no notebook, or a stub does not fit its solution.
    """
    if not 0 <= points < float("inf"):
        raise ValueError(f"points are a number of 0 or more, but got {points!r}")
    found = sorted(notebooks.glob("[0-9][0-9]_*.ipynb"))
    wanted = [path for path in found if not only or path.stem[:2] in only]
    if not wanted or len(wanted) < len(set(only)):
        there = ", ".join(path.stem[:2] for path in found) or "none"
        raise FileNotFoundError(
            f"not all of these notebooks are in {notebooks}; there are: {there}"
        )
    if out.exists() and any(out.iterdir()):
        raise FileExistsError(f"{out} is not empty: name a new folder")
    made = [_write(path, out / "source" / path.stem, points) for path in wanted]
    (out / "nbgrader_config.py").write_text(_CONFIG.format(first=wanted[0].stem), encoding="utf-8")
    return made


def _write(path: Path, folder: Path, points: float) -> Path:
    try:
        notebook = nbformat.read(path, as_version=4)
    except nbformat.ValidationError as error:
        raise ValueError(f"{path} is no notebook: {error}") from error
    solutions = (path.parent / "solutions" / f"{path.stem}.py").read_text(encoding="utf-8")
    _mark(notebook, path.stem[:2], solutions, points)
    text = "\n".join(cell.source for cell in notebook.cells)
    folder.mkdir(parents=True)
    if re.search(r"""["'(]data/""", text):
        shutil.copytree(path.parent / "data", folder / "data")
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = _with_links_of_a_course(cell.source)
    nbformat.write(notebook, folder / path.name)
    return folder / path.name


def _mark(notebook: Any, number: str, solutions: str, points: float) -> None:
    """Put solutions into stubs and points onto checks, and tell nbgrader which cells they are."""
    known: set[str] = set()
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        here = bound_names(cell.source)
        for id, answer in _answers(number):
            grade_id = id.replace(".", "-")
            if "exercise" in cell.metadata.get("tags", []) and answer in here:
                cell.source = solved(cell.source, solutions, known)
                cell.metadata["nbgrader"] = _metadata(grade_id, solution=True)
            elif re.fullmatch(rf'check\("{id}", {answer}\)', cell.source.strip()):
                cell.source = _CHECK.format(id=id, answer=answer)
                about = _metadata(f"check-{grade_id}", grade=True, locked=True)
                cell.metadata["nbgrader"] = {**about, "points": points}
        known |= here


def _answers(number: str) -> Iterator[tuple[str, str]]:
    for exercise in all_exercises():
        if exercise.id.startswith(f"{number}."):
            yield exercise.id, exercise.answer


def _metadata(grade_id: str, **what: bool) -> dict[str, Any]:
    kinds = {"grade": False, "locked": False, "solution": False, "task": False}
    return {"schema_version": SCHEMA_VERSION, "grade_id": grade_id, **kinds, **what}


def _with_links_of_a_course(text: str) -> str:
    """Other notebooks lie in folders of their own, and solutions with whoever teaches."""
    text = re.sub(r"\]\((\d\d_\w+)\.ipynb", r"](../\1/\1.ipynb", text)
    text = re.sub(r"\[Solutions\]\(solutions/[^)]*\)", "Solutions: your teacher's folder", text)
    return re.sub(r"\[[^\]]*\]\(solutions/[^)]*\)", "your teacher's folder", text)
