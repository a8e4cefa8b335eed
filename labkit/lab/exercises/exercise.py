"""What an exercise is, and where to find one by its id "NN.name".

`checks_NN` holds the exercises of notebook NN. Before it: `check`, `hint` and `solution` in the
package. After it: `trial`, in which an exercise's check speaks.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.lab import notebooks
from labkit.lab.source import Source

__all__ = ["Exercise", "all_exercises", "find_exercise", "find_solution"]


@dataclass(frozen=True)
class Exercise:
    """An exercise and its check.

    Attributes:
        id: "NN.name", NN being its notebook's number.
        answer: the name of the function or class that the learner fills in.
        hints: the first leads to the idea, the second to the lines.
        run: the check, `run(answer, trial, *arguments)`; it runs in a process of its own.
        seconds: the limit for all cases together.
        measured: what is measured beforehand in this process: gives the arguments.
    """

    id: str
    answer: str
    hints: tuple[str, str]
    run: Callable[..., None]
    seconds: float = 10.0
    measured: Callable[[], tuple[Any, ...]] = tuple


def find_exercise(id: str) -> Exercise:
    """The exercise with this id.

    Raises:
        ValueError: there is none; names those that there are.
    """
    exercises = {exercise.id: exercise for exercise in all_exercises()}
    if id not in exercises:
        raise ValueError(f"no exercise {id!r}. There are: {', '.join(exercises)}.")
    return exercises[id]


def all_exercises() -> list[Exercise]:
    """Those of every notebook, in order."""
    package = importlib.import_module("labkit.lab.exercises")
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    found: list[Exercise] = []
    for name in names:
        if name.startswith("checks_"):
            module = importlib.import_module(f"{package.__name__}.{name}")
            found += getattr(module, "EXERCISES", ())
    return found


def find_solution(exercise: Exercise) -> Source:
    """The text of the solution, out of `notebooks/solutions/NN_….py`.

    A kernel works in the notebook's folder, so that is looked through first, and then the notebooks
    of this labkit: in the checkout, or in what a wheel brought.

    Raises:
        FileNotFoundError: there is no such file in any of these places.
        LookupError: it does not define what the learner fills in.
    """
    folders = [Path.cwd(), Path.cwd() / "notebooks", *notebooks.places()]
    number = exercise.id.partition(".")[0]
    files = [file for folder in folders for file in sorted(folder.glob(f"solutions/{number}_*.py"))]
    if not files:
        raise FileNotFoundError(
            f"no solutions/{number}_*.py in {' or '.join(map(str, dict.fromkeys(folders)))}: open "
            "the notebook in its own folder, or look into notebooks/solutions/ of labkit's sources."
        )
    text = files[0].read_text(encoding="utf-8")
    for node in ast.parse(text).body:
        if getattr(node, "name", None) == exercise.answer:
            lines = text.splitlines(keepends=True)[node.lineno - 1 : node.end_lineno]
            return Source(exercise.answer, "".join(lines), str(files[0]), node.lineno)
    raise LookupError(f"{files[0]} does not define {exercise.answer}")
