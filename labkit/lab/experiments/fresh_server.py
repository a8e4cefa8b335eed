"""The program that forks fresh processes, and passes requests on to them and their replies back.

Before it: `fresh`, which starts it and speaks with it. It has imported torch and labkit, and never
uses them: what a child finds is as good as new.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import traceback
from contextlib import suppress
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.pool import ExceptionWithTraceback  # type: ignore[attr-defined]
from typing import Any

import cloudpickle

from labkit.lab import need

__all__ = ["ANEW", "serve"]

ANEW = b""
"""A request that the process be given up. The reply, once it is gone, is the same."""
_TIDY_SECONDS = 5.0


def serve(requests_fd: int, replies_fd: int) -> None:
    """The server's program: pass requests on to a child, and replies back."""
    child = None
    with (
        Connection(requests_fd, writable=False) as requests,
        Connection(replies_fd, readable=False) as replies,
    ):
        try:
            while True:
                ready = wait([requests] if child is None else [requests, *child.signs])
                if requests in ready:
                    request = requests.recv_bytes()
                    if request == ANEW:
                        if child is not None:
                            child.end()
                        child = None
                        _kill_the_rest()
                        replies.send_bytes(ANEW)
                    else:
                        child = child or _Child(requests, replies)
                        child.connection.send_bytes(request)
                elif child is not None:
                    reply = child.reply()
                    if reply is None:
                        reply, child = child.death(), None
                    replies.send_bytes(reply)
        except (EOFError, BrokenPipeError):  # nobody is there any more
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            os.killpg(0, signal.SIGINT)
        except KeyboardInterrupt:  # which the child got, too
            pass
        finally:
            if child is not None:
                child.end()
            os.killpg(0, signal.SIGKILL)  # this process last, with whatever a function left behind


def _kill_the_rest() -> None:
    """Kill what a child left behind: all of this process group but the server."""
    psutil = need("psutil")
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            if process.pid != os.getpid() and os.getpgid(process.pid) == os.getpgrp():
                process.kill()


class _Child:
    """The server's side of a fresh process."""

    def __init__(self, *of_the_server: Connection) -> None:
        self.connection, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("fork")
        others = [*of_the_server, self.connection]
        self.process = context.Process(target=_work, args=(theirs, others))
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
