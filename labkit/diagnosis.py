"""What a worker's death or silence means: how it ended, on which batch, and where to look.

The texts that people and their tools search for ("is killed by signal", "timed out after") are
PyTorch's.
"""

from __future__ import annotations

import reprlib
import signal
from typing import Any

from labkit.errors import LoaderTimeout, WorkerDied
from labkit.messages import INTERRUPTED
from labkit.pool import Death

__all__ = ["timed_out", "worker_died"]


def worker_died(
    worker_id: int, death: Death, batch: int | None = None, indices: Any = None
) -> WorkerDied:
    """The error for a worker's death: how it ended, on which batch, and what that points to."""
    code = death.exitcode
    name = None
    if code is not None and code < 0:
        name = _signal_name(-code)
        how = f"is killed by signal: {signal.strsignal(-code)} ({name})"
    elif code is None:
        how = "closed its channel and does not end"
    elif code == INTERRUPTED:
        how = "was interrupted (Ctrl-C)"
    else:
        how = f"exited unexpectedly with exit code {code}"
    doing = (
        "" if batch is None else f" while it worked on batch {batch} (indices {_short(indices)})"
    )
    hint = _HINTS.get(name or "", _HINT)
    return WorkerDied(
        f"DataLoader worker {worker_id} (pid {death.pid}) {how}{doing}. {hint}",
        worker_id=worker_id,
        pid=death.pid,
        exitcode=code,
        signal=name,
        batch=batch,
        indices=indices,
    )


_HINT = (
    "To see why, run the same indices with num_workers=0; look for what ends the process "
    "(`sys.exit`, `os._exit`, a crash in native code)."
)
_HINTS = {
    "SIGKILL": (
        "The system kills the largest process when memory runs out: look for 'Out of memory' in "
        "its log (`dmesg`), and try fewer workers, a smaller prefetch_factor or smaller batches."
    ),
    "SIGBUS": (
        "Shared memory or a mapped file ended under it: look at `df -h /dev/shm`, or try "
        "sharing_strategy='copy'."
    ),
    "SIGTERM": "Something asked it to end: a job scheduler, a time limit, a container's stop.",
}


def timed_out(
    seconds: float, worker_id: int, pid: int, batch: int | None, indices: Any, stack: str
) -> LoaderTimeout:
    """The error for a batch that has not come in time; `stack` tells where its worker is stuck."""
    worker = f"worker {worker_id} (pid {pid})"
    late = f"{worker} has not begun the epoch"
    if batch is not None:
        late = f"batch {batch} has not come from {worker}, asked for indices {_short(indices)}"
    return LoaderTimeout(
        f"DataLoader timed out after {seconds} seconds: {late}. If that is only slow, raise "
        "`timeout` or make batches smaller; if it is stuck on a lock that was held while the "
        'worker was forked, use multiprocessing_context="spawn" or "forkserver".'
        + (f"\nThe worker is here:\n{stack}" if stack else ""),
        worker_id=worker_id,
        pid=pid,
        batch=batch,
        indices=indices,
        stack=stack,
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most of the real-time signals have none
        return f"signal {number}"


def _short(indices: Any) -> str:
    shortened = reprlib.Repr()
    shortened.maxlist = shortened.maxtuple = 8
    return shortened.repr(indices)
