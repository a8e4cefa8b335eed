"""The launcher's process (torchrun), which starts the ranks, and how all of them are ended.

torchrun puts each rank into a session of its own, so no process group holds them together. What
they have in common is an environment variable that all inherit: by it they are found.

Before it: `start` in the package. In the ranks: `member`.
"""

from __future__ import annotations

import os
import selectors
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from labkit.lab import child, need
from labkit.lab.ranks.member import FOLDER, STACK_SIGNAL, Greeting

__all__ = ["LaunchFailed", "Launched", "torchrun"]

_LOOK_SECONDS = 0.2
_TIDY_SECONDS = 2.0
_LIMIT_SECONDS = 10.0
_STACK_SECONDS = 1.0
_LAST_LINES = 12


class LaunchFailed(RuntimeError):
    """The ranks did not come; says what the launcher wrote."""


def torchrun(count: int) -> list[str]:
    """The command that starts this many ranks on this machine.

    It does what `--standalone` stands for, with the address in place of the name localhost, which
    cannot be looked up everywhere.
    """
    here = ("--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1")
    member = ("-m", "labkit.lab.ranks.member")
    return [
        *(sys.executable, "-m", "torch.distributed.run"),
        *(*here, f"--nproc-per-node={count}", *member),
    ]


class Launched:
    """A launcher that runs, and the socket at which its ranks report.

    Attributes:
        command: as a shell would take it.
    """

    def __init__(self, count: int, command: Sequence[str] | None = None) -> None:
        words = list(command or torchrun(count))
        self.command = shlex.join(["python", *words[1:]] if words[0] == sys.executable else words)
        self._folder = tempfile.TemporaryDirectory(prefix="labkit-ranks-")
        self._path = Path(self._folder.name)
        self._socket = socket.socket(socket.AF_UNIX)
        self._ended = False
        try:
            self._socket.bind(str(self._path / "notebook"))
            self._socket.listen(count)
            self._process = self._start(words)
        except BaseException:
            self._socket.close()
            self._folder.cleanup()
            raise

    def _start(self, words: Sequence[str]) -> subprocess.Popen[bytes]:
        threads = os.environ.get("OMP_NUM_THREADS", "1")  # or torchrun warns
        with (self._path / "output").open("wb") as output:
            told = {FOLDER: str(self._path), "OMP_NUM_THREADS": threads}
            told["TMPDIR"] = str(self._path)  # torchrun leaves a folder of logs when it is killed
            return child.start(words, output, output, (), **told)

    def greetings(
        self, count: int, seconds: float, told: Callable[[int], None] | None
    ) -> list[tuple[Connection, Greeting]]:
        """Wait for all ranks; gives their connections, by rank.

        Raises:
            LaunchFailed: the launcher ended before, or the time is up.
        """
        deadline = time.monotonic() + seconds
        greeted: list[tuple[Connection, Greeting]] = []
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._socket, selectors.EVENT_READ)
                while len(greeted) < count:
                    if told is not None:
                        told(len(greeted))
                    if selector.select(_LOOK_SECONDS):
                        greeted.append(self._greeting())
                    self._check(deadline, seconds)
        except BaseException:
            for ours, _ in greeted:
                ours.close()
            raise
        if told is not None:
            told(count)
        return sorted(greeted, key=lambda pair: pair[1].rank)

    def _greeting(self) -> tuple[Connection, Greeting]:
        ours = Connection(self._socket.accept()[0].detach())
        greeting: Greeting = ours.recv()
        return ours, greeting

    def _check(self, deadline: float, seconds: float) -> None:
        if self._process.poll() is not None:
            how = f"the launcher ended with exit code {self._process.returncode}"
        elif time.monotonic() > deadline:
            how = f"the ranks were not there within {seconds:g} s"
        else:
            return
        raise LaunchFailed(
            f"{how}. It wrote:\n{self._written()}\nThe command was: {self.command}\nRanks on one "
            "machine find each other at 127.0.0.1: is the loopback interface up?"
        )

    def _written(self) -> str:
        lines = (self._path / "output").read_text(errors="replace").strip().splitlines()
        return "\n".join(lines[-_LAST_LINES:]) or "(nothing)"

    def stack_of(self, pid: int) -> str:
        """Where a rank's main thread stands."""
        file = self._path / f"stack-{pid}"
        if not file.exists():
            return "(not known)"
        with suppress(ProcessLookupError):
            os.kill(pid, STACK_SIGNAL)
        deadline = time.monotonic() + _STACK_SECONDS
        while not file.read_text() and time.monotonic() < deadline:
            time.sleep(0.02)
        return file.read_text().strip() or "(not known)"

    def end(self) -> None:
        """End the launcher, the ranks and what they started; nothing stays, not even a file."""
        if self._ended:
            return
        self._ended = True
        self._socket.close()
        self._process.kill()  # first: it would take the end of a rank for a failure
        self._process.wait()
        _end_all(str(self._path))
        self._folder.cleanup()


def _end_all(folder: str) -> None:
    """multiprocessing's resource trackers get the time to remove the names that are left."""
    began = time.monotonic()
    while members := _members(folder):
        waited = time.monotonic() - began
        for member in members:
            with suppress(need("psutil").Error):
                if waited > _TIDY_SECONDS or "resource_tracker" not in " ".join(member.cmdline()):
                    member.kill()
        if waited > _LIMIT_SECONDS:
            return  # in the middle of a call to the system: it ends when that does
        need("psutil").wait_procs(members, timeout=0.05)


def _members(folder: str) -> list[Any]:
    """The live processes that were started with this folder, and those that they started."""
    psutil = need("psutil")
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get(FOLDER) == folder:  # a zombie has none
                found.append(process)
    return found
