"""Which exercises and quiz questions a learner has passed: a small JSON file in their folder.

Before it: `exercises.check` and the quizzes, which call `note`. After it: `learner`, which shows
what stands there. Nothing is sent anywhere. The file is replaced as a whole, under a lock on its
folder, so that two kernels can note at once and none reads half a file.

The environment's LABKIT_PROGRESS names another file; "off" keeps nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from labkit.lab.whole_file import write_whole

__all__ = ["FILE", "Kept", "forget", "note", "passed", "question_id"]

FILE = "labkit-progress.json"
_FORMAT = 1
_LOCK_SECONDS = 5.0  # nobody holds the lock for longer than it takes to write a small file

_pending: dict[str, str] = {}
"""What could not be kept yet, in this process."""


@dataclass(frozen=True)
class Kept:
    """What is known of a learner's passes.

    Attributes:
        when: the time (ISO 8601, UTC) of each first pass, by the id of what was passed.
        file: where that is kept; None where nothing is.
        remarks: what is to be said of the file, in sentences.
    """

    when: dict[str, str]
    file: Path | None
    remarks: tuple[str, ...] = ()


class _Damaged(ValueError):
    """The file does not hold what `_written` writes."""


def question_id(number: str, question: int) -> str:
    """The id of a quiz's question (from 1) among the passes."""
    return f"{number}.quiz.{question}"


def note(id: str) -> None:
    """Keep that this was passed; of several times the first counts. Raises nothing.

    Where it cannot be kept (a folder that is read-only, a full disk), this process remembers it,
    and tries again at the next pass.
    """
    _pending.setdefault(id, datetime.now(timezone.utc).isoformat(timespec="seconds"))
    to_keep = dict(_pending)  # another thread may note something meanwhile
    with suppress(OSError):
        _change(lambda when: {**to_keep, **when})
        for kept in to_keep:
            _pending.pop(kept, None)


def passed() -> Kept:
    """What was passed: what the file says, and what this process could not write into it."""
    file, remarks = _place(), []
    if file is None:
        return Kept(dict(_pending), None, ("Nothing is kept: LABKIT_PROGRESS is off.",))
    try:
        when = _read_or_set_aside(file)
    except OSError as error:
        when = {}
        remarks.append(f"{file.name} cannot be read: {error.strerror or error}.")
    if not _pending.keys() <= when.keys():
        remarks.append(
            f"What you passed just now is not kept, because {file.parent} cannot be written to: it "
            "is gone when this kernel ends."
        )
    remarks += [
        f"{aside.name} is an earlier {file.name} that was damaged and was set aside. If you can "
        "mend its JSON, give it the old name; otherwise delete it."
        for aside in sorted(file.parent.glob(f"{file.stem}.damaged-*{file.suffix}"))
    ]
    return Kept({**_pending, **when}, file, tuple(remarks))


def forget(number: str = "") -> None:
    """Take back what was passed in the notebook with this number; "" for all notebooks.

    Raises:
        OSError: the file cannot be written.
    """
    prefix = f"{number}." if number else ""

    def without(when: dict[str, str]) -> dict[str, str]:
        return {id: time for id, time in when.items() if not id.startswith(prefix)}

    for id in [id for id in _pending if id.startswith(prefix)]:
        del _pending[id]
    _change(without)


def _place() -> Path | None:
    """The file in the folder in which the kernel works, which is the notebook's; None if off."""
    named = os.environ.get("LABKIT_PROGRESS", "")
    if named.lower() == "off":
        return None
    return Path(named).absolute() if named else Path(os.path.curdir).absolute() / FILE


def _change(change: Callable[[dict[str, str]], dict[str, str]]) -> None:
    """Read, change and write as one step. Writes nothing if nothing changed."""
    file = _place()
    if file is None:
        return
    with _locked(file.parent):
        before = _read_or_set_aside(file)
        after = change(before)
        if after != before:
            _write(file, after)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which goes when its holder dies.

    Raises:
        TimeoutError: another process does not give it up.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        deadline = time.monotonic() + _LOCK_SECONDS
        while not _taken(descriptor):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{folder} is locked by another process")
            time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # some network file systems lock no folder: then one of two passes may be lost
    return True


def _read_or_set_aside(file: Path) -> dict[str, str]:
    try:
        return _read(file)
    except FileNotFoundError:
        return {}
    except _Damaged:
        for number in range(1, 100):
            aside = file.with_name(f"{file.stem}.damaged-{number}{file.suffix}")
            if not aside.exists():
                file.rename(aside)
                break
        return {}


def _read(file: Path) -> dict[str, str]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        when = content["passed"] if content["format"] == _FORMAT else None
    except (ValueError, KeyError, TypeError, RecursionError) as error:  # no UTF-8, JSON, other JSON
        raise _Damaged(str(error)) from error
    if not isinstance(when, dict) or not all(isinstance(time, str) for time in when.values()):
        raise _Damaged("not what labkit writes")
    return when


def _write(file: Path, when: dict[str, str]) -> None:
    text = json.dumps({"format": _FORMAT, "passed": when}, indent=1) + "\n"
    write_whole(file, text.encode())
