"""What a learner has passed so far: `labkit.lab.progress()`, a table and a picture.

Before it: `passes`, where checks and quizzes note what was passed. After it: the notebook's output.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.lab import MissingPackage
from labkit.lab.exercises.exercise import all_exercises
from labkit.lab.passes import forget, passed, question_id
from labkit.lab.quizzes import all_numbers, quiz
from labkit.lab.table import Table

__all__ = ["Notebook", "Progress", "progress"]


def progress() -> Progress:
    """Which exercises and quiz questions are passed, as a file in this folder says.

    A check or a quiz writes it when something is passed: `labkit-progress.json` beside the
    notebook, or the file that LABKIT_PROGRESS names. Nothing is sent anywhere.
    """
    kept = passed()
    numbers = sorted({*all_numbers(), *(exercise.id[:2] for exercise in all_exercises())})
    notebooks = tuple(_notebook(number, kept.when) for number in numbers)
    return Progress(notebooks, kept.file, kept.remarks)


@dataclass(frozen=True)
class Notebook:
    """What is passed of a notebook.

    Attributes:
        number: such as "03".
        exercises: for each of its exercises, whether it is passed, by the name in its id.
        questions: the same for the questions of its quiz, by their numbers.
    """

    number: str
    exercises: dict[str, bool]
    questions: dict[int, bool]

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left."""
        return all(self.exercises.values()) and all(self.questions.values())


@dataclass(frozen=True, repr=False)
class Progress:
    """A learner's progress. A notebook shows it when it is a cell's last value.

    Attributes:
        notebooks: all of the course, in order.
        file: where it is kept; None where nothing is.
        remarks: what is to be said of the file.
    """

    notebooks: tuple[Notebook, ...]
    file: Path | None
    remarks: tuple[str, ...] = ()

    def reset(self, number: str = "") -> Progress:
        """Begin anew, in the notebook with this number or in all; gives what is left.

        Raises:
            ValueError: there is no such notebook.
            OSError: the file cannot be written.
        """
        known = [notebook.number for notebook in self.notebooks]
        if number and number not in known:
            raise ValueError(f"no notebook {number!r}. There are: {', '.join(known)}.")
        forget(number)
        return progress()

    @property
    def sentence(self) -> str:
        """All of it in one sentence."""
        exercises = [done for book in self.notebooks for done in book.exercises.values()]
        questions = [done for book in self.notebooks for done in book.questions.values()]
        finished = sum(notebook.is_done for notebook in self.notebooks)
        return (
            f"Passed: {sum(exercises)} of {len(exercises)} exercises, {sum(questions)} of "
            f"{len(questions)} quiz questions; {finished} of {len(self.notebooks)} notebooks are "
            "complete."
        )

    def table(self) -> Table:
        """A row for each notebook: signs and words, no colours."""
        rows = [
            (
                book.number,
                "  ".join(f"{_sign(done)} {name}" for name, done in book.exercises.items()),
                f"{sum(book.questions.values())} of {len(book.questions)}",
                _open_questions(book.questions),
            )
            for book in self.notebooks
        ]
        return Table(("notebook", "exercises", "quiz", "open questions"), rows)

    def as_text(self) -> str:
        """The table, the sentence, and where it is kept, as plain text."""
        return "\n".join([str(self.table()), "", self.sentence, *self._remarks()])

    __repr__ = as_text

    def _remarks(self) -> list[str]:
        if self.file is None:
            return list(self.remarks)
        kept = f"Kept in {_short(self.file)}; nothing is sent anywhere."
        return [kept, "To begin anew: labkit.lab.progress().reset()", *self.remarks]

    def picture(self) -> Any:
        """The same as a figure.

        Raises:
            MissingPackage: matplotlib is not installed.
        """
        from labkit.lab.learner.drawing import picture

        return picture(self)

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        below = "".join(f"<p>{remark}</p>" for remark in self._remarks())
        table = self.table()._repr_html_()
        try:
            data, metadata = self.picture()._repr_mimebundle_()
        except MissingPackage:
            data, metadata = {"text/html": f"<p>{self.sentence}</p>"}, {}
        unfolds = f"<details><summary>What is passed, as a table</summary>{table}</details>"
        html = data["text/html"] + unfolds + below
        return {**data, "text/html": html, "text/plain": self.as_text()}, metadata


def _notebook(number: str, when: Collection[str]) -> Notebook:
    ids = [exercise.id for exercise in all_exercises() if exercise.id[:2] == number]
    count = len(quiz(number).questions) if number in all_numbers() else 0
    return Notebook(
        number,
        {id[3:]: id in when for id in ids},
        {n: question_id(number, n) in when for n in range(1, count + 1)},
    )


def _short(file: Path) -> str:
    return f"{file.name} in this folder" if file.parent == Path.cwd() else str(file)


def _sign(done: bool) -> str:
    return "✓" if done else "…"


def _open_questions(questions: dict[int, bool]) -> str:
    left = [str(number) for number, done in questions.items() if not done]
    return ", ".join(left) or "none"
