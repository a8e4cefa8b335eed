"""What the bench loads: datasets, collate functions, and the settings in which they are timed.

Everything a worker needs stands at module level, so that it can be imported under every start
method. All samples are made beforehand and kept in memory: what is timed is the loader (and for
`jpeg` the decoding), not a disk.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from labkit.lab import need
from labkit.sharing import empty_shared

__all__ = ["GROUPS", "FromMemory", "Group", "StartUp", "Workload"]

_ENDLESS = 1 << 30  # samples: more than any run takes


@dataclass(frozen=True)
class Workload:
    """A loader's setting, measured in steady state."""

    name: str
    what: str  #: of what a batch is made, in words
    make_dataset: Callable[[], FromMemory]
    batch_size: int = 1
    num_workers: int = 2
    collate_fn: Callable[[Any], Any] | None = None
    labkit_collate_fn: Callable[[Any], Any] | None = None  #: if labkit's side has another one
    seconds: float = 0.5  #: of each timed region
    warmup: int = 50  #: batches before it
    against_stack: bool = False  #: also measure `torch.stack` of the same samples
    labkit_is_traced: bool = False  #: labkit's side with a trace on
    with_span_cost: bool = False  #: also measure what labkit's spans take with a trace off

    @property
    def min_batches(self) -> int:
        """Timed at least: well over what the workers have ready when the timing begins."""
        return max(8, 8 * self.num_workers)


@dataclass(frozen=True)
class StartUp:
    """Time to the first batch of two workers, in a fresh process, the second loader there."""

    name: str
    what: str
    method: str
    num_workers: int = 2


@dataclass(frozen=True)
class Group:
    """What `--only` names: workloads that take turns, repeat by repeat."""

    name: str
    workloads: tuple[Workload, ...] | tuple[StartUp, ...]
    limit_s: float  #: no new repeat begins later than that; more repeats or sides have more
    max_repeats: int | None = None


class FromMemory(Dataset[Any]):
    """Gives the same samples round and round; of a tensor, its rows."""

    def __init__(self, samples: Sequence[Any] | torch.Tensor) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return _ENDLESS

    def __getitem__(self, index: int) -> Any:
        return self.samples[index % len(self.samples)]


class Jpegs(FromMemory):
    """Files in memory → uint8 (3, 224, 224)."""

    def __getitem__(self, index: int) -> torch.Tensor:
        from PIL import Image

        with Image.open(io.BytesIO(super().__getitem__(index))) as image:
            pixels = np.array(image.convert("RGB").resize((224, 224)))  # (224, 224, 3)
        return torch.from_numpy(pixels).permute(2, 0, 1)


def images() -> FromMemory:
    """64 samples, float32 (3, 224, 224): one batch."""
    return FromMemory([torch.rand(3, 224, 224) for _ in range(64)])


def tensors() -> FromMemory:
    """Samples of 4 kB, float32 (1024,)."""
    return FromMemory([torch.rand(1024) for _ in range(64)])


def dicts_of_4() -> FromMemory:
    """Samples of four tensors of 4 kB."""
    return _dicts(4)


def dicts_of_20() -> FromMemory:
    """Samples of twenty tensors of 4 kB."""
    return _dicts(20)


def _dicts(n: int) -> FromMemory:
    return FromMemory([{f"key {k}": torch.rand(1024) for k in range(n)} for _ in range(64)])


def arrays() -> FromMemory:
    """Arrays like images, float32 (3, 128, 128)."""
    numbers = np.random.default_rng(0)
    return FromMemory([numbers.random((3, 128, 128), dtype=np.float32) for _ in range(64)])


def small_arrays() -> FromMemory:
    """Arrays of 256 bytes, float32 (64,)."""
    numbers = np.random.default_rng(0)
    return FromMemory([numbers.random(64, dtype=np.float32) for _ in range(64)])


def stack_arrays(samples: Sequence[np.ndarray]) -> np.ndarray:
    """Arrays (…) → an array (batch, …)."""
    return np.stack(samples)


def jpegs() -> Jpegs:
    """64 files, each of 500 × 375 pixels."""
    image = need("PIL.Image", "Pillow")
    numbers = np.random.default_rng(0)
    files = []
    for _ in range(64):
        coarse = image.fromarray(numbers.integers(0, 256, (24, 32, 3), dtype=np.uint8))
        file = io.BytesIO()
        coarse.resize((500, 375), image.Resampling.BICUBIC).save(file, "jpeg", quality=90)
        files.append(file.getvalue())
    return Jpegs(files)


def texts() -> FromMemory:
    """Token numbers, int64 (16 to 512,)."""
    lengths = np.random.default_rng(0).integers(16, 513, 512)
    return FromMemory([torch.randint(50_000, (int(length),)) for length in lengths])


def pad(samples: Sequence[torch.Tensor]) -> torch.Tensor:
    """Texts (length,) → (batch, longest), zeros behind the shorter ones."""
    return pad_sequence(list(samples), batch_first=True)


def pad_in_place(samples: Sequence[torch.Tensor]) -> torch.Tensor:
    """The same, written straight into the memory that is shared."""
    longest = max(len(sample) for sample in samples)
    batch = empty_shared((len(samples), longest), torch.int64).zero_()
    for row, sample in zip(batch, samples, strict=True):
        row[: len(sample)] = sample
    return batch


def numbers() -> FromMemory:
    """Samples that cost nothing."""
    return FromMemory(range(64))


def _images(num_workers: int) -> Workload:
    return Workload(
        name=f"images, {num_workers} worker{'' if num_workers == 1 else 's'}",
        what="64 × float32 (3, 224, 224): 38.5 MB",
        make_dataset=images,
        batch_size=64,
        num_workers=num_workers,
        seconds=0.6,
        warmup=12,
        against_stack=True,
    )


def _trivial(num_workers: int) -> Workload:
    return Workload(
        name=f"workers: {num_workers}",
        what="one int, from a dataset that does nothing",
        make_dataset=numbers,
        num_workers=num_workers,
        seconds=0.4,
        warmup=max(50, 6 * num_workers),
    )


_NUMPY = "collate_fn is np.stack: "
_TEXT = "32 texts of 16 to 512 tokens, padded"

_ALL_GROUPS = (
    Group("images", (_images(2), _images(1), _images(0)), limit_s=80),
    Group(
        "tensor",
        (
            Workload("tensor", "one tensor of 4 kB", tensors, with_span_cost=True),
            Workload(
                "tensor, traced",
                "one tensor of 4 kB; labkit's side with a trace on",
                tensors,
                labkit_is_traced=True,
            ),
        ),
        limit_s=32,
    ),
    Group("dict4", (Workload("dict of 4", "4 tensors of 4 kB", dicts_of_4),), limit_s=16),
    Group("dict20", (Workload("dict of 20", "20 tensors of 4 kB", dicts_of_20),), limit_s=25),
    Group(
        "numpy",
        (
            Workload(
                "numpy",
                _NUMPY + "8 × float32 (3, 128, 128), 1.57 MB",
                arrays,
                batch_size=8,
                collate_fn=stack_arrays,
            ),
            Workload(
                "numpy, small",
                _NUMPY + "16 × float32 (64,), 4 kB",
                small_arrays,
                batch_size=16,
                collate_fn=stack_arrays,
            ),
        ),
        limit_s=30,
    ),
    Group(
        "jpeg",
        (
            Workload(
                "jpeg",
                "16 files of 500 × 375 pixels, decoded by Pillow and resized to 224 × 224",
                jpegs,
                batch_size=16,
                seconds=1.5,
                warmup=8,
            ),
        ),
        limit_s=33,
    ),
    Group(
        "text",
        (
            Workload("text", _TEXT + " by pad_sequence", texts, batch_size=32, collate_fn=pad),
            Workload(
                "text, empty_shared",
                _TEXT + "; labkit's side pads into labkit.empty_shared",
                texts,
                batch_size=32,
                collate_fn=pad,
                labkit_collate_fn=pad_in_place,
            ),
        ),
        limit_s=30,
    ),
    Group(
        "startup",
        tuple(
            StartUp(f"start-up, {method}", "time to the first batch of the second loader", method)
            for method in ("fork", "spawn", "forkserver")
        ),
        limit_s=90,
        max_repeats=3,
    ),
    Group("workers", tuple(_trivial(n) for n in (1, 2, 8, 16, 32, 64)), limit_s=95),
)

GROUPS = {group.name: group for group in _ALL_GROUPS}
