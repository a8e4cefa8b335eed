"""The worker processes of one iterator: start them, talk with them, notice a death, end them.

Before it: `multiprocess.py`, which decides who gets which task. After it: `channel.py` and
`worker.py`.
Mirrors: torch/utils/data/dataloader.py (how `_MultiProcessingDataLoaderIter` handles processes). A
death is an end-of-file on the worker's channel, so it is noticed at once, under every start method
and on every thread, with no signal handler and no polling.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import selectors
import signal
import socket
import sys
import threading
import time
import weakref
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any

from labkit.channel import Channel, close_in_forked_children, handed_over
from labkit.logbook import Logbook
from labkit.messages import Printed
from labkit.recording import Source, end_of, make_traceable
from labkit.sharing import PageLocker, Segment, loads, make_receiver
from labkit.spans import span
from labkit.startup import Startup, starting
from labkit.worker import STACK_SIGNAL, worker_loop

__all__ = ["Death", "WorkerPool"]

# How long a worker may take to end: by itself, then after SIGTERM. Together less than 5 s.
_GRACE_SECONDS = 2.0
_TERMINATE_SECONDS = 1.0
_EXIT_SECONDS = 5.0  # for a worker that has closed its channel: it is ending already
_STACK_SECONDS = 0.5


@dataclass(frozen=True)
class Death:
    """What `WorkerPool.receive` returns for a worker that is gone."""

    pid: int
    exitcode: int | None  #: None: it has closed its channel and does not end
    batch: int  #: the last one that it began; -1 for none


# Waits for a few channels now and then. Needs no descriptor of its own, of which none may be left.
_WaitingSelector = getattr(selectors, "PollSelector", selectors.SelectSelector)


class WorkerPool:
    """Worker processes with a channel each.

    Args:
        startup: what each of them gets.
        context: how they are started.
        source: the iterator, in a trace.
        with_stacks: let them tell where they are stuck (`stack`).
        page_locker: page-locks the memory of the batches, if the sharing strategy lets it.

    One thread may send while another receives. Closing happens at `close`, or when the pool is
    collected, or at the interpreter's end.
    """

    def __init__(
        self,
        startup: Startup,
        context: BaseContext,
        source: Source,
        with_stacks: bool = False,
        page_locker: PageLocker | None = None,
    ) -> None:
        self.num_workers = startup.num_workers
        self._owner_pid = os.getpid()
        self._workers: list[_WorkerHandle] = []
        # One registered selector: a wait costs the same for 1 as for 64 workers.
        self._selector = selectors.DefaultSelector()
        close_in_forked_children(self._selector)
        self._bell = _Bell()
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._finalizer = weakref.finalize(
            self, _close, self._workers, self._selector, self._bell, os.getpid()
        )
        try:
            for worker_id in range(startup.num_workers):
                with span("start", batch=-1):
                    worker = _WorkerHandle(
                        worker_id, startup, context, source, with_stacks, page_locker
                    )
                self._workers.append(worker)
        except BaseException:
            self.close()
            raise
        for worker in self._workers:
            self._selector.register(worker.channel, selectors.EVENT_READ, worker)

    @property
    def is_open_here(self) -> bool:
        """Whether there are workers, and this process started them."""
        return self._finalizer.alive and self._owner_pid == os.getpid()

    def close(self, grace_seconds: float = _GRACE_SECONDS) -> None:
        """End the workers, by force after `grace_seconds`. Safe to repeat."""
        if self._finalizer.detach() is not None:
            _close(self._workers, self._selector, self._bell, self._owner_pid, grace_seconds)

    def interrupt(self) -> None:
        """Let a `receive` that waits in another thread return. Safe in every thread."""
        self._bell.ring()

    def pid(self, worker_id: int) -> int:
        """The process id of a worker."""
        return self._workers[worker_id].pid

    def exitcodes(self) -> list[int | None]:
        """Each worker's exit code; None while it runs."""
        return [worker.process.exitcode for worker in self._workers]

    def send(self, worker_id: int, message: object) -> None:
        """Send a message without waiting: what the channel does not take follows in `receive`."""
        worker = self._workers[worker_id]
        with suppress(BrokenPipeError, ConnectionResetError):  # `receive` will tell of its death
            payload = pickle.dumps((worker.receiver.returned(), message), protocol=5)
            with worker.sending:
                if not worker.channel.send(payload):
                    both = selectors.EVENT_READ | selectors.EVENT_WRITE
                    self._selector.modify(worker.channel, both, worker)

    def receive(
        self, timeout: float | None = None, likely: int | None = None
    ) -> list[tuple[int, Any]]:
        """Wait until something arrives, and return all of it as (worker id, message or `Death`).

        Args:
            timeout: seconds to wait; the list is empty if nothing came. None: as long as it takes,
                or until `interrupt`.
            likely: a worker that will have sent something already, if the others are not slower
                than this process: it is looked at first, which spares waiting.
        """
        if likely is not None:
            arrived = self._receive_from(self._workers[likely])
            if arrived:
                return arrived
        arrived = []
        with span("wait", batch=-1):
            ready = self._selector.select(timeout)
        for key, events in ready:
            if key.fileobj is self._bell:
                self._bell.hear()
                continue
            if events & selectors.EVENT_WRITE:
                self._flush(key.data)
            if events & selectors.EVENT_READ:
                arrived += self._receive_from(key.data)
        return arrived

    def _flush(self, worker: _WorkerHandle) -> None:
        with worker.sending:
            try:
                done = worker.channel.flush()
            except (BrokenPipeError, ConnectionResetError):
                done = True
            if done:
                self._selector.modify(worker.channel, selectors.EVENT_READ, worker)

    def _receive_from(self, worker: _WorkerHandle) -> list[tuple[int, Any]]:
        try:
            with span("receive", batch=-1):
                worker.channel.read()
        except BlockingIOError:
            return []
        except EOFError:
            self._selector.unregister(worker.channel)
            return [
                (worker.id, Death(worker.pid, worker.wait_for_exit(), worker.logbook.head.batch))
            ]
        return [(worker.id, message) for message in worker.take()]

    def retire(self, worker_id: int) -> None:
        """Let a worker end: it gets no more tasks. Its end will be no news."""
        worker = self._workers[worker_id]
        self._selector.unregister(worker.channel)
        worker.channel.finish()

    def stack(self, worker_id: int) -> str:
        """Where a worker is stuck: its threads' stacks as faulthandler writes them, or ""."""
        return self._workers[worker_id].stack()


class _Bell:
    """Wakes a thread that waits in a selector."""

    def __init__(self) -> None:
        self._hears, self._rings = socket.socketpair()
        for end in (self._hears, self._rings):
            end.setblocking(False)
            close_in_forked_children(end)

    def fileno(self) -> int:
        return self._hears.fileno()

    def ring(self) -> None:
        with suppress(OSError):  # it rings already, or nobody waits any more
            self._rings.send(b"!")

    def hear(self) -> None:
        with suppress(BlockingIOError):
            self._hears.recv(64)

    def close(self) -> None:
        self._hears.close()
        self._rings.close()


class _WorkerHandle:
    """One worker as the main process knows it."""

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


# NOTE [ How workers end ]
#
# 1. Each channel is ended towards the worker (`finish`). A worker that waits for a task reads an
#    end-of-file; one that has tasks left drops them, if they take long, and else does them first;
#    one in the middle of a sample finishes that sample. All at once, so that they end side by side.
# 2. Each channel is read until the worker has closed its end: it may be in the middle of a message
#    larger than the socket holds.
# 3. Who is not gone after `_GRACE_SECONDS` for all together gets SIGTERM, then SIGKILL.
#
# None of this waits without a bound. When the main process is killed, step 1 is done by the kernel.


def _close(
    workers: list[_WorkerHandle],
    selector: selectors.BaseSelector,
    bell: _Bell,
    owner_pid: int,
    grace_seconds: float = _GRACE_SECONDS,
) -> None:
    if os.getpid() != owner_pid:
        return  # a forked child collected its copy: these are not its children
    deadline = time.monotonic() + grace_seconds
    try:
        for worker in workers:
            worker.channel.finish()
        for worker in workers:
            worker.drain(deadline)
        _join(workers, deadline)
        for worker in workers:
            if worker.process.exitcode is None:
                worker.process.terminate()
        _join(workers, time.monotonic() + _TERMINATE_SECONDS)
    finally:  # also where a second Ctrl-C shortens this
        selector.close()
        bell.close()
        while workers:
            with suppress(OSError, ValueError):  # one that does not let itself be reaped
                workers.pop().end()


def _join(workers: list[_WorkerHandle], deadline: float) -> None:
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))
