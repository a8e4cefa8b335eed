"""`check` finds right answers right and explains wrong ones; `hint` and `solution` lead on."""

import importlib
import re
from collections import Counter
from pathlib import Path

import pytest

from labkit.lab import check, hint, solution
from labkit.lab.exercises import all_exercises
from labkit.lab.exercises.exercise import find_solution

SOLUTIONS = Path(__file__).parents[2] / "notebooks" / "solutions"
NUMBERS = sorted({exercise.id[:2] for exercise in all_exercises()})
ANSWERS = {
    number: importlib.import_module(f"tests.lab.answers.answers_{number}") for number in NUMBERS
}
RIGHT = {id: found for module in ANSWERS.values() for id, found in module.RIGHT.items()}
WRONG = {id: found for module in ANSWERS.values() for id, found in module.WRONG.items()}


def name_of(value):
    return getattr(value, "__qualname__", value) if not isinstance(value, tuple) else ""


def pairs(answers):
    return [(id, answer) for id, found in answers.items() for answer in found]


def executed(file: Path) -> dict:
    """A solution's module as a notebook's cell would have it: nothing of it can be imported."""
    namespace = {"__name__": "__main__"}
    exec(compile(file.read_text(), str(file), "exec"), namespace)
    return namespace


@pytest.mark.parametrize(("id", "answer"), pairs(RIGHT), ids=name_of)
def test_a_right_answer_passes(id, answer):
    report = check(id, answer)
    assert report.passed, report
    assert report.failure is None
    assert report.cases >= 3


@pytest.mark.parametrize("exercise", all_exercises(), ids=lambda exercise: exercise.id)
def test_the_solution_passes_by_value(exercise):
    file = Path(find_solution(exercise).file)
    report = check(exercise.id, executed(file)[exercise.answer])
    assert report.passed, report


@pytest.mark.parametrize("id", WRONG)
def test_each_wrong_answer_fails_with_an_explanation_of_its_own(id):
    said = []
    for answer, words in WRONG[id]:
        report = check(id, answer)
        assert not report.passed, answer
        assert report.verdict == "not right yet"
        assert words in report.as_text(), f"{answer}: {report}"
        assert all([report.failure.given, report.failure.expected, report.failure.got])
        assert report.failure.thought
        said.append(report.as_text())
    for _, words in WRONG[id]:
        assert sum(words in text for text in said) == 1, words


def test_every_exercise_is_tried_with_two_right_and_three_wrong_answers():
    ids = {exercise.id for exercise in all_exercises()}
    assert ids == RIGHT.keys() == WRONG.keys()
    assert all(len(found) >= 2 for found in RIGHT.values())
    assert all(len(found) >= 3 for found in WRONG.values())


def test_ids_are_unique_and_each_exercise_has_two_hints_and_a_solution():
    assert max(Counter(exercise.id for exercise in all_exercises()).values()) == 1
    for exercise in all_exercises():
        first, second = exercise.hints
        assert first
        assert second not in ("", first)
        assert re.match(rf"(def|class) {exercise.answer}\b", solution(exercise.id).code)


@pytest.mark.parametrize(("answer", "seconds"), ANSWERS["02"].SLOWLY_WRONG["02.fork_safe"])
def test_a_lock_that_keeps_all_waiting_fails(answer, seconds):
    report = check("02.fork_safe", answer, seconds=seconds)
    assert not report.passed
    assert report.failure.thought


# Not yet done, or not what was asked for


def empty(results):
    """Nothing but a docstring."""


class StubOfAClass:
    def __init__(self, length):
        self.length = length

    def __iter__(self):
        """Nothing but a docstring."""


class OnlyADocstring:
    """Nothing else."""


def raises_not_implemented(results):
    raise NotImplementedError


@pytest.mark.parametrize(
    ("id", "answer"),
    [
        ("03.reorder", empty),
        ("03.reorder", raises_not_implemented),
        ("03.shard", StubOfAClass),
        ("03.shard", OnlyADocstring),
    ],
)
def test_a_stub_is_not_yet_done_and_is_told_what_to_fill_in(id, answer):
    report = check(id, answer)
    assert report.verdict == "not yet done"
    assert not report.passed
    assert "Fill in" in report.as_text()


def test_a_result_instead_of_a_function_is_explained():
    report = check("03.reorder", iter([]))
    assert not report.passed
    assert 'check("03.reorder", in_order)' in report.failure.thought


def test_an_answer_that_cannot_be_pickled_is_explained():
    import threading

    lock = threading.Lock()

    def in_order(results):
        with lock:
            return iter(results)

    report = check("03.reorder", in_order)
    assert not report.passed
    assert "lock" in report.failure.got
    assert "Make it inside" in report.failure.thought


def test_an_unknown_id_is_an_error_that_names_those_there_are():
    with pytest.raises(ValueError, match=r"no exercise '03.nothing'. There are: .*03\.shard"):
        check("03.nothing", empty)
    with pytest.raises(ValueError, match="no exercise"):
        hint("99.x")


# What a learner reads


def test_an_exception_is_shown_with_the_line_of_the_answer():
    report = check("03.shard", ANSWERS["03"].OnlyInWorkers)
    assert "AttributeError" in report.failure.got
    assert "range(info.id, self.length, info.num_workers)" in report.failure.place
    assert "`__iter__`" in report.failure.place


def test_the_html_has_the_same_words_and_says_the_verdict_without_colour():
    report = check("01.collate_padded", ANSWERS["01"].float_zeros)
    html = report._repr_mimebundle_()["text/html"]
    assert "Not right yet" in html
    assert "✗" in html
    assert 'aria-label="Exercise 01.collate_padded: not right yet"' in html
    for label in ("Given", "Expected", "Got", "Think"):
        assert f"<strong>{label}</strong>" in html
    assert "color:" not in html


def test_what_an_answer_prints_is_escaped_in_html():
    def in_order(results):
        print("<b>& so on</b>")

    report = check("03.reorder", in_order)
    assert report.printed == "<b>& so on</b>\n" * report.printed.count("\n")
    html = report._repr_mimebundle_()["text/html"]
    assert "&lt;b&gt;&amp; so on" in html
    assert "<b>" not in html


def test_hints_come_one_after_the_other_or_by_number():
    id = "00.most_workers"
    assert hint(id, 1).text != hint(id, 2).text
    asked = [hint(id).number for _ in range(3)]
    assert asked == [1, 2, 2]
    assert "solution(" in hint(id, 2).as_text()
    assert hint(id, 1)._repr_mimebundle_()["text/html"].startswith("<p><strong>Hint 1.")
    with pytest.raises(ValueError, match="there is no hint 3"):
        hint(id, 3)


@pytest.mark.parametrize("folder", [".", "notebooks", "tests"])
def test_a_solution_is_found_from_anywhere(folder, monkeypatch):
    monkeypatch.chdir(SOLUTIONS.parents[1] / folder)
    found = solution("03.reorder")
    assert found.code.startswith("def in_order(results):")
    assert Path(found.file).name == "03_the_worker_loop.py"


def test_the_solutions_beside_the_notebook_come_first(tmp_path, monkeypatch):
    (tmp_path / "solutions").mkdir()
    (tmp_path / "solutions" / "03_mine.py").write_text("def in_order(results):\n    return 1\n")
    monkeypatch.chdir(tmp_path)
    assert solution("03.reorder").code == "def in_order(results):\n    return 1\n"
    with pytest.raises(LookupError, match="does not define Sharded"):
        solution("03.shard")
