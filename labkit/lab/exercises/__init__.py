"""Exercises: `check` tries a learner's answer, `hint` helps, `solution` shows one that is right.

An answer runs in a process of its own under a time limit, so an endless loop, a deadlock or a
crash ends there and is explained like any other failure; see `confined`. `checks_NN` holds the
exercises of notebook NN, `exercise` finds them, `report` is what the learner reads. What is right
is noted in `passes`.
"""

from __future__ import annotations

import dis
import inspect
import linecache
import signal
from collections import Counter
from collections.abc import Iterable
from typing import Any

import cloudpickle

from labkit.lab.exercises.confined import Ended, Place, run_in_child
from labkit.lab.exercises.exercise import (
    Exercise,
    all_exercises,
    find_exercise,
    find_solution,
)
from labkit.lab.exercises.report import Failure, Hint, Report
from labkit.lab.exercises.trial import Case, Raised, Wrong, put_to_the_test, shown
from labkit.lab.passes import note
from labkit.lab.source import Source

__all__ = [
    "Failure",
    "Hint",
    "NotRight",
    "Report",
    "all_exercises",
    "check",
    "graded",
    "hint",
    "solution",
]

_SENT_BY_VALUE = "<dynamic-code>"  # what cloudpickle writes as the file of a cell's function
_hints_given: Counter[str] = Counter()


def check(id: str, answer: Any, *, seconds: float | None = None) -> Report:
    """Try an answer; the report says whether it is right, or explains the first case that is not.

    A wrong answer raises nothing.

    Args:
        id: the exercise's, such as "03.shard".
        answer: the function or class itself, as the exercise asks for it.
        seconds: a limit in place of the exercise's own.

    Raises:
        ValueError: there is no such exercise.
    """
    exercise = find_exercise(id)
    if not callable(answer):
        return _not_callable(exercise, answer)
    if _is_empty(answer):
        return _not_yet_done(exercise)
    limit = seconds or exercise.seconds
    arguments = exercise.measured()
    try:
        cloudpickle.dumps(answer)
    except Exception as error:
        return _cannot_be_sent(exercise, error)
    ended = run_in_child(put_to_the_test, exercise.run, answer, arguments, seconds=limit)
    report = _report(exercise, answer, ended, limit)
    if report.passed:
        note(id)
    return report


class NotRight(AssertionError):
    """An answer that is graded is not right; the text is the report."""


def graded(id: str, answer: Any) -> Report:
    """As `check`, for a cell that gives points: an error where the answer is not right.

    Raises:
        NotRight: with the report as its text.
        ValueError: there is no such exercise.
    """
    report = check(id, answer)
    if not report.passed:
        raise NotRight(report.as_text())
    return report


def hint(id: str, number: int | None = None) -> Hint:
    """The exercise's first hint, and when asked again its second; or the one with this number.

    Raises:
        ValueError: there is no such exercise, or no such hint.
    """
    exercise = find_exercise(id)
    if number is None:
        _hints_given[id] += 1
        number = min(_hints_given[id], len(exercise.hints))
    if number not in (1, 2):
        raise ValueError(f"there is no hint {number!r}: write hint({id!r}, 1) or hint({id!r}, 2)")
    following = f'hint("{id}", 2)' if number == 1 else f'solution("{id}")'
    return Hint(id, number, exercise.hints[number - 1], f"Next: `labkit.lab.{following}`.")


def solution(id: str) -> Source:
    """A right answer, out of `notebooks/solutions/`.

    Raises:
        ValueError: there is no such exercise.
        FileNotFoundError: the folder with the solutions is not there.
    """
    return find_solution(find_exercise(id))


def _is_empty(answer: Any) -> bool:
    """Whether it is a function, or a class with a method, in which only a docstring stands."""
    if inspect.isclass(answer):
        methods = [value for value in vars(answer).values() if inspect.isfunction(value)]
        # A method that is meant to do nothing needs no docstring.
        return not methods or any(method.__doc__ and _is_empty(method) for method in methods)
    if not inspect.isfunction(answer):
        return False
    steps = [step for step in dis.get_instructions(answer) if step.opname not in ("RESUME", "NOP")]
    returns = {"LOAD_CONST", "RETURN_CONST", "RETURN_VALUE"}
    return all(step.opname in returns and step.argval is None for step in steps)


def _report(exercise: Exercise, answer: Any, ended: Ended, seconds: float) -> Report:
    cases = [message for message in ended.messages if isinstance(message, Case)]
    wrong = [message for message in ended.messages if isinstance(message, (Wrong, Raised))]
    if ended.how == "finished" and not wrong:
        return Report(exercise.id, "right", len(cases), printed=ended.printed)
    first = wrong[0] if wrong else None
    if isinstance(first, Raised) and first.not_yet_done:
        return _not_yet_done(exercise)
    case = cases[-1] if cases else Case("", "", "")
    if isinstance(first, Wrong):
        failure = Failure(case.given, case.expected, first.got, first.thought)
    elif isinstance(first, Raised):
        place = _place(answer, first.stack)
        failure = Failure(case.given, case.expected, first.what, case.thought, place)
    elif ended.how == "time limit":
        got = f"no end after {seconds:g} s; its processes were ended"
        place = _place(answer, ended.stack)
        failure = Failure(case.given, case.expected, got, case.thought, place)
    else:
        got = f"the process that ran it ended: {_manner(ended.exit_code)}"
        failure = Failure(case.given, case.expected, got, case.thought)
    right = max(0, len(cases) - 1)
    return Report(exercise.id, "not right yet", right, failure, ended.printed, _help(exercise))


def _place(answer: Any, stack: Iterable[Place]) -> str:
    """The innermost line of the learner's on the stack."""
    functions = [answer]
    if inspect.isclass(answer):
        functions = [value for value in vars(answer).values() if inspect.isfunction(value)]
    for place in stack:
        for function in filter(inspect.isfunction, functions):
            files = (function.__code__.co_filename, _SENT_BY_VALUE)
            if place.file in files and _is_inside(place, function):
                text = linecache.getline(files[0], place.line).strip()
                return f"in `{place.function}`, line {place.line}" + (f": `{text}`" if text else "")
    return ""


def _is_inside(place: Place, function: Any) -> bool:
    """Whether the place is in this function, or in one that is defined in it."""
    try:
        lines, first = inspect.getsourcelines(function)
    except OSError:
        return bool(place.function == function.__name__)
    return first <= place.line < first + len(lines) and any(place.function in x for x in lines)


def _manner(exit_code: int | None) -> str:
    if exit_code is None:
        return "it cannot be told how"
    if exit_code < 0:
        names = {number.value: number.name for number in signal.Signals}
        return f"by signal {names.get(-exit_code, -exit_code)}"
    return f"with exit code {exit_code}, before it had given an answer"


def _not_yet_done(exercise: Exercise) -> Report:
    remark = f"Fill in `{exercise.answer}`, then run this again. {_help(exercise)}"
    return Report(exercise.id, "not yet done", remark=remark)


def _not_callable(exercise: Exercise, answer: Any) -> Report:
    name = exercise.answer
    failure = Failure(
        f"a {type(answer).__name__}",
        f"the function or class `{name}` itself",
        shown(answer),
        f'Write `check("{exercise.id}", {name})`, without brackets behind `{name}`: the check '
        "calls it, with inputs of its own.",
    )
    return Report(exercise.id, "not right yet", failure=failure)


def _cannot_be_sent(exercise: Exercise, error: Exception) -> Report:
    failure = Failure(
        "your answer, to be sent to a process of its own",
        "that everything it uses can be pickled",
        f"{type(error).__name__}: {error}",
        f"Does `{exercise.answer}` use something from another cell that belongs to this process, "
        "such as a lock, an open file or a generator? Make it inside.",
    )
    return Report(exercise.id, "not right yet", failure=failure, remark=_help(exercise))


def _help(exercise: Exercise) -> str:
    # In full, for a notebook imports of these three only `check`.
    return f'Stuck? `labkit.lab.hint("{exercise.id}")`.'
