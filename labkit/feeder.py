"""The worker's way out: a thread that pickles and writes, and a stdout that sends.

Before it: `worker.py`, which made the batch. After it: `sharing/` and the channel.
Mirrors: the feeder thread of multiprocessing/queues.py (`Queue._feed`).
"""

from __future__ import annotations

import errno
import io
import os
import queue
import threading
import traceback
from typing import Any

from labkit.channel import Channel
from labkit.errors import WorkerException, too_many_open_files
from labkit.logbook import WorkerLane
from labkit.messages import Printed, Resume
from labkit.sharing import BatchPickler, Sender
from labkit.spans import here, span

__all__ = ["Feeder", "Forwarded"]


class Feeder:
    """The thread that pickles what a worker made and writes it to the channel.

    It pickles there and not in the worker's loop because both copying into shared memory and
    waiting for the channel release the GIL: the worker fetches on meanwhile.
    """

    def __init__(self, channel: Channel, worker_id: int, sender: Sender, lane: WorkerLane) -> None:
        self._channel = channel
        self._worker_id = worker_id
        self._sender = sender
        self._lane = lane
        self._pickler = BatchPickler(sender)
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._feed, name="feeder", daemon=True)
        self._thread.start()

    def put(self, message: Any) -> None:
        """Send this, soon, after all that was put before."""
        self._queue.put(message)

    def finish(self) -> None:
        """Send all that was put, then end."""
        self._queue.put(None)
        self._thread.join()

    def _feed(self) -> None:
        here.lane = self._lane
        try:
            while (message := self._next()) is not None:
                self._send(message)
                del message  # its memory may be needed for the next one
        except (BrokenPipeError, ConnectionResetError):
            pass  # the main process is gone; the worker's loop reads of it too
        except BaseException:
            traceback.print_exc()
            os._exit(1)  # a worker that cannot send must not look alive

    def _next(self) -> Any:
        with span("wait") as waiting:
            message = self._queue.get()
            # The lane itself is told as well: this wait may have begun before the trace did.
            self._lane.batch = waiting.batch = message[0] if isinstance(message, tuple) else -1
        if isinstance(message, Resume):
            self._lane.epoch = message.serial
        return message

    def _send(self, message: Any) -> None:
        try:
            self._pickle_and_send(message)
        except (BrokenPipeError, ConnectionResetError):
            raise
        except Exception as error:
            self._pickle_and_send(self._as_error(message, error))

    def _pickle_and_send(self, message: Any) -> None:
        with span("pickle") as pickling:
            parts, parcel = self._pickler.dumps(message)
            pickling.shared_bytes = parcel.shared_bytes
        try:
            with span("send") as sending:
                sending.message_bytes = sum(map(len, parts))
                self._channel.send(*parts, fds=parcel.fds)
        except OSError as error:
            if error.errno != errno.ETOOMANYREFS:
                raise
            # More descriptors are under way than a process may hold open; nothing was written yet.
            self._sender.withdraw(parcel)
            raise too_many_open_files() from error

    def _as_error(self, message: Any, error: Exception) -> Any:
        """What to send instead of a message that could not be pickled."""
        if not isinstance(message, tuple):
            raise error
        batch, data, _ = message
        if isinstance(data, WorkerException):
            return batch, data.without_type(), 0
        return batch, WorkerException(error, self._worker_id), 0


class Forwarded(io.TextIOBase):
    """A worker's stdout or stderr that sends whole lines to the main process.

    Where the main process's own is not the process's file, as in a notebook, what a worker writes
    to its file would reach no reader.
    """

    def __init__(self, name: str, feeder: Feeder) -> None:
        self._name = name
        self._feeder = feeder
        self._line = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._line = (self._line + text).split("\n")
        if lines:
            self._feeder.put(Printed(self._name, "".join(f"{line}\n" for line in lines)))
        return len(text)

    def flush(self) -> None:
        """Lines are sent when they are whole; a rest waits for its end."""

    def write_rest(self) -> None:
        """Send a last line that has no end."""
        if self._line:
            self.write("\n")
