"""A gate: workers report that they are at a stage, and wait there until they are told to go on.

It is a socket with a name (in Linux's abstract namespace, so no file stays), for a worker finds it
by that name under every start method, and a connection holds one worker. Before it: `loading`,
whose hooks report. After it: `running`, which waits for them and tells them.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Gate", "Guest", "Hook", "settle"]

_WAIT_SECONDS = 60.0  # a spawned worker imports torch first, on a busy machine


@dataclass(frozen=True)
class Hook:
    """The worker's side; it can be pickled."""

    address: str

    def report(self, stage: str) -> None:
        """Say that this process is at that stage, and go on."""
        self._connect(stage).close()

    def wait(self, stage: str) -> str:
        """Say so, and wait for an order."""
        with self._connect(stage) as connection:
            return connection.recv(100).decode()

    def _connect(self, stage: str) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(f"\0{self.address}")
        connection.send(f"{stage} {os.getpid()}".encode())
        return connection


@dataclass
class Guest:
    """A worker that has reported."""

    stage: str
    pid: int
    connection: socket.socket

    def tell(self, order: str) -> None:
        """Give an order to one that waits; nothing, if it did not wait or is gone."""
        with suppress(OSError):
            self.connection.send(order.encode())


class Gate:
    """The side of whoever hits."""

    def __init__(self) -> None:
        self.hook = Hook(f"labkit-gate-{os.getpid()}-{secrets.token_hex(4)}")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(f"\0{self.hook.address}")
        self._socket.listen(16)
        self._guests: list[Guest] = []

    def wait_for(self, stage: str, count: int) -> list[Guest]:
        """The workers at that stage, as soon as there are so many.

        Raises:
            TimeoutError: they do not come.
        """
        deadline = time.monotonic() + _WAIT_SECONDS
        while True:
            here = [guest for guest in self._guests if guest.stage == stage]
            if len(here) >= count:
                return here
            self._socket.settimeout(max(0.01, deadline - time.monotonic()))
            connection, _ = self._socket.accept()
            said, pid = connection.recv(100).decode().rsplit(" ", 1)
            self._guests.append(Guest(said, int(pid), connection))

    def open(self, order: str = "go on") -> None:
        """Let all who wait go on."""
        for guest in self._guests:
            guest.tell(order)

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self.open()
        for guest in self._guests:
            guest.connection.close()
        self._socket.close()


def settle(pid: int) -> None:
    """Wait until every thread of a process sleeps: it has done what there was to do, or waits for
    room in a socket that nobody reads.
    """
    deadline = time.monotonic() + _WAIT_SECONDS
    quiet = 0
    while quiet < 3 and time.monotonic() < deadline:
        states = [_state(task / "stat") for task in Path(f"/proc/{pid}/task").iterdir()]
        quiet = quiet + 1 if set(states) <= {"S"} else 0
        time.sleep(0.005)


def _state(stat: Path) -> str:
    try:
        return stat.read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "S"  # that thread has just ended
