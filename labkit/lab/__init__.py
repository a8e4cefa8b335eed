"""The lab: what runs, measures and shows the loader. It imports the loader, never the reverse.

A measurement goes this way: `doctor` says what the machine has, `experiments` measures on it, a
`results.Result` keeps every repeat, `explain` says what the numbers support, `plots` draws them,
`panels` puts it all into a learner's hands. `timeline` draws a trace, `layer_map` the layers,
`curve` a training. `exercises` and `quizzes` ask, `source` shows code, `datasets` are what workers
can import; `inherited`, `locked` and `slow_items` are notebook 02's. `pickle_tree` and
`put_timeline` are notebook 04's, `shared_memory` is notebook 05's. `turns`, `handed_over`,
`address_spaces`, `decoding` and `threaded` are notebook 07's; `stacking`, `copies`, `faults` and
`arena_view` are notebook 06's. `on_device` has experiments on a GPU or a simulated device, `record`
runs them on a GPU, and `recorded` keeps what it found. `image_folder`, `image_samples`, `pipeline`
and `loader_arguments` are notebook 10's, `failures` is notebook 11's, `ranks` and `feeding` are
notebook 12's. `advising` looks at a learner's own dataset; `simulate` predicts how fast a loader is
on another machine. `bench` compares loaders; `resources` measures what they cost besides time;
`child` runs programs. `notebooks` and `edition` hand the course out, `passes` and `learner` tell
what was passed.

What a learner calls is imported when it is first asked for: `check`, `hint` and `solution` are in
`exercises`, `quiz` in `quizzes`, `show` in `source`, `progress` in `learner`, `advise` in
`advising`.

The lab may need packages that the loader does not: `pip install 'labkit[lab]'`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labkit.lab.advising import advise
    from labkit.lab.exercises import check, hint, solution
    from labkit.lab.learner import progress
    from labkit.lab.quizzes import quiz
    from labkit.lab.source import show

__all__ = [
    "MissingPackage",
    "advise",
    "check",
    "hint",
    "need",
    "progress",
    "quiz",
    "show",
    "solution",
]

_HOMES = {
    "advise": "advising",
    "check": "exercises",
    "hint": "exercises",
    "solution": "exercises",
    "progress": "learner",
    "quiz": "quizzes",
    "show": "source",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


class MissingPackage(ImportError):
    """A package of the lab is not installed."""


def need(module: str, package: str | None = None) -> Any:
    """Import a module of a package that only the lab needs.

    Raises:
        MissingPackage: it is not there; says what to install.
    """
    try:
        return importlib.import_module(module)
    except MissingPackage:
        raise  # it names what is missing already
    except ImportError as error:
        raise MissingPackage(
            f"{package or module} cannot be imported ({error}): pip install {package or module}"
        ) from error
