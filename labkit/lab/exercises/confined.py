"""Run a check in a process of its own, so that nothing a learner writes can hurt the kernel.

The answer goes there by value: a function from a notebook's cell has no module to be imported. The
process is forked by a fork server, which has torch imported already and no threads that could hold
a lock. It is the first of a session of its own, and `session` ends them all.

Before it: `check` in the package. In the process: `trial`. After it: `report`.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import pickle
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import connection, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Literal

import cloudpickle

from labkit.lab.exercises.session import end_session
from labkit.startup import prepare_start_method, starting
from labkit.worker import accept_interrupts

__all__ = ["Ended", "Place", "run_in_child"]

_START_SECONDS = 120.0  # for importing torch on a busy machine; the limit counts from then on
_KEPT_BYTES = 4000  # of what it prints
_LOOK_SECONDS = 0.05  # how often it is looked for a cancellation
_STACK_SIGNAL = getattr(signal, "SIGRTMIN", 0) + 9
_READY, _FINISHED = "labkit: ready", "labkit: finished"


@dataclass(frozen=True)
class Place:
    """A line of a program."""

    file: str
    line: int
    function: str


@dataclass
class Ended:
    """What came of it.

    Attributes:
        how: "finished", or ended by the "time limit", or "cancelled", or it "died".
        messages: what it sent, in order.
        printed: what it and its processes wrote to stdout and stderr; a lot is cut short.
        exit_code: if it died: negative for a signal's number, None if unknown.
        stack: at the time limit, where it stood, innermost first.
    """

    how: Literal["finished", "time limit", "cancelled", "died"] = "died"
    messages: list[Any] = field(default_factory=list)
    printed: str = ""
    exit_code: int | None = None
    stack: list[Place] = field(default_factory=list)


def run_in_child(
    work: Callable[..., None],
    *arguments: Any,
    seconds: float,
    messages: list[Any] | None = None,
    cancel: threading.Event | None = None,
) -> Ended:
    """Call `work(send, *arguments)` in a new process, and end that when it is done or late.

    Args:
        work: may be interrupted at any point. What it gives to `send` arrives in `messages`.
        *arguments: for it.
        seconds: the limit, from the moment when the process has begun to work.
        messages: a list to collect them in, for a caller that wants them even if this raises.
        cancel: once it is set, the process is ended.

    Raises:
        Exception: what `cloudpickle` raises if it cannot pickle an argument.
    """
    payload = cloudpickle.dumps((work, arguments))
    methods = multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    prepare_start_method(context)
    pipes = [context.Pipe(duplex=False) for _ in range(3)]  # messages, output, stack
    ours, theirs = [pipe[0] for pipe in pipes], [pipe[1] for pipe in pipes]
    process = context.Process(target=_work, args=(payload, *theirs))
    ended = Ended(messages=[] if messages is None else messages)
    try:
        with starting():
            process.start()
        for end in theirs:
            end.close()
        return _Listener(process, ended, *ours).listen(seconds, cancel)
    finally:
        if process.pid is not None:
            _end(process)
            process.join()
            process.close()
        for end in ours + theirs:
            end.close()


def _end(process: BaseProcess) -> None:
    """End it and all that it started."""
    assert process.pid is not None
    if process.exitcode is None:
        process.kill()
    end_session(process.pid)


class _Listener:
    """The kernel's side: takes what comes, until the process is done or its time is up."""

    def __init__(
        self,
        process: BaseProcess,
        ended: Ended,
        messages: Connection,
        output: Connection,
        stack: Connection,
    ) -> None:
        self._process, self._messages = process, messages
        self._output, self._stack = output, stack
        self._kept, self._more = b"", 0
        self._ended = ended

    def listen(self, seconds: float, cancel: threading.Event | None = None) -> Ended:
        self._until_done(seconds, cancel)
        if self._ended.how == "time limit":
            self._ended.stack = self._where_it_stands()
        elif self._ended.how == "died":
            self._process.join(2)  # it may have closed its end of the pipe only
            self._ended.exit_code = self._process.exitcode
        _end(self._process)
        while self._output.poll(0) and self._read_output():
            pass
        self._ended.printed = self._printed()
        return self._ended

    def _until_done(self, seconds: float, cancel: threading.Event | None) -> None:
        deadline = time.monotonic() + _START_SECONDS
        longest = _START_SECONDS if cancel is None else _LOOK_SECONDS
        sources: list[Any] = [self._messages, self._output, self._process.sentinel]
        while True:
            ready = connection.wait(sources, max(0, min(deadline - time.monotonic(), longest)))
            if self._output in ready and not self._read_output():
                sources.remove(self._output)
            if self._messages in ready or self._process.sentinel in ready:
                message = self._next_message()
                if message == _READY:
                    deadline = time.monotonic() + seconds
                elif message == _FINISHED or message is None:
                    self._ended.how = "died" if message is None else "finished"
                    return
                else:
                    self._ended.messages.append(message)
            if cancel is not None and cancel.is_set():
                self._ended.how = "cancelled"
                return
            if time.monotonic() > deadline:  # also if it prints without end
                self._ended.how = "time limit"
                return

    def _next_message(self) -> Any:
        """None if there will be none."""
        try:
            return self._messages.recv() if self._messages.poll(0) else None
        except (EOFError, OSError):
            return None

    def _read_output(self) -> bool:
        data = os.read(self._output.fileno(), 1 << 16)
        room = _KEPT_BYTES - len(self._kept)
        self._kept += data[:room]
        self._more += len(data[room:])
        return bool(data)

    def _printed(self) -> str:
        text = self._kept.decode(errors="replace")
        return text + (f"\n… and {self._more:,} more bytes" if self._more else "")

    def _where_it_stands(self) -> list[Place]:
        with suppress(ProcessLookupError, AttributeError):
            os.kill(self._process.pid or 0, _STACK_SIGNAL)
        text = b""
        while self._stack.poll(0.5) and (data := os.read(self._stack.fileno(), 1 << 16)):
            text += data
        frames = re.findall(r'File "(.+)", line (\d+) in (.+)', text.decode(errors="replace"))
        return [Place(file, int(line), function) for file, line, function in frames]


def _work(payload: bytes, messages: Connection, output: Connection, stack: Connection) -> None:
    """In the new process."""
    os.setsid()
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    output.close()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    _use_own_resource_tracker()
    if hasattr(faulthandler, "register"):
        faulthandler.register(_STACK_SIGNAL, file=stack, all_threads=False)
    work, arguments = pickle.loads(payload)
    accept_interrupts()
    messages.send(_READY)
    work(messages.send, *arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    messages.send(_FINISHED)
    signal.pause()  # to be ended with its session: a tidy exit could wait for its children for ever


def _use_own_resource_tracker() -> None:
    """Names in shared memory are then removed when this session ends, not when the kernel does."""
    tracker: Any = resource_tracker._resource_tracker
    if tracker._fd is not None:
        os.close(tracker._fd)
    tracker._fd = tracker._pid = None
