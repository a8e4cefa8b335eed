"""The panels of notebook 09: preloaders against their limit, and the size of their queue.

Before it: `labkit.lab.on_device`, whose experiments they run; `model`. After it: the package.
"""

from __future__ import annotations

from labkit.lab import need
from labkit.lab.on_device import preloading
from labkit.lab.on_device import queue_sizes as queues
from labkit.lab.panels.model import Control, Panel

__all__ = ["preloaders", "queue_sizes"]


def preloaders() -> Panel:
    """What a preloader brings, by hand and labkit's: time a batch against its limit, or how many
    batches are read wrongly.
    """
    steps = {"none, it only reads": 0.0, "as long as a copy": 1.0, "as long as four": 4.0}
    return Panel(
        "Compare preloaders",
        preloading.preloaders,
        labels=[preloading.LIMIT, *preloading.TIMED],
        controls=[
            Control(
                "quantity",
                "Measure",
                {name: name for name in preloading.QUANTITIES},
                preloading.QUANTITIES[0],
            ),
            Control("step_copies", "Step", steps, 1.0),
            Control(
                "memory",
                "The loader's batches",
                {name: name for name in preloading.MEMORY},
                preloading.MEMORY[0],
            ),
        ],
        widgets=lambda shown: need("labkit.lab.panels.view", "ipywidgets").show(shown),
        recorded="preloaders",
    )


def queue_sizes() -> Panel:
    """What a longer queue brings where the loader's times are uneven, and what it costs."""
    times = {"half a step each": "even", "one in twelve takes six steps": "uneven"}
    return Panel(
        "Compare queue sizes",
        queues.queue_sizes,
        labels=[f"queue_size={size}" for size in queues.SIZES],
        controls=[
            Control(
                "quantity",
                "Measure",
                {name: name for name in queues.QUANTITIES},
                queues.QUANTITIES[0],
            ),
            Control("loader_times", "The loader's times", times, "even"),
        ],
        widgets=lambda shown: need("labkit.lab.panels.view", "ipywidgets").show(shown),
        recorded="queue sizes",
    )
