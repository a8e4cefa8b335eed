"""A preloader in seven versions: as people write it, and six mends of one fault each.

Notebook 09 builds them one after the other; its cells have the same code (a test sees to that).
Each version is the one before it with one change. The last one does what `labkit.Preloader` does,
but for what that needs in a large program: bounded memory, forks, traces, page-locked arenas.

Before it: `labkit.device`. After it: `conduct`, which finds the faults, and `preloading`, which
measures. Mirrors: the class that goes round as `PreDataLoader`; `data_prefetcher` of NVIDIA's apex.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from labkit.containers import map_leaves
from labkit.device import Device

__all__ = [
    "VERSIONS",
    "EndsEpochs",
    "KeepsContainers",
    "KeepsMemory",
    "Naive",
    "Pins",
    "TellsErrors",
    "Waits",
    "nested",
    "tensors_of",
]


def nested(part: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """A batch with its tensors changed; a container that is no dict comes back as a list."""
    if isinstance(part, torch.Tensor):
        return change(part)
    if isinstance(part, dict):
        return {key: nested(value, change) for key, value in part.items()}
    return [nested(p, change) for p in part] if isinstance(part, (list, tuple)) else part


class Naive:
    """Batches on the device ahead of time, as people write it."""

    def __init__(self, loader: Any, device: Device, queue_size: int = 2) -> None:
        self.loader, self.device, self.stream = loader, device, device.new_stream()
        self.queue: queue.Queue[Any] = queue.Queue(queue_size)
        self.thread = threading.Thread(target=self.fill, daemon=True)
        self.thread.start()

    def fill(self) -> None:
        while len(self.loader):  # epoch after epoch
            for batch in self.loader:
                with self.device.stream(self.stream):
                    self.queue.put(self.send(batch))

    def send(self, batch: Any) -> Any:
        return self.moved(batch)

    def moved(self, batch: Any) -> Any:
        return nested(batch, self.copied)

    def copied(self, tensor: torch.Tensor) -> Any:
        return self.device.to_device(tensor, non_blocking=True)

    def __iter__(self) -> Iterator[Any]:
        for _ in range(len(self.loader)):
            if self.queue.empty() and not self.thread.is_alive():
                return
            yield self.receive(self.queue.get())

    def receive(self, item: Any) -> Any:
        return item


class Pins(Naive):
    """Mend: copies do not block the thread, for the host's memory is page-locked."""

    def copied(self, tensor: torch.Tensor) -> Any:
        return self.device.to_device(self.device.pin(tensor), non_blocking=True)


class Waits(Pins):
    """Mend: the training loop's stream waits for the copy, and the program does not."""

    def send(self, batch: Any) -> Any:
        return self.moved(batch), self.stream.record_event()

    def receive(self, item: Any) -> Any:
        batch, ready = item
        self.device.current_stream().wait_event(ready)
        return batch


def tensors_of(batch: Any) -> list[Any]:
    """The tensors on the device that are in a batch, however deep."""
    found: list[Any] = []
    map_leaves(
        batch,
        lambda tensor, path: found.append(tensor),
        lambda part: hasattr(part, "record_stream"),
    )
    return found


class KeepsMemory(Waits):
    """Mend: no copy gets a batch's memory while the training loop's stream works with it."""

    def receive(self, item: Any) -> Any:
        batch = super().receive(item)
        for tensor in tensors_of(batch):
            tensor.record_stream(self.device.current_stream())
        return batch


class TellsErrors(KeepsMemory):
    """Mend: an exception in the thread comes to the training loop, in its batch's place."""

    def fill(self) -> None:
        try:
            super().fill()
        except Exception as error:
            self.queue.put(error)

    def receive(self, item: Any) -> Any:
        if isinstance(item, Exception):
            raise item
        return super().receive(item)


class EndsEpochs(TellsErrors):
    """Mend: each epoch has a thread and a queue of its own, and both end with it."""

    def __init__(self, loader: Any, device: Device, queue_size: int = 2) -> None:
        self.loader, self.device = loader, device
        self.queue_size, self.stream = queue_size, device.new_stream()

    def fill_for(self, epoch: queue.Queue[Any], done: threading.Event) -> None:
        try:
            for batch in self.loader:
                with self.device.stream(self.stream):
                    epoch.put(self.send(batch))
                if done.is_set():
                    return
            epoch.put(None)
        except Exception as error:
            epoch.put(error)

    def __iter__(self) -> Iterator[Any]:
        epoch, done = queue.Queue[Any](self.queue_size), threading.Event()
        thread = threading.Thread(target=self.fill_for, args=(epoch, done), daemon=True)
        thread.start()
        try:
            yield from map(self.receive, iter(epoch.get, None))  # until None comes
        finally:
            done.set()
            while thread.is_alive():
                with contextlib.suppress(queue.Empty):
                    epoch.get(timeout=0.01)  # it may wait for room


class KeepsContainers(EndsEpochs):
    """Mend: a batch keeps its types, named tuples and dataclasses too."""

    def moved(self, batch: Any) -> Any:
        return map_leaves(batch, lambda tensor, path: self.copied(tensor), torch.is_tensor)


VERSIONS = {
    "naive": Naive,
    "pins": Pins,
    "waits": Waits,
    "keeps memory": KeepsMemory,
    "tells errors": TellsErrors,
    "ends epochs": EndsEpochs,
    "keeps containers": KeepsContainers,
}
"""By name, in the order in which they are built."""
