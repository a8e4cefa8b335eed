"""The panels of notebook 08: copies to a device, two streams, reads too early.

Before it: `labkit.lab.on_device`, whose experiments they run; `model`. After it: the package, which
has them under their names.
"""

from __future__ import annotations

from collections.abc import Sequence

from labkit.lab import need
from labkit.lab.experiments.comparisons import bytes_words
from labkit.lab.on_device import copies_to_device as copying
from labkit.lab.on_device import early_reads as reading
from labkit.lab.on_device import two_streams as streaming
from labkit.lab.panels.model import Control, Panel

__all__ = ["copies_to_device", "early_reads", "two_streams"]


def copies_to_device() -> Panel:
    """When a copy's call returns and when the copy is done, by the memory and what it is told."""
    sizes_offered = {bytes_words(nbytes): nbytes for nbytes in copying.SIZES}
    return Panel(
        "Compare copies to the device",
        copying.copies_to_device,
        labels=list(copying.WAYS),
        controls=[
            Control("nbytes", "Bytes", sizes_offered, copying.SIZES[-1]),
            _quantity(copying.QUANTITIES),
        ],
        widgets=lambda shown: need("labkit.lab.panels.view", "ipywidgets").show(shown),
        recorded="copies to the device",
    )


def two_streams() -> Panel:
    """What a second stream brings, by what else there is."""
    step = {f"{ms} ms": ms for ms in streaming.STEPS_MS}
    return Panel(
        "Compare one stream with two",
        streaming.two_streams,
        labels=list(streaming.STREAMS),
        controls=[
            Control("pinned", "Memory", {"pinned": True, "pageable": False}, True),
            Control("non_blocking", "Copies", {"non_blocking": True, "blocking": False}, True),
            Control("events", "Events", {"a step waits for one": True, "none": False}, True),
            Control(
                "reads_each", "Main thread", {"reads each result": True, "goes on": False}, True
            ),
            Control("step_ms", "Step on the device", step, 0.3),
            _quantity(streaming.QUANTITIES),
        ],
        widgets=lambda shown: need("labkit.lab.panels.view", "ipywidgets").show(shown),
        recorded="two streams",
    )


def early_reads() -> Panel:
    """How often a value is wrong that is read while it is copied, and with an event."""
    readers = {reader: reader for reader in reading.READERS}
    return Panel(
        "Read while it is copied",
        reading.early_reads,
        labels=list(reading.ORDERS),
        controls=[Control("reader", "Who reads", readers, next(iter(readers)))],
        widgets=lambda shown: need("labkit.lab.panels.view", "ipywidgets").show(shown),
        recorded="early reads",
    )


def _quantity(names: Sequence[str]) -> Control:
    return Control("quantity", "Measure", {name: name for name in names}, names[0])
