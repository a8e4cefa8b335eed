"""The Preloader's thread: takes batches, copies them on a stream of its own, hands them over.

Before it: the loader; `device.py`. After it: `preload.py`, the consumer's side. See NOTE [ What can
go wrong on a second stream ].
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

from labkit.containers import map_leaves
from labkit.device import Device, Event, Stream
from labkit.device_lanes import DeviceLanes
from labkit.recording import Source, step
from labkit.spans import span

__all__ = ["Carrier", "Copied", "Epoch", "Failed", "Steps"]

_COPIES_AHEAD = 2  # of the thread before the copy engine
_STEPS_AHEAD = 2  # of the program before the device, beside what the queue holds ready


class Carrier:
    """The thread's side: takes batches, copies them, hands them over.

    Args:
        epoch: to which it hands them over.
        device, stream: on which copies are made; None: batches are handed over as they come.
    """

    def __init__(self, epoch: Epoch, device: Device | None, stream: Stream | None) -> None:
        self._epoch = epoch
        self._device = device
        self._stream = stream
        self._lanes = DeviceLanes(device, epoch.source)
        self._sources: deque[tuple[Event, Any]] = deque()  # host memory that is being read

    def run(self, inner: Iterator[Any], close: Callable[[], None] | None) -> None:
        """The thread's whole life: until `inner` ends or raises, or the epoch is done.

        Args:
            inner: gives the batches.
            close: called in the end.
        """
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
            epoch.put(Failed(error))
        finally:
            with suppress(Exception):  # nobody is there to be told
                self._let_go(0)
            if close is not None:
                with suppress(Exception):
                    close()
            del inner, close  # the error's traceback has this frame: PyTorch's workers would stay

    def _copied(self, batch: Any, number: int) -> Copied:
        device, stream = self._device, self._stream
        if device is None or stream is None:
            return Copied(batch)
        self._wait_for_room()
        leaves: list[Any] = []
        sources: list[Any] = [batch]

        def copied(leaf: Any, path: str) -> Any:
            there = _to_device(device, leaf, sources)
            leaves.append(there)
            return there

        with step(self._epoch.source), span("copy", number), device.stream(stream):
            begin = self._lanes.mark(stream)
            try:
                with device.record_function(f"batch {number}"):
                    moved = map_leaves(batch, copied, lambda part: _is_movable(device, part))
            finally:  # what was issued before an error reads its source as well
                ready = stream.record_event()
                self._sources.append((ready, sources))
            self._lanes.note("copies", "copy", begin, self._lanes.mark(stream), number)
        self._let_go(_COPIES_AHEAD)
        return Copied(moved, leaves, ready)

    def _wait_for_room(self) -> None:
        """Wait until the device has done enough of what the consumer issued, so that the memory of
        those batches can be used again. That bounds what all batches take.

        A consumer that waits for nothing empties the queue at once: its batches are ahead of the
        device all the same, so both are counted together. The queue comes first: what the consumer
        takes between the two is counted twice, and not left out.
        """
        steps, ready = self._epoch.steps, self._epoch.queue
        most = self._epoch.queue_size + _STEPS_AHEAD
        while steps and (ready.qsize() + len(steps) > most or steps[0][0].query()):
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


@dataclass
class Copied:
    """A batch on its way to the consumer."""

    batch: Any
    leaves: list[Any] = field(default_factory=list)  #: its tensors on the device
    ready: Event | None = None  #: its copy has ended


@dataclass
class Failed:
    """What the thread met in place of a batch."""

    error: BaseException


Steps: TypeAlias = deque[tuple[Event, list[Any]]]
"""Of each batch that the consumer had: its work is done, and what must live until then."""


@dataclass
class Epoch:
    """What the thread and its iterator share.

    Args:
        queue_size: batches that may be ready.
        source: the iterator, in a trace.
        steps: at first those of the epochs before, whose batches are on the device as well.

    Attributes:
        queue: what is ready; None is the end.
        done: nobody wants any more.
    """

    queue_size: int
    source: Source
    steps: Steps = field(default_factory=deque)
    queue: queue.Queue[Copied | Failed | None] = field(init=False)
    done: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.queue = queue.Queue(self.queue_size)

    def put(self, item: Copied | Failed | None) -> None:
        """Wait for room; once `done` is set, drop it."""
        while not self.done.is_set():
            with suppress(queue.Full):
                return self.queue.put(item, timeout=1)

    def tell_the_end(self) -> None:
        """Give None to whoever waits, if there is room; without room nobody waits."""
        with suppress(queue.Full):
            self.queue.put_nowait(None)

    def empty(self) -> None:
        """Let go of what is ready."""
        with suppress(queue.Empty):
            while True:
                self.queue.get_nowait()


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
