"""A process sends `arange(4.)` and ends; only then is the message read. Who held the memory?

Before it: notebook 05. After it: `ways`, `table`.
"""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

from labkit.channel import Channel, handed_over
from labkit.lab.shared_memory.ways import LABKIT, PYTORCH, Way, in_a_child
from labkit.lab.table import Table
from labkit.sharing import BatchPickler, loads, make_receiver, make_sender

__all__ = ["read_after_the_end"]

_LIMIT_S = 60.0
_READ_SECONDS = 10.0


def read_after_the_end(ways: Sequence[Way] = (*LABKIT, *PYTORCH)) -> Table:
    """What is read, each way, when the process that sent it is gone.

    Raises:
        RuntimeError: the experiment did not come to its end; says what it wrote.
    """
    found = in_a_child(_read_each, ways, seconds=_LIMIT_S)
    rows = [(way.label, said) for way, said in zip(ways, found, strict=True)]
    return Table(("the sender is gone", "what is read"), rows)


def _read_each(send: Callable[[Any], None], ways: Sequence[Way]) -> None:
    for way in ways:
        read = _from_labkit if way.package == "labkit" else _from_pytorch
        try:
            send(str(read(way.strategy).tolist()))
        except (RuntimeError, OSError, EOFError) as error:
            send("no connection to it" if isinstance(error, OSError) else type(error).__name__)


def _from_labkit(strategy: str) -> torch.Tensor:
    """By the channel, sender and receiver of a loader's worker."""
    ours, theirs = Channel.pair()
    receiver, receiver_pid = make_receiver(strategy), os.getpid()
    with handed_over(theirs):
        pid = os.fork()
    if pid == 0:
        _send_and_end(theirs, strategy, receiver_pid)
    try:
        theirs.close()
        os.waitpid(pid, 0)
        while not ours.inbox:
            ours.read()
        message, fds = ours.inbox.popleft()
        tensor: torch.Tensor = loads(message, fds, receiver).clone()
        return tensor
    finally:
        receiver.close(pid)
        ours.close()


def _send_and_end(channel: Channel, strategy: str, receiver_pid: int) -> NoReturn:
    """In a forked child: whatever happens in it, it ends here and not in its parent's program."""
    try:
        parts, parcel = BatchPickler(make_sender(strategy, receiver_pid)).dumps(torch.arange(4.0))
        channel.send(*parts, fds=parcel.fds)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _from_pytorch(strategy: str) -> torch.Tensor:
    torch.multiprocessing.set_sharing_strategy(strategy)  # type: ignore[no-untyped-call]
    context: Any = torch.multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=_put, args=(queue,))
    process.start()
    process.join()
    assert multiprocessing.active_children() == []
    tensor: torch.Tensor = queue.get(timeout=_READ_SECONDS)
    return tensor


def _put(queue: Any) -> None:
    queue.put(torch.arange(4.0))
