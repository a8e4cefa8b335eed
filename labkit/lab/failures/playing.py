"""Play failures in a child process with a limit, of which nothing is left.

Before it: `stage`. After it: `beside` in the package, `noticing`, and `patients`.
"""

from __future__ import annotations

import multiprocessing
import secrets
import threading
from collections.abc import Callable, Sequence
from multiprocessing import forkserver
from typing import Any

from labkit.lab.experiments.fresh import Cancelled
from labkit.lab.experiments.measuring import at_most
from labkit.lab.failures.outcome import Outcome
from labkit.lab.failures.stage import Scene, play
from labkit.lab.shared_memory.main_processes import end_managers
from labkit.lab.shared_memory.ways import in_a_child
from labkit.sharing.names import remove_orphans

__all__ = ["played"]

_LIMIT_S = 150.0
_PATIENCE_SECONDS, _SHORT_SECONDS = 2.0, 1.0


def played(
    scenes: Sequence[Scene],
    patience_s: float | None = None,
    cancel: threading.Event | None = None,
) -> list[Outcome]:
    """What came of each scene.

    Args:
        scenes: all are played at the same time.
        patience_s: after so long a loader is given up that is known to wait on; None for what
            suits: 2 s, or less where measurements are cut short.
        cancel: once it is set, all is ended.

    Raises:
        Cancelled: it was set.
        RuntimeError: it did not come to its end; says what was written.
    """
    usual = _PATIENCE_SECONDS if at_most() > _PATIENCE_SECONDS else _SHORT_SECONDS
    patience = usual if patience_s is None else patience_s
    mark = f"failure-{secrets.token_hex(8)}"

    def tidy(_: list[Any]) -> None:
        end_managers(mark)
        remove_orphans()

    _be_in_the_fork_server()
    arguments = list(scenes), patience, mark
    try:
        return in_a_child(_send_each, *arguments, seconds=_LIMIT_S, tidy=tidy, cancel=cancel)
    except RuntimeError:
        if cancel is not None and cancel.is_set():
            raise Cancelled("cancelled while a failure was played") from None
        raise


def _be_in_the_fork_server() -> None:
    """If it is not there yet: whom it forks then has this module, and need not import it."""
    if "forkserver" in multiprocessing.get_all_start_methods():
        context = multiprocessing.get_context("forkserver")
        server: Any = forkserver._forkserver
        if __name__ not in server._preload_modules:
            context.set_forkserver_preload([*server._preload_modules, __name__])


def _send_each(
    send: Callable[[Any], None], scenes: list[Scene], patience_s: float, mark: str
) -> None:
    for outcome in play(scenes, patience_s, mark):
        send(outcome)
