"""Every quiz in JupyterLab: answered by keyboard, and unfolded where nothing is run."""

import pytest
from playwright.sync_api import expect

from labkit.lab.quizzes import all_numbers, quiz
from tests.browser.accessibility import faults, whole_notebook
from tests.browser.notebook_page import OUTPUT_OF_SELECTED_CELL

pytestmark = pytest.mark.timeout(170)
NUMBERS = all_numbers()[::3]  # their questions are held to account in `tests/lab/test_quizzes.py`
CELLS = ["from labkit.lab.quizzes import quiz", *[f'quiz("{n}")' for n in NUMBERS]]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_quiz_is_answered_by_keyboard(number, notebook, witness):
    cell = NUMBERS.index(number) + 1
    form = notebook.output(cell)
    notebook.select(cell)
    question = quiz(number).questions[0]
    for place in sorted({0, _right(question)}):
        option = form.get_by_role("radiogroup").or_(form.locator(".widget-radio-box")).first
        notebook.tab_to(option.get_by_role("radio").nth(place))
        notebook.press("Space")
        notebook.settle()
        notebook.tab_to(form.get_by_role("button", name="Check answer 1", exact=True))
        notebook.press("Space")
        begins = "Right" if question.options[place].right else "Not so"
        expect(form.get_by_role("status").first).to_contain_text(begins)
        notebook.select(cell)
    assert faults(notebook.page, OUTPUT_OF_SELECTED_CELL) == []
    with whole_notebook(notebook.page):
        notebook.screenshot(f"quiz-{number}", of=form)


def test_a_quiz_in_the_dark(notebook, witness):
    notebook.select(1)
    with notebook.in_the_dark():
        assert faults(notebook.page, OUTPUT_OF_SELECTED_CELL) == []
        with whole_notebook(notebook.page):
            notebook.screenshot("quiz-dark", of=notebook.output(1))


def test_whoever_is_sent_the_notebook_unfolds_the_answers_without_running_it(notebook, receive):
    sent = receive(notebook)
    sent.select(1)
    sent.tab_to(sent.output(1).locator("summary").first)
    sent.press("Enter")
    expect(sent.output(1).locator("details[open] p")).to_be_visible()
    assert faults(sent.page, OUTPUT_OF_SELECTED_CELL) == []
    sent.screenshot("quiz-not-run", of=sent.output(1))


def _right(question):
    return next(place for place, option in enumerate(question.options) if option.right)
