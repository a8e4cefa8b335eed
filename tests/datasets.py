"""Datasets and functions that the tests share, in a module that spawned workers can import."""

import ctypes
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset
from torch.utils.data import get_worker_info as torch_get_worker_info

# What a sample is made of: a kind of leaf, or (kind of container, contents).
Structure = str | tuple[str, tuple[Any, ...]]


class Pair(NamedTuple):
    first: Any
    second: Any


def _tensor(i: int, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return ((torch.arange(max(1, torch.Size(shape).numel())) + i) % 120).to(dtype).view(shape)


DTYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
    "uint8": torch.uint8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "bool": torch.bool,
    "complex64": torch.complex64,
}
LEAVES: dict[str, Callable[[int], Any]] = {
    "int": lambda i: i,
    "float": lambda i: i / 7 if i % 5 else float("nan"),
    "bool": lambda i: i % 3 == 0,
    "str": lambda i: f"sample {i} ä",
    "bytes": lambda i: bytes([i % 256, 0]),
    "array": lambda i: np.arange(i, i + 6, dtype=np.int16).reshape(2, 3),
    "array without dimensions": lambda i: np.array(i / 3),
    "numpy number": lambda i: np.float32(i),
    "numpy bool": lambda i: np.bool_(i % 2),
    "number": lambda i: torch.tensor(i),
    "empty": lambda i: torch.empty(0, 3),
    "transposed": lambda i: _tensor(i, torch.float32, 2, 3).t(),
    "large": lambda i: _tensor(i, torch.float32, 100, 200),  # more than a socket holds
}
for _name, _dtype in DTYPES.items():
    LEAVES[f"{_name} tensor"] = lambda i, dtype=_dtype: _tensor(i, dtype, 2, 2)


def sample(structure: Structure, i: int) -> Any:
    """The sample of index `i`."""
    if isinstance(structure, str):
        return LEAVES[structure](i)
    kind, contents = structure
    parts = [sample(part, i + 10 * k) for k, part in enumerate(contents)]
    if kind == "dict":
        return {f"key {k}": part for k, part in enumerate(parts)}
    return Pair(*parts) if kind == "namedtuple" else {"list": list, "tuple": tuple}[kind](parts)


def draws() -> torch.Tensor:
    """A number from each global generator, float64 (3,)."""
    return torch.tensor(
        [torch.rand((), dtype=torch.float64), random.random(), np.random.rand()],
        dtype=torch.float64,
    )


class Recipe(NamedTuple):
    """What the samples of a dataset are like."""

    structure: Structure = "int"
    augmented: bool = False  #: random numbers come with each sample
    fails_at: int | None = None  #: index of the sample that raises

    def make(self, i: int, shift: int = 0) -> Any:
        if i == self.fails_at:
            raise FileNotFoundError(f"sample {i} is missing")
        made = sample(self.structure, i + shift)
        return (made, draws()) if self.augmented else made


class Samples(Dataset[Any]):
    """Map-style."""

    def __init__(self, length: int, recipe: Recipe | None = None) -> None:
        self.length = length
        self.recipe = recipe or Recipe()
        self.shift = 0

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self.length:
            raise IndexError(index)
        return self.recipe.make(int(index), self.shift)


class SamplesByBatch(Samples):
    """Map-style, asked for all samples of a batch at once."""

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        return [self[index] for index in indices]


class Stream(IterableDataset[Any]):
    """Iterable, whole in every worker."""

    def __init__(self, length: int, recipe: Recipe | None = None) -> None:
        self.length = length
        self.recipe = recipe or Recipe()
        self.shift = 0

    def __iter__(self) -> Iterator[Any]:
        for index in self.indices():
            yield self.recipe.make(index, self.shift)

    def indices(self) -> range:
        return range(self.length)


class SizedStream(Stream):
    def __len__(self) -> int:
        return self.length


class ShardedStream(Stream):
    """Iterable, every worker has its part, as PyTorch's documentation shows it."""

    def indices(self) -> range:
        info = torch_get_worker_info()
        if info is None:
            return range(self.length)
        return range(info.id, self.length, info.num_workers)


class Mapped(Dataset[Any]):
    """Sample i is `function(i)`."""

    def __init__(self, function: Callable[[int], Any], length: int = 8) -> None:
        self.function = function
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.function(index)


def shift_by_worker(worker_id: int) -> None:
    """A `worker_init_fn`: changes the worker's copy of the dataset, and its random state."""
    torch_get_worker_info().dataset.shift = 100 * (worker_id + 1)
    np.random.seed(np.random.randint(1000) + worker_id)


def list_of_samples(batch: list[Any]) -> list[Any]:
    """A `collate_fn` that leaves the samples as they are."""
    return batch


def pid_of(index: int) -> int:
    return os.getpid()


def sleep(index: int) -> int:
    time.sleep(600)
    return index


def pid_then_sleep(index: int) -> int:
    return os.getpid() if index < 2 else sleep(index)


def sleep_at_two(index: int) -> int:
    return sleep(index) if index == 2 else index


def threads_of(index: int) -> int:
    return torch.get_num_threads()


def segfault() -> None:
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    ctypes.string_at(0)


ENDS: dict[str, Callable[[], Any]] = {
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGTERM": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "SIGSEGV": segfault,
    "os._exit(0)": lambda: os._exit(0),
    "sys.exit(3)": lambda: sys.exit(3),
}


class EndsAtTwo(Dataset[Any]):
    """At item 2 the process ends, some seconds after it has begun."""

    def __init__(self, how: str, after: float = 0) -> None:
        self.how = how
        self.after = after

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if index == 2:
            time.sleep(self.after)
            ENDS[self.how]()
        return index
