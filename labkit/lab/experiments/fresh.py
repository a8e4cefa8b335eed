"""Fresh processes: each has imported torch and labkit, and done nothing else yet.

Starting Python and importing torch takes a second or more. So one program, the server, does it
once and then forks a child whenever a fresh process is wanted, which takes milliseconds. Nothing is
ever loaded in the server: no loader, no fork server of multiprocessing, no thread.

Requests and replies go through the server, which sees at once when either side is gone. Before it:
`child`. After it: `measuring`, which runs each repeat in such a process.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.pool import ExceptionWithTraceback  # type: ignore[attr-defined]
from typing import Any

import cloudpickle

from labkit.lab import child as program

__all__ = ["Cancelled", "FreshProcesses", "TookTooLong", "serve"]

_LOOK_SECONDS = 0.05  # how often it is looked for a cancellation
_START_SECONDS = 120.0
_TIDY_SECONDS = 5.0
_ANEW = b""  # a request that the process be given up
# SIGINT first: between two cells a kernel ignores it, and its programs would, too.
_PROGRAM = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from labkit.lab.experiments.fresh import serve; serve({fd})"
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
        self._connection, theirs = multiprocessing.Pipe()
        self._output = tempfile.TemporaryFile()
        try:
            with theirs:
                self._server = program.start(
                    [sys.executable, "-c", _PROGRAM.format(fd=theirs.fileno())],
                    stdout=self._output.fileno(),
                    stderr=subprocess.STDOUT,
                    pass_fds=[theirs.fileno()],
                    OPENBLAS_NUM_THREADS="1",  # numpy would start threads, and then it is forked
                )
        except BaseException:
            self._close()
            raise
        try:
            self._reply(_START_SECONDS, "the start of a process")
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, error_type: object, *_: object) -> None:
        try:
            if error_type is None:
                self._connection.close()  # the server sees the end
                with suppress(subprocess.TimeoutExpired):
                    self._server.wait(_TIDY_SECONDS)
            program.end(self._server)
        finally:
            self._close()

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
        self._connection.send_bytes(cloudpickle.dumps((function, dict(arguments))))
        succeeded, value = pickle.loads(self._reply(limit_s, name))
        if not succeeded:
            raise value
        return value

    def renew(self) -> None:
        """Let the next call have a process of its own; until then it is the last call's."""
        self._connection.send_bytes(_ANEW)

    def _reply(self, limit_s: float, name: str) -> bytes:
        deadline = time.monotonic() + limit_s
        try:
            while not self._connection.poll(_LOOK_SECONDS):
                if self._cancel.is_set():
                    raise Cancelled(f"{name} was cancelled")
                if time.monotonic() > deadline:
                    raise TookTooLong(
                        f"{name} was not done after {limit_s:g} s and was stopped: give it more "
                        "time (limit_s=…), or less to do"
                    )
            return self._connection.recv_bytes()
        except (EOFError, ConnectionResetError):
            self._output.seek(0)
            said = self._output.read().decode(errors="replace")[-2000:]
            raise RuntimeError(f"{name}: the process ended before it was done. {said}") from None

    def _close(self) -> None:
        self._connection.close()
        self._output.close()


def serve(fd: int) -> None:
    """The server's program: pass requests on to a child, and replies back."""
    child = None
    with Connection(fd) as user:
        try:
            user.send_bytes(b"ready")
            while True:
                ready = wait([user] if child is None else [user, *child.signs])
                if user in ready:
                    request = user.recv_bytes()
                    if request == _ANEW:
                        if child is not None:
                            child.end()
                        child = None
                    else:
                        child = child or _Child(user)
                        child.connection.send_bytes(request)
                elif child is not None:
                    reply = child.reply()
                    if reply is None:
                        reply, child = child.death(), None
                    user.send_bytes(reply)
        except EOFError:  # nobody is there any more
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            os.killpg(0, signal.SIGINT)
        except KeyboardInterrupt:  # which the child got, too
            pass
        finally:
            if child is not None:
                child.end()
            os.killpg(0, signal.SIGKILL)  # this process last, with whatever a function left behind


class _Child:
    """The server's side of a fresh process."""

    def __init__(self, user: Connection) -> None:
        self.connection, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("fork")
        self.process = context.Process(target=_work, args=(theirs, [user, self.connection]))
        with theirs:
            self.process.start()

    @property
    def signs(self) -> list[Any]:
        """What `wait` waits for: a reply, or its death."""
        return [self.connection, self.process.sentinel]

    def reply(self) -> bytes | None:
        """What it sent; None: it is dead."""
        with suppress(EOFError, ConnectionResetError):
            if self.connection.poll():
                return self.connection.recv_bytes()
        return None

    def death(self) -> bytes:
        """End it, and say of what it died."""
        self.process.join(_TIDY_SECONDS)
        error = RuntimeError(
            f"the process in which it ran died (exit code {self.process.exitcode}; a negative one "
            "is the number of a signal: −9 often means that memory ended)"
        )
        self.end()
        return pickle.dumps((False, error))

    def end(self) -> None:
        """Wait for its end, which comes when there are no more requests; force it in the end."""
        self.connection.close()
        self.process.join(_TIDY_SECONDS)
        if self.process.exitcode is None:
            self.process.kill()
        self.process.join()
        self.process.close()


def _work(requests: Connection, of_others: list[Connection]) -> None:
    """The fresh process's program."""
    for connection in of_others:
        connection.close()
    try:
        while True:
            requests.send_bytes(_do(requests.recv_bytes()))
    except (EOFError, BrokenPipeError):
        pass
    finally:
        # Else they would still be there for a moment when the process is gone.
        forkserver._forkserver._stop()  # type: ignore[attr-defined]
        resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]


def _do(request: bytes) -> bytes:
    """Call what is asked for; returns whether it succeeded and what came of it, pickled."""
    try:
        function, arguments = pickle.loads(request)
        reply: bytes = cloudpickle.dumps((True, function(**arguments)))
    except Exception as error:
        try:
            reply = pickle.dumps((False, ExceptionWithTraceback(error, error.__traceback__)))
            pickle.loads(reply)
        except Exception:  # its class does not let itself be pickled
            reply = pickle.dumps((False, RuntimeError("".join(traceback.format_exception(error)))))
    return reply
