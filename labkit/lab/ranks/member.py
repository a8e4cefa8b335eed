"""In one rank: join the process group, then do what comes, until nobody is there to send more.

The launcher starts it with `python -m labkit.lab.ranks.member` and tells it by environment
variables who it is. Before it: `launched`. It ends when the connection to the notebook does, also
in the middle of a collective: a rank whose notebook was killed shall not wait for half an hour.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import select
import shutil
import signal
import threading
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection
from pathlib import Path

import torch.distributed as dist

__all__ = ["FOLDER", "STACK_SIGNAL", "Answer", "Greeting", "connected", "main"]

FOLDER = "LABKIT_RANKS"
"""The environment variable with the folder of the socket `notebook`; every process of the ranks has
it, and is known by it."""

STACK_SIGNAL = signal.SIGUSR1
"""At it, a rank writes where it stands into `stack-PID` in that folder."""


@dataclass(frozen=True)
class Greeting:
    """What a rank says first."""

    rank: int
    pid: int


@dataclass(frozen=True)
class Answer:
    """What a rank says when it is done.

    Attributes:
        value: what the function returned, pickled.
        error: what it raised, with its traceback; "" if nothing.
        gone: the rank has ended.
    """

    value: bytes = b""
    error: str = ""
    gone: bool = False


def main() -> None:
    """Join the process group of all ranks, and serve the notebook."""
    folder = Path(os.environ[FOLDER])
    with (folder / f"stack-{os.getpid()}").open("w") as stack:
        faulthandler.register(STACK_SIGNAL, file=stack, all_threads=False)
        dist.init_process_group("gloo")
        with connected(folder) as notebook:
            notebook.send(Greeting(dist.get_rank(), os.getpid()))
            threading.Thread(target=_end_with, args=(notebook, folder), daemon=True).start()
            _serve(notebook)
        faulthandler.unregister(STACK_SIGNAL)
    dist.destroy_process_group()


def connected(folder: Path) -> Connection:
    """The connection to the notebook.

    Raises:
        OSError: its process has died since the launch; the folder is gone, too.
    """
    try:
        connection: Connection = Client(str(folder / "notebook"), "AF_UNIX")
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return connection


def _end_with(notebook: Connection, folder: Path) -> None:
    """End this process when the notebook's has died, whatever the main thread waits for.

    One that lives ends the ranks before it hangs up.
    """
    poll = select.poll()
    poll.register(notebook.fileno(), select.POLLRDHUP)
    poll.poll()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def _serve(notebook: Connection) -> None:
    while True:
        try:
            payload = notebook.recv_bytes()
        except EOFError:
            return
        notebook.send_bytes(pickle.dumps(_done(payload)))


def _done(payload: bytes) -> Answer:
    try:
        function, arguments, named = pickle.loads(payload)
        return Answer(pickle.dumps(function(*arguments, **named)))
    except Exception:
        return Answer(error=traceback.format_exc(limit=-4).strip())


if __name__ == "__main__":
    # Not as `__main__`: what is pickled here must be known by its name on the other side.
    from labkit.lab.ranks.member import main as serve

    serve()
