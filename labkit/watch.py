"""The end of a worker whose main process is gone while a sample takes long.

Between two tasks a worker reads an end-of-file and ends by itself (`worker.py`). In the middle of a
sample it reads nothing: one that hangs, on a lock or a dead file system, would live for ever, and
hold its memory. A thread waits for the hang-up meanwhile, and gives the sample one second.

PyTorch's workers look for their parent every 5 s, between two tasks (`ManagerWatchdog`).
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from labkit.channel import Channel

__all__ = ["end_with_main_process"]

_GRACE_SECONDS = 1.0


def end_with_main_process(channel: Channel, clean_up: Callable[[], None]) -> None:
    """End this process, by force, a second after the other end of `channel` was closed for good.

    Known on Linux; elsewhere a sample that hangs is not ended, nor anywhere one in native code that
    keeps the GIL. While the main process lives, it
    closes its end only after the worker has gone.

    Args:
        channel: the worker's end.
        clean_up: called before, so that no name in shared memory stays.
    """
    if sys.platform == "linux":
        threading.Thread(target=_watch, args=(channel, clean_up), name="watch", daemon=True).start()


def _watch(channel: Channel, clean_up: Callable[[], None]) -> None:
    poll = select.poll()
    poll.register(channel, 0)  # 0: nothing but the hang-up
    poll.poll()
    time.sleep(_GRACE_SECONDS)
    with suppress(Exception):
        clean_up()
    os._exit(1)
