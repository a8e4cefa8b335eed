"""Notebook 05's experiments on shared memory: what strategies hold, limits, kills, ends, locks.

    labkit.lab.shared_memory.kill_main()

Read first `ways`, the loaders that are tried, and `holdings`, what a process holds. `values` and
`locks` are about memory and locks without a loader; `limits`, `killed` and `gone` try all ways
under lowered limits, after a kill -9, and when the sender has ended. Each gives a `table`.
"""

from __future__ import annotations

from labkit.lab.shared_memory.gone import read_after_the_end
from labkit.lab.shared_memory.holdings import holdings
from labkit.lab.shared_memory.killed import kill_main
from labkit.lab.shared_memory.limits import full_dev_shm, keep_all
from labkit.lab.shared_memory.locks import module_lock
from labkit.lab.shared_memory.ways import LABKIT, PYTORCH, Bundles, Way
from labkit.lab.table import Table

__all__ = [
    "LABKIT",
    "PYTORCH",
    "Bundles",
    "Table",
    "Way",
    "full_dev_shm",
    "holdings",
    "keep_all",
    "kill_main",
    "module_lock",
    "read_after_the_end",
]
