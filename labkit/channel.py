"""One duplex channel a worker: messages, the file descriptors that ride with them, and news of a
death.

A channel is a pair of connected Unix sockets. The main process keeps one end and never blocks on
it: what does not fit into the socket waits in an outbox, what has arrived in part waits for its
rest. The worker keeps the other end and simply blocks. When either process is gone, however it
went, the kernel closes its end and the other side reads an end-of-file: that is the whole of the
death watch.

A message on the wire is a header (payload bytes, number of file descriptors) and the payload;
the descriptors travel beside it as ancillary data (`SCM_RIGHTS`).

PyTorch has an index queue for each worker and one result queue that all of them lock
(`torch.multiprocessing.Queue`), watches for deaths with SIGCHLD and a 5 s poll, and opens a second
connection for every tensor's descriptor (`multiprocessing.resource_sharer`).
"""

from __future__ import annotations

import array
import os
import select
import socket
import struct
import sys
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from labkit.errors import too_many_open_files

__all__ = [
    "Channel",
    "Message",
    "close_in_forked_children",
    "handed_over",
]

_HEADER = struct.Struct("<QI")  # payload bytes, file descriptors
_READ_BYTES = 1 << 16
_MAX_FDS = 253  # SCM_MAX_FD of Linux: what one sendmsg() carries at most
_FD_BYTES = array.array("i").itemsize
# One read meets the descriptors of one sendmsg() at most: the kernel does not merge them.
_ANCILLARY_BYTES = socket.CMSG_SPACE(_MAX_FDS * _FD_BYTES) if hasattr(socket, "CMSG_SPACE") else 0
# As a plain number: the operators of `IntFlag` take longer than the system call.
_TRUNCATED = int(getattr(socket, "MSG_CTRUNC", 0))

Message = tuple[bytearray, list[int]]
"""A payload and the file descriptors that came with it; whoever takes it owns them."""


class Channel:
    """One end of a duplex channel of messages.

    Args:
        sock: its socket.
        takes_fds: descriptors may come from the other side.

    Attributes:
        inbox: complete messages that `read` has found and nobody has taken yet, oldest first.
    """

    def __init__(self, sock: socket.socket, takes_fds: bool = True) -> None:
        self._socket = sock
        self._takes_fds = takes_fds and bool(_ANCILLARY_BYTES)
        self.inbox: deque[Message] = deque()
        self._outbox: deque[memoryview] = deque()
        self._read_buffer = bytearray(_READ_BYTES)
        self._unparsed = 0  # bytes at the start of the read buffer that are not parsed yet
        self._large: bytearray | None = None  # the payload of a message larger than that buffer
        self._large_filled = 0
        self._large_fds = 0
        self._fds: deque[int] = deque()  # received, their message not complete yet
        close_in_forked_children(self)

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        """Two connected ends. The first, the main process's, never blocks, and takes descriptors;
        the second, a worker's, blocks, and takes none.
        """
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        return cls(ours), cls(theirs, takes_fds=False)

    def __reduce__(self) -> tuple[type[Channel], tuple[socket.socket, bool]]:
        # Works only while a process is being spawned: multiprocessing then hands the socket over.
        return Channel, (self._socket, self._takes_fds)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, *parts: bytes, fds: list[int] | None = None) -> bool:
        """Send one message, its payload given in parts.

        Args:
            *parts: the payload.
            fds: descriptors to ride with it, only on an end that blocks. They are duplicated; the
                caller's stay the caller's.

        Returns:
            True once all of it is written, always so on a blocking end; False where the rest
            waits in the outbox for `flush`.

        Raises:
            BrokenPipeError, ConnectionResetError: the other side is gone.
        """
        n_bytes = sum(map(len, parts))
        header = _HEADER.pack(n_bytes, len(fds or ()))
        if fds or n_bytes < _READ_BYTES:
            data = memoryview(b"".join((header, *parts)))  # one small write
            self._outbox.append(self._send_fds(data, fds) if fds else data)
        else:
            self._outbox += [memoryview(header), *(memoryview(part) for part in parts)]
        return self.flush()

    def _send_fds(self, data: memoryview, fds: list[int]) -> memoryview:
        """Send the descriptors, each group with some bytes of `data`; return the rest of it."""
        *groups, last = [fds[i : i + _MAX_FDS] for i in range(0, len(fds), _MAX_FDS)]
        for group in groups:
            data = data[socket.send_fds(self._socket, [data[:1]], group) :]
        return data[socket.send_fds(self._socket, [data], last) :]

    def flush(self) -> bool:
        """Write what waits in the outbox, as far as the socket takes it; True when all is gone."""
        while self._outbox:
            data = self._outbox[0]
            if data.nbytes:
                try:
                    sent = self._socket.send(data)
                except BlockingIOError:
                    return False
                if sent < data.nbytes:
                    self._outbox[0] = data[sent:]
                    continue
            self._outbox.popleft()
        return True

    def read(self) -> None:
        """Read once and put every message that is now complete into `inbox`.

        Raises:
            EOFError: the other side is gone; what it sent in part is dropped.
            BlockingIOError: nothing has arrived, on an end that does not block.
            TooManyOpenFiles: descriptors came that this process may not open.
        """
        if self._large is not None:
            target = memoryview(self._large)[self._large_filled :]
        else:
            target = memoryview(self._read_buffer)[self._unparsed :]
        try:
            count = self._receive_into(target)
        except ConnectionResetError:
            count = 0
        if count == 0:
            raise EOFError("the other side of the channel is gone")
        if self._large is not None:
            self._large_filled += count
            if self._large_filled == len(self._large):
                self._complete(self._large, self._large_fds)
                self._large = None
        else:
            self._unparsed += count
            self._parse()

    def _receive_into(self, target: memoryview) -> int:
        if not self._takes_fds:
            return self._socket.recv_into(target)
        count, ancillary, flags, _ = self._socket.recvmsg_into([target], _ANCILLARY_BYTES)
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self._fds.extend(memoryview(data[: len(data) // _FD_BYTES * _FD_BYTES]).cast("i"))
        if flags & _TRUNCATED:
            raise too_many_open_files()
        return count

    def _parse(self) -> None:
        """Take every whole message off the read buffer; begin a large one with what is there."""
        buffer, start = self._read_buffer, 0
        while self._unparsed - start >= _HEADER.size:
            n_bytes, n_fds = _HEADER.unpack_from(buffer, start)
            begin = start + _HEADER.size
            end = begin + n_bytes
            if end <= self._unparsed:
                self._complete(buffer[begin:end], n_fds)
                start = end
            elif _HEADER.size + n_bytes > len(buffer):
                self._large, self._large_fds = bytearray(n_bytes), n_fds
                self._large_filled = self._unparsed - begin
                self._large[: self._large_filled] = buffer[begin : self._unparsed]
                start = self._unparsed
            else:
                break
        rest = self._unparsed - start
        if start and rest:
            buffer[:rest] = buffer[start : self._unparsed]
        self._unparsed = rest

    def _complete(self, payload: bytearray, n_fds: int) -> None:
        self.inbox.append((payload, [self._fds.popleft() for _ in range(n_fds)]))

    def finish(self) -> None:
        """Say that nothing more will be sent: the other side reads an end-of-file after it all."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def peer_is_gone(self) -> bool:
        """Whether the other end is closed for good, and not only finished. Known on Linux."""
        if sys.platform != "linux":
            return False
        poll = select.poll()
        poll.register(self._socket, 0)
        return any(events & select.POLLHUP for _, events in poll.poll(0))

    def close(self) -> None:
        """Close this end, and the descriptors of messages that nobody took. Safe to repeat."""
        self._socket.close()
        while self.inbox:
            self._fds.extend(self.inbox.popleft()[1])
        while self._fds:
            os.close(self._fds.popleft())


# NOTE [ What a forked child must not keep ]
#
# A death is noticed by an end-of-file, and that comes only when *every* copy of an end is closed.
# A forked child starts with a copy of all ends that its parent has: those to its siblings, those of
# other loaders, and the parent's end of its own channel. Any of them would hide a death: the
# parent's from the workers, a worker's from the parent. So each end closes itself in every forked
# child, whoever forks and why, but the one for which the child was made (`handed_over`).


class _Closeable(Protocol):
    def close(self) -> None: ...


_open_here: weakref.WeakSet[_Closeable] = weakref.WeakSet()
_being_started = threading.local()


def close_in_forked_children(resource: _Closeable) -> None:
    """Let `resource` be closed in every child that this process forks from now on."""
    _open_here.add(resource)


@contextmanager
def handed_over(channel: Channel) -> Iterator[None]:
    """While it is active, a process forked by this thread keeps `channel` and closes all others."""
    _being_started.channel = channel
    try:
        yield
    finally:
        _being_started.channel = None


def _close_inherited() -> None:
    mine = getattr(_being_started, "channel", None)
    for resource in list(_open_here):
        if resource is not mine:
            with suppress(OSError):
                resource.close()
    _being_started.channel = None  # what this child forks in its turn shall not keep it either


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited)
