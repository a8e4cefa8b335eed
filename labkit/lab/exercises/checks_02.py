"""The exercises of notebook 02: what a new process inherits, and what it must import again.

Before it: `counting`, which counts for real how often a module is imported. The lock has a module
of its own, `checks_02_fork_safe`.
"""

from __future__ import annotations

import pickle
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from labkit.lab.exercises.checks_02_fork_safe import check_fork_safe
from labkit.lab.exercises.counting import Setting, counted_prints
from labkit.lab.exercises.exercise import Exercise
from labkit.lab.exercises.trial import Trial

__all__ = ["EXERCISES"]

_SETTINGS: tuple[Setting, ...] = (
    ("fork", 1, 4),
    ("fork", 3, 9),
    ("spawn", 2, 6),
    ("forkserver", 2, 6),
    ("forkserver", 3, 12),
    ("spawn", 0, 4),
)


def _print_count(
    answer: Callable[[str, int, int], int], trial: Trial, counted: dict[Setting, int]
) -> None:
    for setting, expected in counted.items():
        method, workers, batches = setting
        trial.case(
            f"`prints({method!r}, {workers}, {batches})`: {workers} workers, {batches} batches",
            f"{expected}, as counted on this machine",
            "Go through the processes one by one: the main process, then each worker. Which of "
            "them imports the module?",
        )
        got = answer(*setting)
        if got != expected:
            trial.fail(got, _about_prints(setting, got, expected))


def _about_prints(setting: Setting, got: Any, expected: int) -> str:
    method, workers, batches = setting
    if not isinstance(got, int):
        return "A number is wanted: how often the line appears in all."
    if got in (batches, batches + 1):
        return "It is not once a batch: a worker imports a module once and then makes many batches."
    if method == "fork":
        return (
            "A forked worker goes on from a copy of the main process's memory, in which the "
            "module is there already. What is there is not imported again."
        )
    if workers == 0:
        return "Without workers there is one process, whatever the start method's name."
    if got == expected - 1:
        return "One is missing: the main process imports the module, too, to make the dataset."
    if method == "forkserver":
        return (
            "The server was started fresh and has not imported this module; so each worker that "
            "is forked from it does so when the dataset arrives. Who imports it in all?"
        )
    return (
        "A spawned worker is a fresh interpreter: nothing of the main process is in it, so it "
        "imports the module when the dataset arrives."
    )


_SOURCE = """
class {name}:
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return index * {factor}
"""


def _importable(answer: Callable[[str, str, str], Any], trial: Trial) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, class_name, factor in (("doubles", "Doubles", 2), ("triples", "Triples", 3)):
            source = _SOURCE.format(name=class_name, factor=factor)
            call = f"`importable({name!r}, source, folder)`, with a `class {class_name}` in source"
            trial.case(call, f"the module `{name}`", "Write a file, then `import` it.")
            module = answer(name, source, folder)
            if not hasattr(module, class_name):
                trial.fail(module, f"What it returns has no `{class_name}`. Return the module.")
            dataset = getattr(module, class_name)(10)
            _pickles_by_reference(trial, dataset, name, call)
            _arrives_in_a_spawned_process(trial, dataset, name, folder, 3 * factor)


def _pickles_by_reference(trial: Trial, dataset: Any, name: str, call: str) -> None:
    class_name = type(dataset).__name__
    trial.case(
        f"{call}; then `pickle.dumps({class_name}(10))`",
        f"bytes that name `{name}.{class_name}`",
        "pickle writes the name of the class, and looks first whether the name leads to it: "
        f"`sys.modules[{name!r}].{class_name}` must be this very class.",
    )
    pickle.dumps(dataset)
    if type(dataset).__module__ != name:
        trial.fail(
            f"bytes that name `{type(dataset).__module__}.{class_name}`",
            f"The class says that it comes from `{type(dataset).__module__}`. Let Python import "
            f"the file as `{name}`, and it will say `{name}`.",
        )


def _arrives_in_a_spawned_process(
    trial: Trial, dataset: Any, name: str, folder: str, expected: int
) -> None:
    given = f"a `{type(dataset).__name__}(10)`, sent to a spawned process, asked for sample 3"
    trial.case(given, repr(expected), "What does a fresh interpreter need to find the module?")
    try:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            got = pool.submit(dataset.__getitem__, 3).result()
    except BrokenProcessPool:
        if Path(folder, f"{name}.py").exists() and folder not in sys.path:
            thought = (
                "The file is there, but the new process does not know where. It gets this "
                "process's `sys.path`: is the folder in it?"
            )
        else:
            thought = (
                f"The new process knows nothing of this one's memory: it looks for a file "
                f"`{name}.py` in the folders of `sys.path`. Is there one?"
            )
        trial.fail(f"the process could not unpickle it: there is no module `{name}`", thought)
    if got != expected:
        trial.fail(got, "Another sample than in the main process: is it the same class?")


EXERCISES = (
    Exercise(
        "02.print_count",
        "prints",
        (
            "Count processes that import the module, not batches. A forked process has it already.",
            "The main process prints once. Under `spawn` and `forkserver` each worker adds one.",
        ),
        _print_count,
        measured=lambda: (counted_prints(_SETTINGS),),
    ),
    Exercise(
        "02.importable",
        "importable",
        (
            "pickle sends only a name, such as `squares.Squares`: the new process imports it. So "
            "there must be a file, in a folder in which Python looks.",
            "Write `source` to the file `name.py` in `folder`, add `folder` to `sys.path` (which "
            "a spawned process gets, too), and return `importlib.import_module(name)`.",
        ),
        _importable,
        seconds=30,
    ),
    Exercise(
        "02.fork_safe",
        "ForkSafeLock",
        (
            "After a fork, the child must notice that it is another process and make a new lock.",
            "Keep `os.getpid()` beside the lock and compare in `__enter__`; or let "
            "`os.register_at_fork(after_in_child=…)` make a new one.",
        ),
        check_fork_safe,
        seconds=20,
    ),
)
