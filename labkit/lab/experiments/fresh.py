"""Fresh processes: each has imported torch and labkit, and done nothing else yet.

Starting Python and importing torch takes a second or more. So one program, the server, does it
once and then forks a child whenever a fresh process is wanted, which takes milliseconds. Nothing is
ever loaded in the server: no loader, no fork server of multiprocessing, no thread. It is kept for
the next measurement of this process, until the process ends or its surroundings are others.

Requests and replies go through the server, which sees at once when either side is gone. Before it:
`child`. Its program: `fresh_server`. After it: `measuring`, which runs each repeat in such a
process.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import pickle
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import cloudpickle

from labkit.lab import child as program
from labkit.lab.experiments.fresh_server import ANEW

__all__ = ["Cancelled", "FreshProcesses", "TookTooLong"]

_LOOK_SECONDS = 0.05  # from one look for a cancellation to the next
_START_SECONDS = 120.0
_TIDY_SECONDS = 5.0
# SIGINT first: between two cells a kernel ignores it, and its programs would, too.
_PROGRAM = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from labkit.lab.experiments.fresh_server import serve; serve({requests}, {replies})"
)


class Cancelled(Exception):
    """A measurement was cancelled."""


class TookTooLong(RuntimeError):
    """A measurement went over its time limit."""


class FreshProcesses:
    """Calls functions in fresh processes; a context manager, at whose end all of them are gone.

    Args:
        cancel: once it is set, a call raises `Cancelled`.
    """

    def __init__(self, cancel: threading.Event | None = None) -> None:
        self._cancel = cancel or threading.Event()

    def __enter__(self) -> FreshProcesses:
        kept = _kept_server()
        if kept is not None:
            with suppress(RuntimeError):  # it has died meanwhile
                return self._served_by(kept)
        return self._served_by(_Server())

    def _served_by(self, server: _Server) -> FreshProcesses:
        self._server = server
        try:
            self.renew()  # a new one answers as soon as it has started
        except BaseException:
            server.end()
            raise
        return self

    def __exit__(self, error_type: object, *_: object) -> None:
        if error_type is not None:
            self._server.end()
            return
        try:
            self.renew()
        except Cancelled:  # too late: all is done
            self._server.end()
        except BaseException:
            self._server.end()
            raise
        else:
            _keep(self._server)

    def call(
        self, function: Callable[..., Any], arguments: Mapping[str, Any], limit_s: float, name: str
    ) -> Any:
        """What the function returns, or the exception that it raises.

        Args:
            function: goes there by reference if it can be imported, else by value.
            arguments: its keyword arguments.
            limit_s: seconds that it may take.
            name: of what is running, for the errors.

        Raises:
            Cancelled, TookTooLong, RuntimeError: the last if the process died.
        """
        self._server.requests.send_bytes(cloudpickle.dumps((function, dict(arguments))))
        succeeded, value = pickle.loads(self._reply(limit_s, name))
        if not succeeded:
            raise value
        return value

    def renew(self) -> None:
        """End the last call's process and all that it left; the next call has one of its own."""
        with suppress(BrokenPipeError):  # its end is told below, with what it said
            self._server.requests.send_bytes(ANEW)
        self._reply(_START_SECONDS, "the start of a process")

    def _reply(self, limit_s: float, name: str) -> bytes:
        deadline = time.monotonic() + limit_s
        try:
            while not self._server.replies.poll(_LOOK_SECONDS):
                if self._cancel.is_set():
                    raise Cancelled(f"{name} was cancelled")
                if time.monotonic() > deadline:
                    raise TookTooLong(
                        f"{name} was not done after {limit_s:g} s and was stopped: give it more "
                        "time (limit_s=…), or less to do"
                    )
            return self._server.replies.recv_bytes()
        except (EOFError, ConnectionResetError):
            said = self._server.said()[-2000:]
            raise RuntimeError(f"{name}: the process ended before it was done. {said}") from None


class _Server:
    """The main process's side of the server."""

    def __init__(self) -> None:
        self.surroundings = _surroundings()
        theirs, self.requests = multiprocessing.Pipe(duplex=False)
        self.replies, theirs_too = multiprocessing.Pipe(duplex=False)
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - `close` does
        fds = {"requests": theirs.fileno(), "replies": theirs_too.fileno()}
        try:
            with theirs, theirs_too:
                self.process = program.start(
                    [sys.executable, "-c", _PROGRAM.format(**fds)],
                    stdout=self.output.fileno(),
                    stderr=subprocess.STDOUT,
                    pass_fds=fds.values(),
                    OPENBLAS_NUM_THREADS="1",  # numpy would start threads, and then it is forked
                )
        except BaseException:
            self.close()
            raise

    def said(self) -> str:
        """What it and its children printed."""
        self.output.seek(0)
        return self.output.read().decode(errors="replace")

    def end(self) -> None:
        """End it and all that it started."""
        try:
            program.end(self.process)
        finally:
            self.close()

    def close(self) -> None:
        """Let go of what this process has of it; a server sees that, and ends."""
        self.requests.close()
        self.replies.close()
        self.output.close()


_kept: list[_Server] = []  # at most one: the latest that nobody uses


def _keep(server: _Server) -> None:
    if _kept:  # another thread was measuring, too
        server.end()
        return
    server.output.seek(0)
    server.output.truncate()
    _kept.append(server)


def _kept_server() -> _Server | None:
    """The one that is kept, if it would start in the same surroundings now."""
    try:
        server = _kept.pop()
    except IndexError:
        return None
    if server.surroundings == _surroundings() and server.process.poll() is None:
        return server
    if server.surroundings[0] == os.getpid():
        server.end()
    return None  # in a forked process: the server is the parent's


def _surroundings() -> tuple[Any, ...]:
    """What a program takes over from this process."""
    limits = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return (
        os.getpid(),
        os.getcwd(),
        dict(os.environ),
        os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None,
        [resource.getrlimit(getattr(resource, name)) for name in limits],
    )


@atexit.register
def _end_kept() -> None:
    for server in _kept:
        if server.surroundings[0] == os.getpid():
            server.close()
            server.process.wait(_TIDY_SECONDS)
