"""The machine on which something was measured, so that a figure never stands without it."""

from __future__ import annotations

import multiprocessing
import os
import platform
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import torch

import labkit

__all__ = ["cores", "machine"]


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def machine() -> dict[str, Any]:
    """What is worth knowing of it, ready for JSON."""
    start_method = multiprocessing.get_start_method(allow_none=True)
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "cpu": _cpu(),
        "cores": cores(),
        "load_average": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "system": platform.system(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "labkit": labkit.__version__,
        "torch_threads": torch.get_num_threads(),
        "start_method": start_method or multiprocessing.get_all_start_methods()[0],
        "sharing_strategy": {
            "labkit": labkit.get_sharing_strategy(),
            "torch": torch.multiprocessing.get_sharing_strategy(),  # type: ignore[no-untyped-call]
        },
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
