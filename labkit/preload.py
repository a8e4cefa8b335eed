"""Preloader: batches on the device before they are asked for.

A thread takes batches from any loader and copies them on a stream of its own, while the program
computes. Each batch comes with an event, so that nobody reads it before its copy has ended.

Before it: `loader.py`, or whatever gives batches; `device.py`, which has streams and events. After
it: the training loop.
Mirrors: the prefetchers that people write by hand (NVIDIA's `data_prefetcher` of apex, timm's
`PrefetchLoader`); PyTorch has none. See NOTE [ What can go wrong on a second stream ].
"""

from __future__ import annotations

import operator
import os
import queue
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

import torch

from labkit.containers import map_leaves
from labkit.device import Device, Event, Stream, find_device
from labkit.device_lanes import DeviceLanes
from labkit.iteration import BaseIterator
from labkit.loader import DataLoader
from labkit.recording import Source, step
from labkit.spans import span

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["PreloadIterator", "Preloader"]

T_co = TypeVar("T_co", covariant=True)

_STEPS_AHEAD = 2  # of the program before the device: more would only take memory
_COPIES_AHEAD = 2  # of the thread before the copy engine
_END_SECONDS = 5.0  # workers are gone by then; a thread that waits longer ends by itself


class Preloader(Generic[T_co]):
    """Wraps a loader and gives its batches on a device, ahead of time.

    Order, containers and their types, exceptions, `len`, several epochs and an early `break` are
    those of the loader. A new epoch ends the one before.

    Args:
        loader: labkit's or PyTorch's DataLoader, or any iterable of batches. With labkit's and the
            strategy "arena", workers build batches in memory that is page-locked for the device:
            nothing is copied on the host any more.
        device: a `torch.device` or its name, or a `labkit.device.Device` such as the simulated one;
            None for the current accelerator. Where there is none, or with "cpu", batches stay in
            host memory and are only asked for in advance.
        queue_size: batches that may be ready in advance, 1 or more. So many and some five more
            (being copied, in use) take memory on the device.

    Copied are tensors, in mappings, sequences and dataclasses; an object with a method `to` of its
    own is asked for that. All else stays what it is.

    Raises:
        TypeError, ValueError: the arguments are wrong.

    With `num_workers=0` the dataset runs on the Preloader's thread.
    """

    def __init__(
        self,
        loader: Iterable[T_co],
        device: Device | torch.device | str | int | None = None,
        queue_size: int = 2,
    ) -> None:
        if not hasattr(loader, "__iter__"):
            raise TypeError(
                f"a Preloader wraps an iterable of batches, such as a DataLoader, but got "
                f"{type(loader).__name__}"
            )
        if operator.index(queue_size) < 1:
            raise ValueError(f"queue_size is a whole number of 1 or more, but got {queue_size!r}")
        self.loader = loader
        self.device = find_device(device)
        self.queue_size = queue_size
        self._stream: Stream | None = None  # one for life: each has memory of its own
        self._latest: weakref.ref[PreloadIterator[T_co]] | None = None
        self._own: PreloadIterator[T_co] | None = None  # that of `next(preloader)`

    def __iter__(self) -> Iterator[T_co]:
        self.close()
        if self.device is not None and self._stream is None:
            self._stream = self.device.new_stream()
        iterator = PreloadIterator(self.loader, self.device, self._stream, self.queue_size)
        self._latest = weakref.ref(iterator)
        return iterator

    def __next__(self) -> T_co:
        """The next batch of the running epoch; the first call, and the first after an end, begins
        one.
        """
        if self._own is None:
            iterator = iter(self)
            assert isinstance(iterator, PreloadIterator)
            self._own = iterator
        try:
            batch: T_co = next(self._own)
        except BaseException:
            self._own = None
            raise
        return batch

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    @property
    def dataset(self) -> Any:
        """The loader's."""
        return self._of_the_loader("dataset")

    @property
    def sampler(self) -> Any:
        """The loader's."""
        return self._of_the_loader("sampler")

    @property
    def batch_size(self) -> Any:
        """The loader's."""
        return self._of_the_loader("batch_size")

    def _of_the_loader(self, name: str) -> Any:
        if not hasattr(self.loader, name):
            raise AttributeError(
                f"the loader inside, a {type(self.loader).__name__}, has no {name}"
            )
        return getattr(self.loader, name)

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch comes next; as the loader's `set_epoch`, or its sampler's."""
        knows = self.loader if hasattr(self.loader, "set_epoch") else self.sampler
        knows.set_epoch(epoch)

    def close(self) -> None:
        """End the running epoch, if there is one: its thread, and what it holds."""
        latest = self._latest() if self._latest is not None else None
        if latest is not None:
            latest.close()
        self._own = None

    def __getstate__(self) -> NoReturn:
        raise TypeError("a Preloader cannot be pickled: make one in the process that uses it")


@dataclass
class _Copied:
    """A batch on its way to the consumer."""

    batch: Any
    leaves: list[Any] = field(default_factory=list)  #: its tensors on the device
    ready: Event | None = None  #: its copy has ended


@dataclass
class _Failed:
    """What the thread met in place of a batch."""

    error: BaseException


@dataclass
class _Epoch:
    """What the thread and its iterator share."""

    queue_size: int
    source: Source
    queue: queue.Queue[_Copied | _Failed | None] = field(init=False)  #: None: the end
    done: threading.Event = field(default_factory=threading.Event)
    steps: deque[tuple[Event, list[Any]]] = field(default_factory=deque)
    """Of each batch that the consumer had: its work is done, and what must live until then."""

    def __post_init__(self) -> None:
        self.queue = queue.Queue(self.queue_size)

    def put(self, item: _Copied | _Failed | None) -> None:
        """Wait for room; once `done` is set, drop it."""
        while not self.done.is_set():
            with suppress(queue.Full):
                return self.queue.put(item, timeout=1)

    def close(self) -> None:
        """Let the thread end, also where it waits for room, and let go of what is ready."""
        self.done.set()
        with suppress(queue.Empty):
            while True:
                self.queue.get_nowait()


class PreloadIterator(Generic[T_co]):
    """One epoch of a `Preloader`, with its thread."""

    def __init__(
        self,
        loader: Iterable[T_co],
        device: Device | None,
        stream: Stream | None,
        queue_size: int,
    ) -> None:
        self._device = device
        self._epoch = _Epoch(queue_size, Source(max_depth=0))
        self._given: list[Any] | None = None  # of the batch that the consumer has, to be kept
        self._lanes = DeviceLanes(device, self._epoch.source)
        self._begun: Any = None  # in a trace: the consumer's work may begin
        self._batch = 0  # number of the next one
        if isinstance(loader, DataLoader):
            inner: Iterator[Any] = loader.iterate(page_locker=device)
        else:
            inner = iter(loader)
        carrier = _Carrier(self._epoch, device, stream)
        # Neither the thread nor the finalizer may know `self`, which would never be collected.
        thread = threading.Thread(target=carrier.run, args=(inner,), name="preloader", daemon=True)
        interrupt = inner.interrupt if isinstance(inner, BaseIterator) else None
        del inner
        self._end = weakref.finalize(self, _end, self._epoch, thread, interrupt, os.getpid())
        thread.start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T_co:
        with step(self._epoch.source):
            self._note_step()
            try:
                with span("wait", batch=-1):
                    item = self._epoch.queue.get() if self._end.alive else None
            except KeyboardInterrupt:
                self.close()  # a traceback would keep the thread
                raise
            if not isinstance(item, _Copied):
                self.close()
                if item is None:
                    raise StopIteration
                raise item.error
            self._await(item)
            with span("take", self._batch):
                self._batch += 1
            batch: T_co = item.batch
            return batch

    def _await(self, copied: _Copied) -> None:
        """Let the consumer's stream wait for the copy, and memory for the consumer's stream."""
        if self._device is None or copied.ready is None:
            return
        stream = self._device.current_stream()
        stream.wait_event(copied.ready)
        for leaf in copied.leaves:
            if hasattr(leaf, "record_stream"):
                leaf.record_stream(stream)
        self._given = [leaf for leaf in copied.leaves if not hasattr(leaf, "record_stream")]
        self._begun = self._lanes.mark(stream)

    def _note_step(self) -> None:
        """What the consumer does with the batch before is issued: note when it will be done."""
        if self._device is not None and self._given is not None:
            stream = self._device.current_stream()
            self._lanes.note(
                "steps", "step", self._begun, self._lanes.mark(stream), self._batch - 1
            )
            self._epoch.steps.append((stream.record_event(), self._given))
            self._given = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """End here: `next` raises StopIteration from now on. Safe to repeat.

        A thread that waits for a batch of a loader that is not labkit's ends when that has come.
        """
        self._given = None
        self._end()


def _end(epoch: _Epoch, thread: threading.Thread, interrupt: Any, owner_pid: int) -> None:
    if os.getpid() != owner_pid:
        return  # a forked child: the thread is not here
    epoch.close()
    if interrupt is not None:
        interrupt()
    if thread is not threading.current_thread() and thread.is_alive():
        thread.join(_END_SECONDS)
    epoch.close()  # what was put meanwhile


class _Carrier:
    """The thread's side: takes batches, copies them, hands them over."""

    def __init__(self, epoch: _Epoch, device: Device | None, stream: Stream | None) -> None:
        self._epoch = epoch
        self._device = device
        self._stream = stream
        self._lanes = DeviceLanes(device, epoch.source)
        self._sources: deque[tuple[Event, Any]] = deque()  # host memory that is being read

    def run(self, inner: Iterator[Any]) -> None:
        epoch = self._epoch
        try:
            batch = 0
            while not epoch.done.is_set():
                try:
                    found = next(inner)
                except StopIteration:
                    epoch.put(None)
                    break
                epoch.put(self._copied(found, batch))
                del found
                batch += 1
        except BaseException as error:
            epoch.put(_Failed(error))
        finally:
            self._let_go(0)
            if hasattr(inner, "close"):
                with suppress(Exception):  # nobody is there to be told
                    inner.close()

    def _copied(self, batch: Any, number: int) -> _Copied:
        device, stream = self._device, self._stream
        if device is None or stream is None:
            return _Copied(batch)
        self._wait_for_room()
        leaves: list[Any] = []
        sources: list[Any] = [batch]

        def copied(leaf: Any, path: str) -> Any:
            there = _to_device(device, leaf, sources)
            leaves.append(there)
            return there

        with step(self._epoch.source), span("copy", number), device.stream(stream):
            begin = self._lanes.mark(stream)
            with device.record_function(f"batch {number}"):
                moved = map_leaves(batch, copied, lambda part: _is_movable(device, part))
            ready = stream.record_event()
            self._lanes.note("copies", "copy", begin, self._lanes.mark(stream), number)
        self._sources.append((ready, sources))
        self._let_go(_COPIES_AHEAD)
        return _Copied(moved, leaves, ready)

    def _wait_for_room(self) -> None:
        """Wait until the device has done enough of what the consumer issued, so that the memory of
        those batches can be used again. That bounds what all batches take.
        """
        steps = self._epoch.steps
        while steps and (len(steps) > _STEPS_AHEAD or steps[0][0].query()):
            steps[0][0].synchronize()
            steps.popleft()

    def _let_go(self, most: int) -> None:
        """Drop host memory whose copy has ended; wait for it where more than `most` are kept.

        A slot of an arena is used again as soon as it is dropped, so it must not be before.
        """
        sources = self._sources
        while sources and (len(sources) > most or sources[0][0].query()):
            sources[0][0].synchronize()
            sources.popleft()


def _is_movable(device: Device, part: Any) -> bool:
    if isinstance(part, torch.Tensor):
        return True
    return not device.is_simulated and callable(getattr(part, "to", None))


def _to_device(device: Device, leaf: Any, sources: list[Any]) -> Any:
    """The leaf on the device, its copy issued on the current stream; from page-locked memory."""
    if not isinstance(leaf, torch.Tensor):
        if hasattr(leaf, "pin_memory"):
            leaf = leaf.pin_memory()
            sources.append(leaf)
        return leaf.to(device.name, non_blocking=True)
    if not device.is_pinned(leaf):
        leaf = device.pin(leaf)
        sources.append(leaf)
    return device.to_device(leaf, non_blocking=True)


# NOTE [ What can go wrong on a second stream ]
#
# 1. The consumer reads before the copy has ended. So a batch comes with an event, recorded after
#    its copy, for which the consumer's stream waits.
# 2. The source is used again while it is still read. So host memory is kept until that event.
# 3. The consumer drops a batch, its memory goes to the next copy, and a step that still runs reads
#    that. So each tensor is told the consumer's stream (`record_stream`).
# 4. Copies from pageable memory wait for the device, one by one. So what is not page-locked is
#    copied into memory that is, here on the thread.
# 5. The consumer issues work faster than the device does it, and each batch has memory of its own.
#    So the thread waits for the consumer's steps, by an event for each.
