"""One worker as the main process knows it: its process, its channel, its logbook, its memory.

Before it: `pool.py`, which has several. After it: `channel.py` and `worker.py`.
Mirrors: torch/utils/data/dataloader.py (what `_MultiProcessingDataLoaderIter` keeps of a worker).
"""

from __future__ import annotations

import multiprocessing
import os
import selectors
import signal
import sys
import threading
import time
import traceback
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any

from labkit.channel import Channel, handed_over
from labkit.logbook import Logbook
from labkit.messages import Printed, Unreadable
from labkit.recording import Source, end_of, make_traceable
from labkit.sharing import PageLocker, Segment, loads, make_receiver
from labkit.spans import span
from labkit.startup import Startup, starting
from labkit.worker import STACK_SIGNAL, worker_loop

__all__ = ["WorkerHandle"]

_EXIT_SECONDS = 5.0  # for a worker that has closed its channel: it is ending already
_STACK_SECONDS = 0.5
_START_DESCRIPTORS = 6  # that multiprocessing opens to start a process, at most

# Waits for a few channels now and then. Needs no descriptor of its own, of which none may be left.
_WaitingSelector = getattr(selectors, "PollSelector", selectors.SelectSelector)


class WorkerHandle:
    """One worker as the main process knows it.

    Args:
        worker_id: its number.
        startup, context, source, with_stacks, page_locker: as of the `WorkerPool`.

    Attributes:
        sending: is held while something is written to the channel.
    """

    def __init__(
        self,
        worker_id: int,
        startup: Startup,
        context: BaseContext,
        source: Source,
        with_stacks: bool,
        page_locker: PageLocker | None,
    ) -> None:
        self.id = worker_id
        self.source = source
        self.sending = threading.Lock()
        self.stack_pipe: Connection | None = None
        self._can_tell_stack = False
        their_pipe: Connection | None = None
        with ExitStack() as on_failure, ExitStack() as once_handed_over:
            self.channel, theirs = Channel.pair()
            on_failure.callback(self._close_pipes)
            once_handed_over.callback(theirs.close)
            memory = Segment.create(Logbook.NBYTES)
            once_handed_over.callback(memory.close)
            self.logbook = Logbook(memory)
            self.logbook.head.batch = -1
            if with_stacks and hasattr(signal, "SIGRTMIN"):
                self.stack_pipe, their_pipe = multiprocessing.Pipe(duplex=False)
                once_handed_over.callback(their_pipe.close)
            self.process: BaseProcess = context.Process(  # type: ignore[attr-defined]
                target=worker_loop,
                args=(theirs, worker_id, startup, memory, their_pipe),
                name=f"DataLoader worker {worker_id}",
                daemon=True,  # ended with this process, and may not have children of its own
            )
            _check_descriptors_are_left()
            with starting(), handed_over(theirs):
                self.process.start()
            on_failure.pop_all()
        assert self.process.pid is not None
        self.pid: int = self.process.pid
        make_traceable(self)
        self.receiver = make_receiver(
            startup.sharing_strategy, f"worker {worker_id} (pid {self.pid})", page_locker
        )

    def take(self) -> list[Any]:
        """The messages that have arrived; what was printed is printed.

        One that cannot be read is the last: an `Unreadable`.
        """
        messages: list[Any] = []
        while self.channel.inbox:
            try:
                message = self._take_one()
            except Exception as error:  # such as a batch that cannot be unpickled here
                return [*messages, Unreadable(_without_locals(error))]
            if isinstance(message, Printed):
                self._print(message)
            else:
                messages.append(message)
        return messages

    def _take_one(self) -> Any:
        payload, fds = self.channel.inbox.popleft()
        with span("rebuild", batch=-1) as rebuilding:
            message = loads(payload, fds, self.receiver)
            rebuilding.message_bytes = len(payload)
            if isinstance(message, tuple):
                rebuilding.batch = message[0]
        return message

    def _print(self, printed: Printed) -> None:
        stream = sys.stdout if printed.stream == "stdout" else sys.stderr
        for line in printed.text.splitlines():
            print(f"[worker {self.id}] {line}", file=stream)

    def wait_for_exit(self) -> int | None:
        """Its exit code. The channel ends just before the process does; None if it does not."""
        self.process.join(_EXIT_SECONDS)
        return self.process.exitcode

    def stack(self) -> str:
        """See `WorkerPool.stack`."""
        pipe = self.stack_pipe
        if pipe is None:
            return ""
        if not self._can_tell_stack:
            if not pipe.poll(0):
                return ""  # not started yet: the signal would end it
            try:
                pipe.recv_bytes()
            except EOFError:
                return ""
            self._can_tell_stack = True
        text = b""
        with suppress(ProcessLookupError):
            os.kill(self.pid, STACK_SIGNAL)
            while pipe.poll(_STACK_SECONDS) and (piece := os.read(pipe.fileno(), 1 << 16)):
                text += piece
        return text.decode(errors="replace")

    def drain(self, deadline: float) -> None:
        """Read until the worker's end of the channel is closed, so that nothing blocks it."""
        # Whatever goes wrong in it, the worker is to be ended: it is not read any further then.
        with suppress(Exception), _WaitingSelector() as selector:
            selector.register(self.channel, selectors.EVENT_READ)
            while selector.select(max(0.0, deadline - time.monotonic())):
                self.channel.read()
                self.take()  # batches that nobody wants; prints are printed

    def end(self) -> None:
        """Reap the process, by force if it must be, and close all that belongs to it."""
        try:
            if self.process.exitcode is None:
                self.process.kill()
                self.process.join(_EXIT_SECONDS)  # the system may hold it, in a dead file system
            if self.process.exitcode is not None:
                self.process.close()
        finally:
            end_of(self)
            del self.logbook  # and its memory, also where a traceback keeps this object
            self.receiver.close(self.pid)
            self._close_pipes()

    def _close_pipes(self) -> None:
        self.channel.close()
        if self.stack_pipe is not None:
            self.stack_pipe.close()


def _check_descriptors_are_left() -> None:
    """Raise an OSError if a process could not be started for lack of descriptors. It would be
    raised then, too; but multiprocessing leaves behind those that it had opened before.
    """
    held: list[int] = []
    try:
        while len(held) < _START_DESCRIPTORS:
            held.append(os.open(os.devnull, os.O_RDONLY))
    finally:
        for fd in held:
            os.close(fd)


def _without_locals(error: Exception) -> Exception:
    """The same error, its traceback for reading only. It waits until the batches that came before
    are given, and frames hold messages, descriptors and batches.
    """
    below = error.__traceback__.tb_next if error.__traceback__ is not None else None
    traceback.clear_frames(below)
    return error.with_traceback(below)
