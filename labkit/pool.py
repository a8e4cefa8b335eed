"""The worker processes of one iterator: start them, talk with them, notice a death, end them.

Before it: `multiprocess.py`, which decides who gets which task. After it: `worker_handle.py`, which
has what belongs to one of them.
Mirrors: torch/utils/data/dataloader.py (how `_MultiProcessingDataLoaderIter` handles processes). A
death is an end-of-file on the worker's channel, so it is noticed at once, under every start method
and on every thread, with no signal handler and no polling.
"""

from __future__ import annotations

import errno
import os
import pickle
import selectors
import socket
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from typing import Any

from labkit.channel import close_in_forked_children
from labkit.errors import TooManyOpenFiles, too_many_open_files
from labkit.messages import Unreadable
from labkit.recording import Source
from labkit.sharing import PageLocker
from labkit.spans import span
from labkit.startup import Startup
from labkit.worker_handle import WorkerHandle

__all__ = ["Death", "WorkerPool"]

# How long a worker may take to end: by itself, then after SIGTERM. Together less than 5 s.
_GRACE_SECONDS = 2.0
_TERMINATE_SECONDS = 1.0


@dataclass(frozen=True)
class Death:
    """What `WorkerPool.receive` returns for a worker that is gone."""

    pid: int
    exitcode: int | None  #: None: it has closed its channel and does not end
    batch: int  #: the last one that it began; -1 for none


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
        self._workers: list[WorkerHandle] = []
        # One registered selector: a wait costs the same for 1 as for 64 workers.
        with _descriptors_may_run_out():
            self._selector = selectors.DefaultSelector()
            close_in_forked_children(self._selector)
            self._bell = _Bell()
            self._selector.register(self._bell, selectors.EVENT_READ)
        self._finalizer = weakref.finalize(
            self, _close, self._workers, self._selector, self._bell, os.getpid()
        )
        try:
            for worker_id in range(startup.num_workers):
                with span("start", batch=-1), _descriptors_may_run_out():
                    worker = WorkerHandle(
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
        """Wait until something arrives, and return all of it as (worker id, message), a `Death` or
        an `Unreadable` among them.

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

    def _flush(self, worker: WorkerHandle) -> None:
        with worker.sending:
            try:
                done = worker.channel.flush()
            except (BrokenPipeError, ConnectionResetError):
                done = True
            if done:
                self._selector.modify(worker.channel, selectors.EVENT_READ, worker)

    def _receive_from(self, worker: WorkerHandle) -> list[tuple[int, Any]]:
        try:
            with span("receive", batch=-1):
                worker.channel.read()
        except BlockingIOError:
            return []
        except TooManyOpenFiles as error:
            return [(worker.id, Unreadable(error.with_traceback(None)))]
        except EOFError:
            if not self._forget(worker):
                return []  # it was retired while this thread was on its way here
            return [
                (worker.id, Death(worker.pid, worker.wait_for_exit(), worker.logbook.head.batch))
            ]
        return [(worker.id, message) for message in worker.take()]

    def retire(self, worker_id: int) -> None:
        """Let a worker end: it gets no more tasks. Its end will be no news."""
        worker = self._workers[worker_id]
        self._forget(worker)
        worker.channel.finish()

    def _forget(self, worker: WorkerHandle) -> bool:
        """Wait for this worker no more; False if that was so before."""
        with worker.sending:  # a `send` in another thread may be about to change what is waited for
            try:
                self._selector.unregister(worker.channel)
            except KeyError:
                return False
            return True

    def stack(self, worker_id: int) -> str:
        """Where a worker is stuck: its threads' stacks as faulthandler writes them, or ""."""
        return self._workers[worker_id].stack()


@contextmanager
def _descriptors_may_run_out() -> Iterator[None]:
    """Where descriptors are opened: say what it means that there are no more."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        raise too_many_open_files(in_whole_system=error.errno == errno.ENFILE) from error


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
    workers: list[WorkerHandle],
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


def _join(workers: list[WorkerHandle], deadline: float) -> None:
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))
