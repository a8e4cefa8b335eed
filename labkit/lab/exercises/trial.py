"""What a check says while it runs: the case that it tries, and what was wrong with the answer.

A check is a plain function `run(answer, trial)`. It announces each case before it calls the answer,
so that an endless loop or a crash can be explained with the case in which it happened; it returns
if all is right. Before it: `confined`, in whose process this runs. After it: `report`.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from labkit.lab.exercises.confined import Place

__all__ = ["Case", "Failed", "Raised", "Trial", "Wrong", "put_to_the_test", "shown"]

_LONGEST = 600  # characters of a value


@dataclass(frozen=True)
class Case:
    """What the answer is given next."""

    given: str
    expected: str
    thought: str  #: leads on if it raises, crashes or does not end


@dataclass(frozen=True)
class Wrong:
    """The answer did something else than expected."""

    got: str
    thought: str


@dataclass(frozen=True)
class Raised:
    """The answer raised an exception."""

    what: str
    not_yet_done: bool  #: it is a `NotImplementedError`
    stack: tuple[Place, ...]  #: innermost first


class Failed(Exception):
    """Ends a check: the answer is wrong."""

    def __init__(self, got: str, thought: str) -> None:
        super().__init__(got, thought)
        self.wrong = Wrong(got, thought)


class Trial:
    """A check's way to say what it does. Texts only: nothing of the answer's leaves its process."""

    def __init__(self, send: Callable[[Any], None]) -> None:
        self._send = send

    def case(self, given: str, expected: str, thought: str) -> None:
        """Announce what comes next. `thought` is for an exception, a crash or an endless loop."""
        self._send(Case(given, expected, thought))

    def fail(self, got: Any, thought: str) -> NoReturn:
        """End the check: the answer gave `got`, and `thought` leads on."""
        raise Failed(shown(got), thought)


def put_to_the_test(
    send: Callable[[Any], None], run: Callable[..., None], answer: Any, arguments: tuple[Any, ...]
) -> None:
    """Run a check and send its cases, then a `Wrong` or a `Raised` unless all is right."""
    try:
        run(answer, Trial(send), *arguments)
    except Failed as failed:
        send(failed.wrong)
    except BaseException as error:  # SystemExit too is a way to end that nobody asked for
        what = "".join(traceback.format_exception_only(type(error), error)).strip()
        frames = reversed(traceback.extract_tb(error.__traceback__))
        stack = tuple(Place(f.filename, f.lineno or 0, f.name) for f in frames)
        send(Raised(shown_text(what), isinstance(error, NotImplementedError), stack))


def shown(value: Any) -> str:
    """A value as text, cut if it is long; a text as it is."""
    if isinstance(value, str):
        return shown_text(value)
    try:
        return shown_text(repr(value))
    except Exception as error:
        return f"a {type(value).__name__} whose repr() raises {type(error).__name__}"


def shown_text(text: str) -> str:
    """A text, cut if it is long."""
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " …"
