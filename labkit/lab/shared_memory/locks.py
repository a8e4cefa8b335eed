"""Whether a module's lock is one lock for two processes, by start method, as a table.

Before it: the program in `programs/locks.py`, whose children try. After it: notebook 05.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from labkit.lab import programs
from labkit.lab.child import output_of
from labkit.lab.table import Table

__all__ = ["module_lock"]

_PROGRAM = Path(programs.__path__[0]) / "locks.py"  # importing it would make its lock here


def module_lock(limit_s: float = 120) -> Table:
    """Let two processes want the lock, under each start method that there is here.

    Raises:
        RuntimeError: the program failed; says what it wrote.
        subprocess.TimeoutExpired: it took longer than `limit_s`.
    """
    found: dict[str, dict[str, bool]] = json.loads(
        output_of([sys.executable, str(_PROGRAM)], limit_s)
    )
    methods = list(next(iter(found.values())))
    words = {True: "both hold it", False: "one holds it"}
    rows = [(lock, *(words[both[method]] for method in methods)) for lock, both in found.items()]
    return Table(("the lock is", *methods), rows)
