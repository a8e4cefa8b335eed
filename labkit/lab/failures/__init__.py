"""Notebook 11: failures live, PyTorch's loader and labkit's beside each other.

    labkit.lab.failures.beside("killed worker")

Each side runs in a main process of its own, in a child process with a limit: nothing of it can hurt
the kernel, and nothing of it is left. Read first `acts`, which break a loader, then `stage`, which
watches from outside, and `outcome`, what is shown. `growth` is about memory, `patients` are the
broken loaders of an exercise, `noticing` measures for a panel, `picture` draws all times, `errors`
raises what no failure here leads to.
"""

from __future__ import annotations

from labkit.lab.failures.acts import FAILURES, sides_of
from labkit.lab.failures.errors import Errors, every_error
from labkit.lab.failures.outcome import Beside, Outcome, verdicts
from labkit.lab.failures.patients import FAULTS, examine
from labkit.lab.failures.playing import played

__all__ = [
    "FAILURES",
    "FAULTS",
    "Beside",
    "Errors",
    "Outcome",
    "beside",
    "every_error",
    "examine",
    "verdicts",
]


def beside(
    failure: str,
    start_method: str | None = None,
    sharing_strategy: str | None = None,
    patience_s: float | None = None,
) -> Beside:
    """Break a loader of PyTorch's and one of labkit's in the same way, at the same time.

    Args:
        failure: one of `FAILURES`.
        start_method: of the workers; None for the one under which the failure is at home.
        sharing_strategy: of both, where both have it; None for each one's default, or for the one
            without which this failure does not happen.
        patience_s: after so long a loader is given up that is known to wait on; None for 2 s.
            With 5 s and more, PyTorch's next look at its workers may come before.

    Raises:
        ValueError: there is no such failure, or no such start method on this system.
        RuntimeError: the experiment did not come to its end; says what it wrote.
    """
    sides = sides_of(failure, start_method, sharing_strategy)
    found = played([(FAILURES[failure], side) for side in sides], patience_s)
    strategy = f", {sharing_strategy}" if sharing_strategy else ""
    return Beside(failure, found, f"{sides[0].start_method}{strategy}")
