"""A quiz as a form of widgets: radio buttons, a button, and the verdict below.

All widgets are native controls with labels, so they work by keyboard and screen reader; the verdict
is a status region, which a screen reader reads when it changes. Before it: `Quiz`, which knows
nothing of widgets.
"""

from __future__ import annotations

from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

from labkit.lab import need
from labkit.lab.code_spans import with_code

if TYPE_CHECKING:
    from labkit.lab.quizzes import Quiz

__all__ = ["QuestionForm", "QuizForm"]

widgets = need("ipywidgets")


class QuizForm:
    """The form; `widget` is to be displayed.

    Attributes:
        questions: the parts of the form, one a question.
    """

    def __init__(self, quiz: Quiz) -> None:
        self.questions = [
            QuestionForm(quiz, number) for number in range(1, len(quiz.questions) + 1)
        ]
        self.widget = widgets.VBox([question.widget for question in self.questions])


class QuestionForm:
    """A question, with `choice` (its `index` is the option's), `check` (a button) and `status`."""

    def __init__(self, quiz: Quiz, number: int) -> None:
        self._quiz, self._number = quiz, number
        question = quiz.questions[number - 1]
        # A radio button's label is plain text.
        labels = [
            f"{letter}) {option.text.replace('`', '')}"
            for letter, option in zip(ascii_lowercase, question.options, strict=False)
        ]
        text = widgets.HTML(f"<p><strong>{number}. {with_code(question.text)}</strong></p>")
        self.choice = widgets.RadioButtons(
            options=labels,
            index=None,
            description=f"Answer {number}",
            layout=widgets.Layout(width="auto"),
            style={"description_width": "initial"},
        )
        self.check = widgets.Button(
            description=f"Check answer {number}",
            tooltip=f"Says whether the chosen answer to question {number} is right, and why",
        )
        self.status = widgets.HTML(_status(""))
        self.check.on_click(self._show_verdict)
        self.choice.observe(self._clear, "index")
        self.widget = widgets.VBox([text, self.choice, self.check, self.status])

    def _show_verdict(self, _: Any) -> None:
        if self.choice.index is None:
            self.status.value = _status("Choose an answer first.")
            return
        option = self._quiz.answer(self._number, self.choice.index)
        sign = "✓" if option.right else "✗"
        self.status.value = _status(
            f'<span aria-hidden="true">{sign}</span> {with_code(option.verdict)}'
        )

    def _clear(self, _: Any) -> None:
        """A verdict stands only beside the option that it is about."""
        self.status.value = _status("")


def _status(html: str) -> str:
    return f'<div role="status" aria-live="polite">{html}</div>'
