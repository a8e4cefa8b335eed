"""Let nbgrader make, collect and mark one assignment: a program of its own for `test_edition`.

    python marked_by_nbgrader.py COURSE ASSIGNMENT

Of the notebook only the cells of which nbgrader is told something are left. Two learners hand it
in: one with all answers right, one with nothing filled in. The last line printed is what came, as
JSON.
"""

import json
import os
import shutil
import sys
from pathlib import Path

import nbformat
from nbgrader.apps import NbGraderAPI
from traitlets.config.loader import PyFileConfigLoader


def main(course: Path, name: str) -> None:
    os.chdir(course)
    file = f"{name}.ipynb"
    small = nbformat.read(course / "source" / name / file, as_version=4)
    small.cells = [cell for cell in small.cells if "nbgrader" in cell.metadata]
    nbformat.write(small, course / "source" / name / file)
    config = PyFileConfigLoader("nbgrader_config.py", path=str(course)).load_config()
    config.CourseDirectory.root = str(course)
    api = NbGraderAPI(config=config)
    succeeded(api.generate_assignment(name))
    for learner, edition in (("right", "source"), ("stubs", "release")):
        handed_in = course / "submitted" / learner / name
        handed_in.mkdir(parents=True)
        shutil.copy(course / edition / name / file, handed_in)
        succeeded(api.autograde(name, learner))
    released = nbformat.read(course / "release" / name / file, as_version=4).cells
    print(
        json.dumps(
            {
                "scores": {
                    one["student"]: [one["score"], one["max_score"]]
                    for one in api.get_submissions(name)
                },
                "released": [cell.source for cell in released],
                "locked": [
                    not cell.metadata["editable"]
                    for cell in released
                    if cell.metadata.nbgrader.grade
                ],
            }
        )
    )


def succeeded(result: dict) -> None:
    if not result["success"]:
        sys.exit(f"{result.get('log')}\n{result.get('error')}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2])
