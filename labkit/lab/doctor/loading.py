"""What the doctor says of Python's and PyTorch's ways to load: start methods, sharing strategies,
threads.

Before it: `limits`, which knows the cores. After it: `doctor`.
"""

from __future__ import annotations

import multiprocessing

import torch

import labkit
from labkit.lab.doctor.findings import Finding
from labkit.lab.doctor.limits import Limits

__all__ = ["sharing_strategies", "start_methods", "torch_threads"]


def start_methods() -> Finding:
    """How workers can be started, and how they are if nothing is said."""
    there = multiprocessing.get_all_start_methods()
    default = multiprocessing.get_start_method(allow_none=True) or there[0]
    meaning = {
        "fork": "Workers are copies of this process: quick to start, and they inherit all, also "
        "locks that another thread holds at that moment.",
        "forkserver": "Workers come from a clean server process: safe beside threads; what they "
        "get is pickled.",
        "spawn": "Every worker is a fresh Python that imports everything again: safe, and slowest "
        "to start; what it gets is pickled.",
    }[default]
    advice = None
    if default == "fork":
        advice = "multiprocessing_context='forkserver' if this process runs threads or uses CUDA."
    raw = {"default": default, "all": there}
    others = ", ".join(method for method in there if method != default)
    value = f"{default} by default" + (f"; also {others}" if others else "")
    return Finding("start methods", value, raw, None, meaning, advice)


def sharing_strategies() -> Finding:
    """How batches can come from workers, and how they do if nothing is said."""
    there, default = sorted(labkit.get_all_sharing_strategies()), labkit.get_sharing_strategy()
    others = ", ".join(strategy for strategy in there if strategy != default)
    value = f"{default} by default" + (f"; also {others}" if others else "")
    meaning = (
        "How a batch comes from a worker: "
        + {
            "arena": "in recycled shared memory; once that is warm, a batch needs no new memory.",
            "file_descriptor": "in new shared memory for every tensor, by its descriptor.",
            "file_system": "in new shared memory for every tensor, by its name in /dev/shm.",
            "copy": "through a socket, byte by byte: works anywhere, slow for large batches.",
        }[default]
    )
    return Finding("sharing strategies", value, {"default": default, "all": there}, None, meaning)


def torch_threads(limits: Limits) -> Finding:
    """Which PyTorch, and how many threads it computes with here."""
    threads, cores = torch.get_num_threads(), max(1, int(limits.usable_cores))
    too_many = threads > cores
    return Finding(
        name="torch",
        value=f"{torch.__version__}, {threads} thread{'s' if threads != 1 else ''}",
        raw={"version": str(torch.__version__), "threads": threads},
        unit=None,
        meaning="The threads compute in this process; each worker has one. They compete with "
        "workers for the cores.",
        advice=f"torch.set_num_threads({cores}): there are more threads than cores to use."
        if too_many
        else None,
        concern=too_many,
    )
