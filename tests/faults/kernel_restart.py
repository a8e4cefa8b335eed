"""A kernel is restarted while loaders of it run: their workers must go with it.

`python -m tests.faults.kernel_restart` is a process of its own, for the client of a kernel has
threads and sockets that stay.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

from jupyter_client.manager import start_new_kernel

from tests.scripts import ROOT, alive, environment, seconds_until

__all__ = ["kernel_restarts"]

_CELL_SECONDS = 100.0
_BEGIN = """
import os, psutil, time, labkit, torch
from tests.datasets import Mapped
def item(i):
    if i == 5:
        time.sleep(600)
    return torch.full((10_000,), float(i))
idle = labkit.DataLoader(Mapped(item, 4), num_workers=1, persistent_workers=True,
                         sharing_strategy="file_system")
kept = list(idle)
busy = iter(labkit.DataLoader(Mapped(item, 100), num_workers=2, sharing_strategy="file_system"))
kept.append(next(busy))
print(*[child.pid for child in psutil.Process().children()])
"""
_NEXT = """
import labkit
from tests.datasets import Samples
list(labkit.DataLoader(Samples(2), num_workers=1, sharing_strategy="file_system"))
"""


def kernel_restarts() -> float:
    """The worst seconds from the asking until all workers are gone, of both ways to ask."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.kernel_restart"],
        capture_output=True,
        text=True,
        timeout=3 * _CELL_SECONDS,
        env=environment(),
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = json.loads(done.stdout)
    return max(found.values())


def main() -> None:
    """Prints the seconds by how the restart was asked for."""
    manager, client = start_new_kernel(kernel_name="python3")
    found: dict[str, float] = {}
    try:
        for name, now in (("asked", False), ("by force", True)):
            pids = [int(word) for word in _run(client, _BEGIN).split()]
            assert len(pids) == 3
            assert all(map(alive, pids))
            began = time.monotonic()
            manager.restart_kernel(now=now)
            seconds_until(lambda pids=pids: not any(map(alive, pids)))
            found[name] = time.monotonic() - began
            client.wait_for_ready(timeout=_CELL_SECONDS)
            # Either way a kernel ends by a signal to its whole group, so nobody can remove names at
            # once; the next who uses the strategy does.
            _run(client, _NEXT)
            ended = {str(pid) for pid in pids}
            assert not [name for name in os.listdir("/dev/shm") if ended & set(name.split("-"))]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    print(json.dumps(found))


def _run(client: Any, source: str) -> str:
    """What a cell prints."""
    printed: list[str] = []

    def note(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream" and message["content"]["name"] == "stdout":
            printed.append(message["content"]["text"])

    reply = client.execute_interactive(source, timeout=_CELL_SECONDS, output_hook=note)
    assert reply["content"]["status"] == "ok", reply["content"]
    return "".join(printed)


if __name__ == "__main__":
    main()
