"""Ends a session when the process that wanted it has died: by SIGTERM, with its terminal, killed.

That process ends the session itself as long as it lives. A run that nobody listens to any more
would measure to its end and then wait for ever, and its dataset may not even come to an end.

Before it: `session`, which starts it first of all in the new session.
"""

from __future__ import annotations

import os
from multiprocessing.connection import Connection

from labkit.lab.exercises.session import end_session

__all__ = ["end_when_closed"]


def end_when_closed(alive: Connection) -> None:
    """Start a process that kills all of this session once the pipe's other end is closed.

    It is nobody's child, so that whoever waits for any child here does not wait for it.

    Args:
        alive: the reading end of a pipe; closed here.
    """
    child = os.fork()
    if not child:
        _watch(alive)
    os.waitpid(child, 0)
    alive.close()


def _watch(alive: Connection) -> None:
    """In the new process: does not return."""
    try:
        if not os.fork():
            _close_all_but(alive.fileno())  # the others would look open as long as this process is
            alive.poll(None)
            end_session(os.getsid(0))
    finally:
        os._exit(0)


def _close_all_but(descriptor: int) -> None:
    os.closerange(0, descriptor)
    os.closerange(descriptor + 1, os.sysconf("SC_OPEN_MAX"))
