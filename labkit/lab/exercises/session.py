"""End every process of a session: a learner's program, and all that it started.

Before it: `confined`, whose process is the first of a session of its own. A process stays in its
session whatever becomes of the one that started it; only `setsid` leaves it.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any

from labkit.lab import need

__all__ = ["end_session"]

_TIDY_SECONDS = 2.0
_LIMIT_SECONDS = 10.0


def end_session(session: int) -> None:
    """Kill the session's processes, but not this one, and wait until they are gone.

    multiprocessing's resource tracker ends by itself when nobody is left who holds its pipe, and
    then removes the names in shared memory that they left: it gets the time for that.
    """
    started = time.monotonic()
    while members := _members(session):
        waited = time.monotonic() - started
        for process in members:
            if waited > _TIDY_SECONDS or not _is_tracker(process):
                with suppress(need("psutil").Error):
                    process.kill()
        if waited > _LIMIT_SECONDS:
            return  # in the middle of a call to the system: it ends when that does
        time.sleep(0.005)


def _members(session: int) -> list[Any]:
    psutil = need("psutil")
    found = []
    for pid in psutil.pids():
        with suppress(psutil.Error, OSError):
            if os.getsid(pid) == session and pid != os.getpid():
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
    return found


def _is_tracker(process: Any) -> bool:
    with suppress(need("psutil").Error):
        return "multiprocessing.resource_tracker" in " ".join(process.cmdline())
    return False
