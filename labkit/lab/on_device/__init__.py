"""Experiments on a device: the accelerator of this machine, or one that is simulated and says so.

    from labkit.lab import on_device

    device = on_device.the_device()
    on_device.EXPERIMENTS["…"].run(device)

The same code runs on both, through `labkit.device.Device`. `place` says on which device, and
measures there; `steps` has work for it. Each experiment has a module of its own.

Before it: `labkit.device`, `labkit.simulated`. After it: `panels`, and `recorded`, whose recordings
hold what the settings in `EXPERIMENTS` gave on another machine.
"""

from __future__ import annotations

from labkit.lab.on_device import copies_to_device, early_reads, preloading, queue_sizes, two_streams
from labkit.lab.on_device.experiment import Experiment
from labkit.lab.on_device.place import here, measure, the_device
from labkit.lab.on_device.steps import step

__all__ = ["EXPERIMENTS", "Experiment", "here", "measure", "step", "the_device"]

EXPERIMENTS: dict[str, Experiment] = {
    "copies to the device": Experiment(
        copies_to_device.copies_to_device,
        copies_to_device.RECORDED,
        tried=({"nbytes": 1_000_000},),
    ),
    "two streams": Experiment(
        two_streams.two_streams,
        two_streams.RECORDED,
        tried=({"batch_bytes": 1_000_000, "batches": 2},),
    ),
    "early reads": Experiment(
        early_reads.early_reads,
        tuple({"reader": reader} for reader in early_reads.READERS),
        tried=({"nbytes": 1_000_000},),
    ),
    "preloaders": Experiment(
        preloading.preloaders, preloading.RECORDED, tried=({"quantity": "wrong batches"},)
    ),
    "queue sizes": Experiment(
        queue_sizes.queue_sizes, queue_sizes.RECORDED, tried=({"quantity": "device memory"},)
    ),
}
"""By the name under which panels look for a recording; `python -m labkit record` runs them all."""
