"""Preloader: batches on the device before they are asked for.

A thread takes batches from any loader and copies them on a stream of its own, while the program
computes. Each batch comes with an event, so that nobody reads it before its copy has ended.

Before it: `loader.py`, or whatever gives batches; `device.py`, which has streams and events;
`preload_thread.py`, the thread. After it: the training loop.
Mirrors: the prefetchers that people write by hand (NVIDIA's `data_prefetcher` of apex, timm's
`PrefetchLoader`); PyTorch has none. See NOTE [ What can go wrong on a second stream ].
"""

from __future__ import annotations

import operator
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

import torch

from labkit.device import Device, Stream, find_device
from labkit.device_lanes import DeviceLanes
from labkit.loader import DataLoader
from labkit.multiprocess import MultiProcessIterator
from labkit.preload_thread import Carrier, Copied, Epoch, Steps
from labkit.recording import Source, step
from labkit.spans import span

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["PreloadIterator", "Preloader"]

T_co = TypeVar("T_co", covariant=True)

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
        if not hasattr(queue_size, "__index__"):
            raise TypeError(f"queue_size is a whole number of 1 or more, but got {queue_size!r}")
        if operator.index(queue_size) < 1:
            raise ValueError(f"queue_size is a whole number of 1 or more, but got {queue_size!r}")
        self.loader = loader
        self.device = find_device(device)
        self.queue_size = queue_size
        self._stream: Stream | None = None  # one for life: each has memory of its own
        self._latest: weakref.ref[PreloadIterator[T_co]] | None = None
        self._own: PreloadIterator[T_co] | None = None  # that of `next(preloader)`
        self._steps: Steps = deque()  # of the latest epoch

    def __iter__(self) -> Iterator[T_co]:
        self.close()
        if self.device is not None and self._stream is None:
            self._stream = self.device.new_stream()
        self._steps = self._steps_until_now()
        iterator = PreloadIterator(
            self.loader, self.device, self._stream, self.queue_size, self._steps
        )
        self._latest = weakref.ref(iterator)
        return iterator

    def _steps_until_now(self) -> Steps:
        """Those of all epochs that the device has yet to do."""
        before = self._steps.copy()  # a thread that has yet to end uses the other
        steps = deque(step for step in before if not step[0].query())
        if self.device is not None and self._latest is not None:
            # After a `break` nobody has noted the last batch.
            steps.append((self.device.current_stream().record_event(), []))
        return steps

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


class PreloadIterator(Generic[T_co]):
    """One epoch of a `Preloader`, with its thread.

    Raises:
        Exception: what iterating over the loader raised, or copying a batch; it ends the epoch.
        RuntimeError: in a forked child, where the thread is not.
    """

    def __init__(
        self,
        loader: Iterable[T_co],
        device: Device | None,
        stream: Stream | None,
        queue_size: int,
        steps: Steps,
    ) -> None:
        self._device = device
        self._epoch = Epoch(queue_size, Source(max_depth=0), steps)
        self._given: list[Any] | None = None  # of the batch that the consumer has, to be kept
        self._lanes = DeviceLanes(device, self._epoch.source)
        self._begun: Any = None  # in a trace: the consumer's work may begin
        self._batch = 0  # number of the next one
        self._owner_pid = os.getpid()
        inner, interrupt, close = _begun(loader, device)
        carrier = Carrier(self._epoch, device, stream)
        # Neither the thread nor the finalizer may know `self`, which would never be collected.
        thread = threading.Thread(
            target=carrier.run, args=(inner, close), name="preloader", daemon=True
        )
        self._end = weakref.finalize(self, _end, self._epoch, thread, interrupt, self._owner_pid)
        thread.start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T_co:
        if os.getpid() != self._owner_pid:
            raise RuntimeError(
                f"This epoch of a Preloader belongs to process {self._owner_pid}: its thread is "
                f"there, and a fork does not copy it into a child (this is process {os.getpid()}). "
                "Make a Preloader in the process that uses it."
            )
        with step(self._epoch.source):
            try:
                self._note_step()
                with span("wait", batch=-1):
                    item = self._epoch.queue.get() if self._end.alive else None
                if isinstance(item, Copied):
                    self._await(item)
                    with span("take", self._batch):
                        self._batch += 1
                    batch: T_co = item.batch
                    return batch
            except KeyboardInterrupt:
                self.close()  # a traceback would keep the thread; going on would miss a batch
                raise
            self.close()
            if item is None:
                self._epoch.tell_the_end()  # to another thread that waits here, too
                raise StopIteration
            error = item.error
            try:
                raise error
            finally:
                del self, item, error  # this frame is in the traceback: no cycle through it

    def _await(self, copied: Copied) -> None:
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


def _begun(
    loader: Iterable[Any], device: Device | None
) -> tuple[Iterator[Any], Callable[[], None] | None, Callable[[], None] | None]:
    """A new epoch of the loader, what ends a wait for its next batch, and what closes it."""
    if not isinstance(loader, DataLoader):
        iterator = iter(loader)
        return iterator, None, getattr(iterator, "close", None)
    inner = loader.iterate(page_locker=device)
    if isinstance(inner, MultiProcessIterator) and loader.persistent_workers:
        # Its workers are the loader's: they stay for the next epoch, until `loader.close()`.
        epoch = inner.this_epoch()
        return epoch, epoch.interrupt, None
    return inner, inner.interrupt, inner.close


def _end(
    epoch: Epoch, thread: threading.Thread, interrupt: Callable[[], None] | None, owner_pid: int
) -> None:
    if os.getpid() != owner_pid:
        return  # a forked child: the thread is not here
    epoch.done.set()
    if interrupt is not None:
        interrupt()
    if thread is threading.current_thread():
        return  # a garbage collection, perhaps within the queue, whose lock is not reentrant
    epoch.empty()  # the thread may wait for room
    if thread.is_alive():
        thread.join(_END_SECONDS)
    epoch.empty()  # what was put meanwhile
    epoch.tell_the_end()  # to a `next` that waits in another thread
