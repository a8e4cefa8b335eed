"""What a device does when, in a trace: its copies and the program's steps, on the trace's clock.

A device tells the time between two of its own events; one event whose time both clocks know joins
them. Spans are worked out when the trace ends, so that nobody waits for the device meanwhile.

Before it: `device.py`, `recording.py`. After it: `preload.py`, which marks what it issues.
"""

from __future__ import annotations

import os
import time
import warnings
from typing import Any

from labkit import recording
from labkit.device import Device, Stream
from labkit.recording import Recorder, Source
from labkit.spans import Span

__all__ = ["DeviceLanes"]

_Marked = tuple[str, str, Any, Any, int]  # lane, layer, the events before and after it, batch


class DeviceLanes:
    """Writes the spans of one epoch of a `Preloader` into the trace that runs, if one does.

    Args:
        device: its name is part of the lanes' names; None for the CPU, which has no streams.
        source: the epoch, in the trace.
    """

    def __init__(self, device: Device | None, source: Source) -> None:
        self._device = device
        self._source = source
        self._clock: tuple[Recorder, Any, float] | None = None  # whose, an event, when it was
        self._marked: list[_Marked] = []

    def mark(self, stream: Stream) -> Any:
        """An event here; None while nothing is traced."""
        running = recording.recorder
        if running is None or self._device is None:
            return None
        if self._clock is None or self._clock[0] is not running:
            self._begin(running, self._device, stream)
        return stream.record_event(self._device.timing_event())

    def note(self, lane: str, layer: str, begin: Any, end: Any, batch: int) -> None:
        """What a stream did between two marks; nothing where one of them is None."""
        if begin is not None and end is not None:
            self._marked.append((lane, layer, begin, end, batch))

    def _begin(self, running: Recorder, device: Device, stream: Stream) -> None:
        base: Any = stream.record_event(device.timing_event())
        base.synchronize()
        at = time.monotonic()
        self._clock = running, base, at
        marked: list[_Marked] = []
        self._marked = marked
        name, loader = device.name, self._source.serial
        running.defer(lambda: _spans(marked, base, at, name, loader))


def _spans(marked: list[_Marked], base: Any, at: float, device: str, loader: int) -> list[Span]:
    """What was marked; `base` is an event that happened at the time `at`."""
    found, lacking = [], None
    for lane, layer, begin, end, batch in marked:
        try:
            times = at + _seconds(base, begin), at + _seconds(base, end)
        except RuntimeError as error:  # it failed, or the device was closed before
            lacking = error
        else:
            name = f"{lane} ({device})"
            found.append(Span(name, layer, *times, batch, loader=loader, pid=os.getpid()))
    if lacking is not None:
        warnings.warn(f"The trace lacks some work of the {device}. {lacking}", stacklevel=4)
    return found


def _seconds(base: Any, event: Any) -> float:
    event.synchronize()
    seconds: float = base.elapsed_time(event) / 1e3
    return seconds
