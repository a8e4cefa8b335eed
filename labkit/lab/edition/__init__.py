"""`python -m labkit edition nbgrader OUT`: the course's notebooks as a set that nbgrader takes.

Before it: the notebooks with their stubs, and their solutions. `regions` puts a solution into its
stub, between the marks that nbgrader knows; `nbgrader` makes the notebooks of the set.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from labkit.lab import MissingPackage
from labkit.lab.notebooks import folder

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns the exit code: 0, or 2 with a sentence that says why."""
    parsed = _parser().parse_args(arguments)
    try:
        from labkit.lab.edition.nbgrader import make

        made = make(parsed.out, parsed.notebooks or folder(), parsed.only, parsed.points)
    except (MissingPackage, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    for path in made:
        print(path)
    print(
        f"\nNext: cd {parsed.out}; nbgrader generate_assignment "
        f"{made[0].parent.name}; nbgrader_config.py says the rest."
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m labkit edition",
        description="Make an edition of the course's notebooks. nbgrader: a course folder with an "
        "assignment for each notebook, in which the stubs hold their solutions between nbgrader's "
        "marks, and each check gives points.",
    )
    parser.add_argument("edition", choices=["nbgrader"])
    parser.add_argument("out", type=Path, help="the course's folder, new or empty")
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="NN",
        help="numbers of the notebooks, such as 00 03; all if left out",
    )
    parser.add_argument(
        "--points", type=float, default=10, help="of each exercise; %(default)g if left out"
    )
    parser.add_argument(
        "--notebooks",
        type=Path,
        help="the folder with the course's notebooks and solutions; by default this labkit's",
    )
    return parser
