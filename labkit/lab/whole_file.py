"""A file that is replaced as a whole: whoever reads it finds all of the new, or all of the old.

Before it: `passes`, a learner's progress; `notebooks`, the course's copies. After it: the disk.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

__all__ = ["write_whole"]


def write_whole(path: Path, content: bytes) -> None:
    """Write another file beside this one, and let it take its place.

    Raises:
        OSError: it cannot be written. What was there stays, and nothing is left beside it.
    """
    # Named after its writer: other kernels and threads may write this file, too.
    writer = f"{os.getpid()}-{threading.get_ident()}"
    unfinished = path.with_name(f".{path.stem}-{writer}.tmp")
    try:
        with unfinished.open("wb") as new:
            new.write(content)
            new.flush()
            os.fsync(new.fileno())  # else a power cut could leave the new name without its content
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
