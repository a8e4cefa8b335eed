"""Datasets as users bring them, in a module that workers can import."""

import os
import threading
import time

import torch
from torch.utils.data import Dataset, IterableDataset

import labkit


class Plain(Dataset):
    def __init__(self, length: int = 200, width: int = 10) -> None:
        self.length, self.width = length, width

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((self.width,), float(index))


class Sleeping(Plain):
    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.005)
        return super().__getitem__(index)


class Counting(Sleeping):
    """Counts, for all processes, what was made."""

    def __init__(self, length: int = 200) -> None:
        super().__init__(length)
        self.made = torch.zeros(length, dtype=torch.uint8).share_memory_()

    def __getitem__(self, index: int) -> torch.Tensor:
        sample = super().__getitem__(index)
        self.made[index] = 1
        return sample


class Computing(Plain):
    def __getitem__(self, index: int) -> torch.Tensor:
        end = time.thread_time() + 0.005
        while time.thread_time() < end:
            pass
        return super().__getitem__(index)


class Broken(Plain):
    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 17:
            raise ValueError("cannot read image 17")
        return super().__getitem__(index)


class BrokenInWorkers(Plain):
    def __getitem__(self, index: int) -> torch.Tensor:
        if labkit.get_worker_info() is not None:
            raise OSError("the licence server takes one process")
        return super().__getitem__(index)


class Ragged(Plain):
    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(index % 5 + 1)


class Thing:
    pass


class Things(Plain):
    def __getitem__(self, index: int) -> Thing:
        return Thing()


class WithLock(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class Printing(Plain):
    def __getitem__(self, index: int) -> torch.Tensor:
        print(f"reading {index}")
        return super().__getitem__(index)


class Crashing(Plain):
    def __getitem__(self, index: int) -> torch.Tensor:
        os._exit(41)


class Hanging(Plain):
    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(1000)
        return super().__getitem__(index)


class Endless(IterableDataset):
    def __iter__(self):
        while True:
            yield torch.ones(10)


class Unsharded(IterableDataset):
    def __iter__(self):
        return iter(range(64))


def stacked(samples: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(samples)


def doubled(samples: list[torch.Tensor]) -> torch.Tensor:
    return 2 * torch.stack(samples)
