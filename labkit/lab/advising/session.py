"""A process of its own for what the user's code does, so that nothing of it can hurt this one.

A dataset may hang, crash, print, take all memory, or keep what it opened. So it is loaded, traced
and measured in a process that is the first of a session, and in the end all of the session is
killed: workers, fork servers, whatever the dataset started. If this process dies before it can do
that, a small process there does it (`orphaned`).

The process comes from a fork server, without threads and locks of this one, and the work goes
there by value. Where that cannot be (a dataset that holds an open file, or most of the memory) it
is forked from this process. If PyTorch has computed with several threads here, it may have one only
there: the threads of OpenMP do not survive a fork, and it would wait for them for ever.

Before it: `advise`. In the process: `investigation`.
"""

from __future__ import annotations

import faulthandler
import io
import multiprocessing
import os
import pickle
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import connection, forkserver, resource_tracker
from multiprocessing.connection import Connection
from typing import Any

import torch

from labkit.lab.advising.orphaned import end_when_closed
from labkit.lab.exercises.session import end_session
from labkit.startup import prepare_start_method, starting
from labkit.worker import accept_interrupts

__all__ = ["Ended", "run"]

_LOOK_SECONDS = 0.05
_START_SECONDS = 60.0
_KEPT_BYTES = 4000  # of what is printed
_STACK_SIGNAL = getattr(signal, "SIGRTMIN", 0) + 9
_FINISHED, _FAILED = "finished", "failed"


@dataclass
class Ended:
    """What came of it.

    Attributes:
        how: "finished", "failed" by an exception, "silent" for too long, "cancelled", or "died".
        error: the exception's text, where it failed.
        stack: where it stood, where it was silent: its latest lines of code.
        exit_code: where it died; a negative one is the number of a signal.
        printed: the beginning of what the process and its workers wrote to stdout and stderr,
        printed_bytes: and how much that was.
    """

    how: str = "died"
    error: str = ""
    stack: list[str] = field(default_factory=list)
    exit_code: int | None = None
    printed: str = ""
    printed_bytes: int = 0


def run(
    work: Callable[..., None],
    *arguments: Any,
    payload: bytes | None,
    threads: int,
    told: Callable[[Any], None],
    silent_seconds: float,
    cancel: threading.Event | None = None,
) -> Ended:
    """Call `work(tell, *arguments)` in a new process, and kill its session in the end.

    Args:
        work: may be killed at any point. What it gives to `tell` comes to `told`, here.
        *arguments: for it.
        payload: both of them by value (`payload_of`); None to fork this process.
        threads: of PyTorch, there.
        told: called in this thread.
        silent_seconds: after so long without a word from it, it is given up.
        cancel: once it is set, the process is ended.

    Raises:
        BaseException: such as KeyboardInterrupt; the session is gone then, too.
    """
    method = "fork" if payload is None else "forkserver"
    context: Any = multiprocessing.get_context(method)
    with _main_is_hidden(method):  # the server would run it, too
        prepare_start_method(context)
    pipes = [context.Pipe(duplex=False) for _ in range(3)]  # messages, output, stack
    ours, theirs = [pipe[0] for pipe in pipes], [pipe[1] for pipe in pipes]
    alive, kept_open = context.Pipe(duplex=False)  # closed when this process dies
    inherited = kept_open if payload is None else None
    what = (work, arguments) if payload is None else payload
    process = context.Process(target=_work, args=(what, threads, alive, inherited, *theirs))
    try:
        with starting(), _main_is_hidden(method):
            process.start()
        for end in [alive, *theirs]:
            end.close()
        return _Listener(process, told, *ours).listen(silent_seconds, cancel)
    finally:
        if process.pid is not None:
            process.kill()
            end_session(process.pid)
            process.join()
            process.close()
        for end in [alive, kept_open, *ours, *theirs]:
            end.close()


@contextmanager
def _main_is_hidden(method: str) -> Iterator[None]:
    """So that a fork server's process does not run the user's script again, which may have no
    `if __name__ == "__main__"`; what it defines goes there by value.
    """
    main = sys.modules["__main__"]
    kept = {name: main.__dict__.get(name) for name in ("__file__", "__spec__")}
    if method == "fork":
        yield
        return
    for name in kept:
        setattr(main, name, None)
    try:
        yield
    finally:
        for name, value in kept.items():
            if value is None and name == "__file__":
                del main.__file__
            else:
                setattr(main, name, value)


class _Listener:
    """This process's side: takes what comes, until the work is done or given up."""

    def __init__(
        self,
        process: Any,
        told: Callable[[Any], None],
        messages: Connection,
        output: Connection,
        stack: Connection,
    ) -> None:
        self._process, self._told = process, told
        self._messages, self._output, self._stack = messages, output, stack
        self._kept = b""
        self._ended = Ended()

    def listen(self, silent_seconds: float, cancel: threading.Event | None) -> Ended:
        ended = self._ended
        self._until_done(silent_seconds, cancel)
        if ended.how == "silent":
            ended.stack = self._where_it_stands()
        if ended.how == "died":
            self._process.join(2)
            ended.exit_code = self._process.exitcode
        self._process.kill()
        end_session(self._process.pid)
        while self._output.poll(0) and self._read_output():
            pass
        ended.printed = self._kept.decode(errors="replace")
        return ended

    def _until_done(self, silent_seconds: float, cancel: threading.Event | None) -> None:
        heard = time.monotonic() + _START_SECONDS  # which importing may take on a busy machine
        sources: list[Any] = [self._messages, self._output, self._process.sentinel]
        while True:
            ready = connection.wait(sources, _LOOK_SECONDS)
            if self._output in ready and not self._read_output():
                sources.remove(self._output)
            if self._messages in ready or self._process.sentinel in ready:
                heard = time.monotonic()
                if self._is_last():
                    return
            if cancel is not None and cancel.is_set():
                self._ended.how = "cancelled"
                return
            if time.monotonic() - heard > silent_seconds:
                self._ended.how = "silent"
                return

    def _is_last(self) -> bool:
        try:
            if not self._messages.poll(0):
                return True  # it died
            kind, message = self._messages.recv()
        except (EOFError, OSError):
            return True
        if kind in (_FINISHED, _FAILED):
            self._ended.how, self._ended.error = kind, message
            return True
        self._told(message)
        return False

    def _read_output(self) -> bool:
        data = os.read(self._output.fileno(), 1 << 16)
        self._kept += data[: _KEPT_BYTES - len(self._kept)]
        self._ended.printed_bytes += len(data)
        return bool(data)

    def _where_it_stands(self) -> list[str]:
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, _STACK_SIGNAL)
        text = b""
        while self._stack.poll(0.5) and (data := os.read(self._stack.fileno(), 1 << 16)):
            text += data
        frames = re.findall(r'File "(.+)", line (\d+) in (.+)', text.decode(errors="replace"))
        return [f"{file}, line {line}, in {function}" for file, line, function in frames[:4]]


def _work(
    what: bytes | tuple[Any, Any],
    threads: int,
    alive: Connection,
    inherited: Connection | None,
    messages: Connection,
    output: Connection,
    stack: Connection,
) -> None:
    """In the new process."""
    os.setsid()
    if inherited is not None:
        inherited.close()
    end_when_closed(alive)
    _redirect(output)
    _forget_servers()
    if hasattr(faulthandler, "register"):
        faulthandler.register(_STACK_SIGNAL, file=stack, all_threads=False)
    accept_interrupts()
    try:
        torch.set_num_threads(threads)
        work, arguments = pickle.loads(what) if isinstance(what, bytes) else what
        work(lambda message: messages.send(("told", message)), *arguments)
        last = _FINISHED, ""
    except BaseException:  # the user's code may raise SystemExit, too
        last = _FAILED, traceback.format_exc()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    messages.send(last)
    signal.pause()  # to be ended with its session: a tidy exit could wait for ever


def _redirect(output: Connection) -> None:
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    output.close()
    # A notebook's are objects of their own, which would still write into its cell.
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), "utf-8", line_buffering=True)
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), "utf-8", line_buffering=True)


def _forget_servers() -> None:
    """Those of the process that this one comes from: this session is to have its own, and end them.

    Names in shared memory are removed when it ends.
    """
    tracker: Any = resource_tracker._resource_tracker
    if tracker._fd is not None:
        os.close(tracker._fd)
    tracker._fd = tracker._pid = None
    server: Any = forkserver._forkserver
    for name in ("_forkserver_alive_fd", "_inherited_fds"):
        setattr(server, name, None)
    server._forkserver_address = server._forkserver_pid = None
