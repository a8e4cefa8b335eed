"""Functions that `test_experiments` and `test_panels` measure, quick to import for a child."""

import multiprocessing.forkserver
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path


def double(value: float) -> float:
    return 2 * value


def pid() -> int:
    return os.getpid()


def what_is_not_fresh() -> str:
    """What this process has done before, if anything."""
    before = []
    if hasattr(what_is_not_fresh, "called"):
        before.append("called")
    if multiprocessing.forkserver._forkserver._forkserver_pid is not None:
        before.append("fork server")
    if threading.active_count() > 1:
        before.append("threads")
    what_is_not_fresh.called = True
    return ", ".join(before)


def hang(note: str) -> float:
    """Start a process, write both pids down, and never come back."""
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(1000)"])
    part = Path(note + ".part")
    part.write_text(f"{os.getpid()} {child.pid}")
    part.rename(note)
    time.sleep(1000)
    return 0.0


def leave_a_process() -> tuple[int, int]:
    """Start a process that nobody ends; return the pids of the server and of it."""
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(1000)"])
    return os.getppid(), child.pid


def fail(kind: str) -> float:
    if kind == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "cannot be pickled":
        raise type("Odd", (Exception,), {"held": threading.Lock()})("odd")
    raise KeyError("a word of its own")


def wait_for_pids(note: Path) -> list[int]:
    """The pids that `hang` wrote down."""
    deadline = time.monotonic() + 60
    while not note.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return [int(pid) for pid in note.read_text().split()]
