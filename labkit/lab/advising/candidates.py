"""What is tried in place of a setting, as far as this machine and the dataset allow it.

Before it: `findings`, what is known of them; `labkit.lab.doctor`, the machine's limits. After it:
`investigation`, which measures them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import labkit
from labkit.lab.advising.findings import Probe
from labkit.lab.advising.setting import LEFT_BEHIND, Setting
from labkit.lab.doctor.limits import Limits

__all__ = ["Bounds", "fewest_alive", "refinements", "starts", "with_other_workers"]

_MIB = 2**20
_FORKED_BYTES = 60 * _MIB  # of a worker that is forked, with what it writes to
_FRESH_BYTES = 400 * _MIB  # of one that has imported torch anew
_WAITS = 0.5  # a sample that keeps a core busy for less of its time waits
_MOST_WORKERS = 32
_WAITING_A_CORE = 4  # workers a core, where they wait
_TRIED = 4  # numbers of workers at once, beside the user's
_SMALL_BATCH = 64_000  # bytes: so much fits into a message


@dataclass(frozen=True)
class Bounds:
    """What this machine allows.

    Attributes:
        cores: to use, at least 1.
        memory_bytes: for the batches that are alive at once.
        worker_memory: for the workers themselves; None where nobody knows.
        shm_bytes: free in `/dev/shm`; None where there is none.
    """

    cores: int
    memory_bytes: int
    worker_memory: int | None = None
    shm_bytes: int | None = None

    @classmethod
    def of(cls, limits: Limits, memory_bytes: int) -> Bounds:
        """From what the doctor reads."""
        available = limits.memory_available
        rest = None if available is None else max(0, available - memory_bytes) // 2
        return cls(max(1, int(limits.usable_cores)), memory_bytes, rest, limits.shm_free)

    def allow(self, setting: Setting, probe: Probe) -> bool:
        """Whether batches and workers have room."""
        if setting.alive * probe.batch_bytes > self.memory_bytes:
            return False
        needs_shm = setting.sharing_strategy == "file_system" or setting.module != "labkit"
        room = self.shm_bytes if setting.num_workers and needs_shm else None
        if room is not None and setting.alive * probe.batch_bytes > room // 2:
            return False
        each = _FORKED_BYTES if setting.method == "fork" else _FRESH_BYTES
        return self.worker_memory is None or setting.num_workers * each <= self.worker_memory

    def most_workers(self, probe: Probe) -> int:
        """As many as the cores, or more where samples are waited for."""
        waits = probe.core_share < _WAITS
        most = self.cores * (_WAITING_A_CORE if waits else 1)
        if probe.batches is not None:
            most = min(most, probe.batches)  # more would have nothing to do
        return max(1, min(most, _MOST_WORKERS))


def fewest_alive(setting: Setting, probe: Probe, bounds: Bounds) -> Setting:
    """The same, with so little asked for in advance that the batches fit."""
    while not bounds.allow(setting, probe) and setting.num_workers:
        if (setting.prefetch_factor or 2) > 1:
            setting = replace(setting, prefetch_factor=(setting.prefetch_factor or 2) - 1)
        else:
            setting = setting.with_workers(setting.num_workers - 1)
    return setting


def with_other_workers(
    given: Setting, probe: Probe, bounds: Bounds
) -> tuple[list[Setting], list[str]]:
    """labkit's loader with other numbers of workers; and what is not tried, a sentence each."""
    most, limits = bounds.most_workers(probe), []
    powers = [1 << i for i in range(most.bit_length())]
    counts = sorted({0, *powers, most})
    base = replace(given, module="labkit")
    tried = [base.with_workers(count) for count in counts]
    fitting = [setting for setting in tried if bounds.allow(setting, probe)]
    if len(fitting) < len(tried):
        limits.append(
            f"More than {max((s.num_workers for s in fitting), default=0)} workers were not tried: "
            f"{_why_not(tried[-1], probe, bounds)}."
        )
    else:
        few = probe.batches is not None and most == probe.batches
        why = "an epoch has no more batches" if few else _cores_words(probe, bounds)
        more = "one worker" if most == 1 else f"{most} workers"
        limits.append(f"More than {more} were not tried: {why}.")
    others = [setting for setting in fitting if setting != given]
    return sorted(others, key=lambda setting: _promise(setting, given, most))[:_TRIED], limits


def _promise(setting: Setting, given: Setting, most: int) -> tuple[int, int]:
    """The order in which they are worth trying: the same number as the user's, if the loader is
    another; as many as may be; none; the others from above. Without workers loaders hardly differ,
    so another one without them comes last.
    """
    if setting.num_workers == given.num_workers:
        return (0, 0) if given.num_workers else (4, 0)
    if setting.num_workers == most:
        return 1, 0
    return (2, 0) if setting.num_workers == 0 else (3, -setting.num_workers)


def _cores_words(probe: Probe, bounds: Bounds) -> str:
    has = f"this machine has {bounds.cores} core{'s' if bounds.cores > 1 else ''} to use"
    if probe.core_share < _WAITS:
        return f"{has}, and {_WAITING_A_CORE} a core are enough to hide waiting, as a rule"
    return f"{has}, and samples keep them busy"


def _why_not(setting: Setting, probe: Probe, bounds: Bounds) -> str:
    needed = setting.alive * probe.batch_bytes
    if needed > bounds.memory_bytes:
        return (
            f"{setting.depth} batches asked for in advance and {LEFT_BEHIND} more, of "
            f"{probe.batch_bytes / 1e6:,.1f} MB each, are more than the "
            f"{bounds.memory_bytes / 1e6:,.0f} MB that they may take (memory_bytes, --memory-mb)"
        )
    return "the memory that is available would not do for the workers"


def refinements(
    best: Setting, probe: Probe, bounds: Bounds, default_collate_does: bool, device: Any
) -> list[Setting]:
    """The same workers, with one other argument each."""
    tried = []
    if default_collate_does:
        tried.append(replace(best, collate="default"))
    if best.num_workers:
        tried.append(replace(best, prefetch_factor=2 * (best.prefetch_factor or 2)))
        strategy = _other_strategy(best, probe)
        if strategy is not None:
            tried.append(replace(best, sharing_strategy=strategy))
    if device is not None:
        if not best.pin_memory and not device.is_simulated:
            tried.append(replace(best, pin_memory=True))
        if not best.preloads:
            tried.append(replace(best, preloads=True))
    return [setting for setting in tried if bounds.allow(setting, probe)]


def _other_strategy(best: Setting, probe: Probe) -> str | None:
    now = best.sharing_strategy or labkit.get_sharing_strategy()
    there = labkit.get_all_sharing_strategies()
    if now != "arena" and "arena" in there:
        return "arena"
    wanted = "copy" if probe.batch_bytes < _SMALL_BATCH else "file_descriptor"
    return wanted if wanted in there and wanted != now else None


def starts(best: Setting, probe: Probe, bounds: Bounds, pickles: bool) -> list[Setting]:
    """The same, with workers that are started in another way, or stay."""
    tried = []
    if not best.persistent_workers:
        tried.append(replace(best, persistent_workers=True))
    if best.method != "fork":
        tried.append(replace(best, start_method="fork"))
    if best.method == "spawn" and pickles:
        tried.append(replace(best, start_method="forkserver"))
    return [setting for setting in tried if bounds.allow(setting, probe)]
