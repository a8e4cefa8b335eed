"""Quizzes: at the end of notebook NN, `quiz("NN")` asks 3 to 5 questions, offline.

`questions_NN` holds a notebook's questions. The same quiz is a form to be filled in where widgets
are live (`form`), unfolding HTML where they are not, and plain text everywhere. A right answer is
noted in `passes`.
"""

from __future__ import annotations

import importlib
import pkgutil
import string
from dataclasses import dataclass
from html import escape
from typing import Any

from labkit.lab import MissingPackage
from labkit.lab.code_spans import with_code
from labkit.lab.passes import note, question_id

__all__ = ["Option", "Question", "Quiz", "all_numbers", "quiz"]

_APART = "margin-top: 1.2em"


def quiz(number: str) -> Quiz:
    """The quiz of the notebook with this number, such as "03".

    Raises:
        ValueError: there is none; names those that there are.
    """
    if number not in all_numbers():
        known = ", ".join(map(repr, all_numbers()))
        raise ValueError(f"no quiz {number!r}. There are: {known}.")
    module = importlib.import_module(f"{__name__}.questions_{number}")
    return Quiz(number, module.QUESTIONS)


def all_numbers() -> list[str]:
    """The numbers of the notebooks that have a quiz, in order."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    return sorted(name.removeprefix("questions_") for name in names if "questions_" in name)


@dataclass(frozen=True)
class Option:
    """An answer to choose. In texts, `this` is code.

    Attributes:
        text: the answer.
        because: why it is right, or what is wrong with it.
        right: whether it is right.
    """

    text: str
    because: str
    right: bool = False

    @property
    def verdict(self) -> str:
        """What a learner reads who has chosen it."""
        return f"{'Right' if self.right else 'Not so'}. {self.because}"


@dataclass(frozen=True)
class Question:
    """A question; one of its options is right."""

    text: str
    options: tuple[Option, ...]


@dataclass(frozen=True, repr=False)
class Quiz:
    """A notebook's questions. A notebook shows it when it is a cell's last value."""

    number: str
    questions: tuple[Question, ...]

    def choose(self, question: int, letter: str) -> str:
        """Answer in text: the verdict on an option of a question (from 1), such as "b".

        Raises:
            ValueError: there is no such question or option.
        """
        if question not in range(1, len(self.questions) + 1):
            raise ValueError(f"there are the questions 1 to {len(self.questions)}, not {question}")
        options = self.questions[question - 1].options
        letters = string.ascii_lowercase[: len(options)]
        if len(letter) != 1 or letter not in letters:
            raise ValueError(f"question {question} has the options {', '.join(letters)}")
        return self.answer(question, letters.index(letter)).verdict

    def answer(self, question: int, option: int) -> Option:
        """The option (from 0) of a question (from 1), which is noted if it is right."""
        chosen = self.questions[question - 1].options[option]
        if chosen.right:
            note(question_id(self.number, question))
        return chosen

    def as_text(self) -> str:
        """The questions and their options, without the answers."""
        lines = [f"Quiz {self.number}"]
        for number, question in enumerate(self.questions, 1):
            lines.append(f"\n{number}. {question.text}")
            for letter, option in zip(string.ascii_lowercase, question.options, strict=False):
                lines.append(f"   {letter}) {option.text}")
        lines.append(f'\nTo answer question 1 with a: quiz("{self.number}").choose(1, "a")')
        return "\n".join(lines)

    __repr__ = as_text

    def as_html(self) -> str:
        """The questions; an option unfolds into its verdict. Needs neither kernel nor script."""
        parts = []
        for number, question in enumerate(self.questions, 1):
            options = "".join(
                f"<details><summary>{with_code(option.text)}</summary>"
                f"<p>{with_code(option.verdict)}</p></details>"
                for option in question.options
            )
            parts.append(
                f'<div role="group" aria-label="Question {number}" style="{_APART}">'
                f"<p><strong>{number}. {with_code(question.text)}</strong></p>{options}</div>"
            )
        title = f"Quiz {escape(self.number)}: open the option that you would choose"
        return f'<section aria-label="{title}"><p>{title}.</p>{"".join(parts)}</section>'

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = {}
        try:
            form = importlib.import_module(f"{__name__}.form")
            bundle = form.QuizForm(self).widget._repr_mimebundle_() or {}
        except MissingPackage:
            pass  # the HTML has all that the form has
        return {**bundle, "text/html": self.as_html(), "text/plain": self.as_text()}
