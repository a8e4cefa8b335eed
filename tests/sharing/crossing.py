"""A message's way from a worker to the main process, walked inside one process."""

import os
from contextlib import AbstractContextManager
from typing import Any

from labkit.sharing import BatchPickler, building_in, loads, make_receiver, make_sender


class Crossing:
    """Both ends of a sharing strategy. Call it with a batch to get what the other side gets.

    Attributes:
        message_bytes: the size of the latest message.
        n_fds: how many descriptors rode with it.
        copied_bytes: how many bytes of memory were taken to copy something there.
    """

    def __init__(self, strategy: str) -> None:
        self.sender = make_sender(strategy)
        self.receiver = make_receiver(strategy)
        self._pickler = BatchPickler(self.sender)
        self.message_bytes = self.n_fds = self.copied_bytes = 0

    def __call__(self, batch: Any) -> Any:
        message, fds = self.send(batch)
        return self.receive(message, fds)

    def send(self, batch: Any) -> tuple[bytes, list[int]]:
        """The message, and descriptors of its own, as the channel would deliver them."""
        self.sender.take_back(self.receiver.returned())
        self.copied_bytes = 0
        self.sender.allocate = self._allocate
        try:
            parts, parcel = self._pickler.dumps(batch)
        finally:
            del self.sender.allocate
        message = b"".join(parts)
        self.message_bytes, self.n_fds = len(message), len(parcel.fds)
        return message, [os.dup(fd) for fd in parcel.fds]

    def _allocate(self, nbytes: int) -> Any:
        self.copied_bytes += nbytes
        return type(self.sender).allocate(self.sender, nbytes)

    def send_and_close(self, batch: Any) -> None:
        """Send it to nobody: only the attributes tell of it."""
        for fd in self.send(batch)[1]:
            os.close(fd)

    def receive(self, message: bytes, fds: list[int]) -> Any:
        return loads(bytearray(message), fds, self.receiver)

    def building(self) -> AbstractContextManager[None]:
        """While it is active, batches are built in this strategy's memory."""
        return building_in(self.sender.allocate)

    def __enter__(self) -> "Crossing":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.sender.close()
        self.receiver.close(os.getpid())
        del self.sender, self.receiver, self._pickler  # which an arena's segments live as long as
