"""How large the lab's experiments are on this machine, so that they run on any and fill none.

Before it: `limits`. After it: `experiments`, whose defaults these are.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from labkit.lab.doctor.limits import Limits
from labkit.lab.results import DEFAULT_REPEATS

__all__ = ["Sizes", "sizes_for"]

_MIB = 2**20
_PREFETCH_FACTOR = 2  # DataLoader's default
_HELD = 2  # one batch in the consumer's hands, one on the way to it
_WORKER_BYTES = 400 * _MIB  # a spawned worker that has imported torch, generously
_LEAST_MEMORY = 1024 * _MIB  # assumed where the system does not tell
_LEAST_SHM = 64 * _MIB  # likewise: what Docker gives if it is not asked


@dataclass(frozen=True)
class Sizes:
    """What an experiment uses if nothing else is said.

    Attributes:
        batch_bytes: of a batch, a power of two.
        batches: in an epoch.
        workers: at most, worker processes at a time.
        repeats: of each setting.
    """

    batch_bytes: int
    batches: int
    workers: int
    repeats: int

    @property
    def shared_bytes(self) -> int:
        """Bytes of the batches that exist at once: handed out ahead, and held."""
        return self.batch_bytes * (_PREFETCH_FACTOR * self.workers + _HELD)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def __str__(self) -> str:
        batch = _binary(self.batch_bytes)
        return (
            f"Experiments here use {self.batches} batches of {batch}, {self.workers} "
            f"worker{'s' if self.workers != 1 else ''} and {self.repeats} repeats; at most "
            f"{_binary(self.shared_bytes)} of batches exist at once."
        )


def sizes_for(limits: Limits) -> Sizes:
    """The sizes for these limits.

    - workers: one a core, but at least 2, for a single one has no order to restore, and at most 8;
      fewer where memory is short: 400 MiB each, of what is available.
    - batch bytes: the largest power of two, from 64 KiB on, of which the batches that exist at once
      (2 a worker, and 2 more) fill no more than a quarter of what is free in `/dev/shm` and a
      sixteenth of the available memory; at most 2 MiB a worker.
    - batches: 32 a core, between 32 and 128.
    - repeats: always `DEFAULT_REPEATS`. A slower machine is no reason to conclude from less.
    """
    memory = _LEAST_MEMORY if limits.memory_available is None else limits.memory_available
    shm = _LEAST_SHM if limits.shm_free is None else limits.shm_free
    cores = max(1, int(limits.usable_cores))
    workers = max(1, min(max(2, cores), 8, memory // _WORKER_BYTES))
    room = min(shm // 4, memory // 16) // (_PREFETCH_FACTOR * workers + _HELD)
    nbytes = max(64 * 1024, min(room, 2 * _MIB * workers))
    return Sizes(
        batch_bytes=2 ** (nbytes.bit_length() - 1),
        batches=max(32, min(32 * cores, 128)),
        workers=workers,
        repeats=DEFAULT_REPEATS,
    )


def _binary(nbytes: int) -> str:
    return f"{nbytes // _MIB} MiB" if nbytes >= _MIB else f"{nbytes // 1024} KiB"
