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
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any

from labkit.channel import Channel, handed_over
from labkit.logbook import Logbook
from labkit.messages import Printed
from labkit.recording import Source, end_of, make_traceable
from labkit.sharing import PageLocker, Segment, loads, make_receiver
from labkit.spans import span
from labkit.startup import Startup, starting
from labkit.worker import STACK_SIGNAL, worker_loop

__all__ = ["WorkerHandle"]

_EXIT_SECONDS = 5.0  # for a worker that has closed its channel: it is ending already
_STACK_SECONDS = 0.5

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
        self.channel, theirs = Channel.pair()
        memory = Segment.create(Logbook.NBYTES)
        self.logbook = Logbook(memory)
        self.logbook.head.batch = -1
        self.stack_pipe: Connection | None = None
        self._can_tell_stack = False
        their_pipe: Connection | None = None
        if with_stacks and hasattr(signal, "SIGRTMIN"):
            self.stack_pipe, their_pipe = multiprocessing.Pipe(duplex=False)
        self.process: BaseProcess = context.Process(  # type: ignore[attr-defined]
            target=worker_loop,
            args=(theirs, worker_id, startup, memory, their_pipe),
            name=f"DataLoader worker {worker_id}",
            daemon=True,  # ended with this process, and may not have children of its own
        )
        try:
            with starting(), handed_over(theirs):
                self.process.start()
        except BaseException:
            self._close_pipes()
            raise
        finally:
            theirs.close()
            memory.close()
            if their_pipe is not None:
                their_pipe.close()
        assert self.process.pid is not None
        self.pid: int = self.process.pid
        make_traceable(self)
        self.receiver = make_receiver(
            startup.sharing_strategy, f"worker {worker_id} (pid {self.pid})", page_locker
        )

    def take(self) -> list[Any]:
        """The messages that have arrived; what was printed is printed."""
        messages = []
        while self.channel.inbox:
            payload, fds = self.channel.inbox.popleft()
            with span("rebuild", batch=-1) as rebuilding:
                message = loads(payload, fds, self.receiver)
                rebuilding.message_bytes = len(payload)
                if isinstance(message, tuple):
                    rebuilding.batch = message[0]
            if isinstance(message, Printed):
                self._print(message)
            else:
                messages.append(message)
        return messages

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
            self.receiver.close(self.pid)
            self._close_pipes()

    def _close_pipes(self) -> None:
        self.channel.close()
        if self.stack_pipe is not None:
            self.stack_pipe.close()
