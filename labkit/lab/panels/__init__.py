"""Panels to play with: choose settings, predict, run, see, compare. One line in a notebook each.

    labkit.lab.panels.start_methods()

Each compares loaders in one argument, measured in processes of their own
(`labkit.lab.experiments.loading`). In code, `panel.run(workers=2)` does what the Run button does,
and takes every argument of `loading`.

Before it: `comparisons`, what there is to compare; `model`, the object, and `view`, its skin.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from labkit.lab import need
from labkit.lab.doctor import sizes
from labkit.lab.experiments import loading
from labkit.lab.experiments.beside import ALONE, WORKS
from labkit.lab.experiments.beside import beside_python as measure_beside_python
from labkit.lab.experiments.comparisons import COMPARISONS, bytes_words
from labkit.lab.experiments.first_touch import WAYS
from labkit.lab.experiments.first_touch import first_touch as measure_first_touch
from labkit.lab.experiments.setting import LOADERS
from labkit.lab.experiments.sharing_costs import KEPT
from labkit.lab.experiments.threads_or_processes import DATASETS, WHO
from labkit.lab.experiments.threads_or_processes import QUANTITIES as BATCH_TIMES
from labkit.lab.experiments.threads_or_processes import (
    threads_or_processes as measure_threads_or_processes,
)
from labkit.lab.failures.acts import FAILURES
from labkit.lab.failures.noticing import noticing
from labkit.lab.failures.sides import SIDES
from labkit.lab.machine import cores
from labkit.lab.panels.advising import advise
from labkit.lab.panels.model import Control, Panel
from labkit.lab.panels.pipeline import pipeline
from labkit.lab.panels.preloading import preloaders, queue_sizes
from labkit.lab.panels.streams import copies_to_device, early_reads, two_streams
from labkit.lab.panels.what_if import what_if

__all__ = [
    "advise",
    "batch_size",
    "beside_python",
    "collates",
    "copies_to_device",
    "early_reads",
    "failures",
    "first_touch",
    "fresh_or_recycled",
    "loaders",
    "messages",
    "panel",
    "payload",
    "persistent_workers",
    "pipeline",
    "prefetch",
    "preloaders",
    "queue_sizes",
    "sharing_strategies",
    "start_methods",
    "threads_or_processes",
    "two_streams",
    "what_if",
    "workers",
]


def start_methods() -> Panel:
    """What starting workers costs: time to the first batch, or memory, by start method."""
    quantities = (
        "time to the first batch",
        "time to the next loader's first batch",
        "memory that the workers add",
    )
    return panel(
        "Compare start methods",
        "start_method",
        [_quantity(quantities), _workers((1, 2), usual=1), _loader()],
    )


def sharing_strategies() -> Panel:
    """What it costs to bring a batch from a worker, by sharing strategy: time, page faults, memory,
    descriptors, names.
    """
    quantities = (
        "time a batch",
        "page faults a batch",
        "shared memory in use",
        f"descriptors for {KEPT} kept batches",
        f"mappings for {KEPT} kept batches",
        "names in /dev/shm",
        "memory that the workers add",
    )
    return panel(
        "Compare sharing strategies",
        "sharing_strategy",
        [_quantity(quantities), _batch_bytes(), _workers()],
    )


def messages() -> Panel:
    """A batch in the message, or a handle in its place: how many bytes cross, and how long."""
    return panel(
        "Compare messages",
        "sharing_strategy",
        [_quantity(("bytes in a message", "time a batch")), _batch_bytes(), _workers((1, 2))],
        options=["copy", "arena"],
    )


def workers() -> Panel:
    """How the time a batch goes with the number of workers, by what a sample costs."""
    work = {"none": 0.0, "0.5 ms of a core": 0.5, "2 ms of a core": 2.0}
    wait = {"none": 0.0, "0.5 ms": 0.5, "2 ms": 2.0}
    return panel(
        "Compare numbers of workers",
        "workers",
        [
            Control("work_ms", "Work a sample", work, 0.5),
            Control("wait_ms", "Wait a sample", wait, 0.0),
            _loader(),
        ],
    )


def prefetch() -> Panel:
    """What asking for more batches in advance brings, where some take longer."""
    slow = {"none": 0.0, **{f"one in 24, {ms} ms": float(ms) for ms in (10, 20, 40)}}
    step = {"none": 0.0, "4 ms": 4.0, "10 ms": 10.0}
    return panel(
        "Compare prefetch factors",
        "prefetch_factor",
        [
            Control("wait_ms", "Slow samples", slow, 20.0),
            Control("step_ms", "Step a batch", step, 4.0),
            _workers((1, 2)),
        ],
    )


def batch_size() -> Panel:
    """What a sample costs, by how many come together."""
    size = {bytes_words(n): n for n in (400, 4_000, 40_000)}
    return panel(
        "Compare batch sizes",
        "batch_size",
        [Control("sample_bytes", "Bytes a sample", size, 4_000), _workers(), _loader()],
    )


def payload() -> Panel:
    """How the time a batch goes with its bytes."""
    strategies = {"labkit's default": None}
    strategies |= {name: name for name in COMPARISONS["sharing_strategy"].options()}
    return panel(
        "Compare payloads",
        "batch_bytes",
        [Control("sharing_strategy", "Sharing strategy", strategies, None), _workers((1, 2))],
    )


def persistent_workers() -> Panel:
    """What it costs to start the workers anew for every epoch."""
    methods = {name: name for name in COMPARISONS["start_method"].options()}
    batches = {str(n): n for n in (10, 100, 1000)}
    return panel(
        "Compare persistent workers with new ones",
        "persistent_workers",
        [
            Control("start_method", "Start method", methods, next(iter(methods))),
            Control("batches", "Batches an epoch", batches, 10),
            _workers((1, 2)),
        ],
    )


def collates() -> Panel:
    """What it brings to build a batch where it is sent from, by collate function."""
    return panel("Compare collate functions", "collate", [_batch_bytes(), _workers((1, 2))])


def fresh_or_recycled() -> Panel:
    """What it brings to use shared memory again."""
    return panel(
        "Compare fresh memory with recycled memory",
        "sharing_strategy",
        [_batch_bytes(), _workers((1, 2))],
        options=["file_descriptor", "arena"],
    )


def first_touch() -> Panel:
    """What the first touch of memory costs beside the copy that is to be made."""
    return Panel(
        "Measure the first touch",
        measure_first_touch,
        labels=list(WAYS),
        controls=[_batch_bytes()],
        widgets=lambda shown: need("labkit.lab.panels.view", "ipywidgets").show(shown),
    )


def loaders() -> Panel:
    """labkit's loader and PyTorch's, side by side."""
    return panel("Compare labkit with PyTorch", "loader", [_batch_bytes(), _workers()])


def beside_python() -> Panel:
    """What Python code loses beside work in another thread."""
    several = max(2, cores())
    return Panel(
        "Run Python beside a thread",
        measure_beside_python,
        labels=[ALONE, *WORKS],
        controls=[
            Control("threads", "Threads of BLAS and torch", {"1": 1, f"{several}": several}, 1)
        ],
        widgets=lambda shown: need("labkit.lab.panels.view", "ipywidgets").show(shown),
    )


def threads_or_processes() -> Panel:
    """Who should load: the main process, its threads, or worker processes."""
    step = {"none": 0.0, "5 ms of Python a batch": 5.0, "20 ms of Python a batch": 20.0}
    methods = {name: name for name in COMPARISONS["start_method"].options()}
    return Panel(
        "Compare threads with processes",
        measure_threads_or_processes,
        labels=list(WHO),
        controls=[
            Control(
                "work", "Work a sample", {name: name for name in DATASETS}, next(iter(DATASETS))
            ),
            _quantity(BATCH_TIMES),
            Control("workers", "Threads or processes", {str(n): n for n in (1, 2, 4)}, 2),
            Control("step_ms", "Step in the main thread", step, 0.0),
            Control("start_method", "Start method", methods, next(iter(methods))),
        ],
        widgets=lambda shown: need("labkit.lab.panels.view", "ipywidgets").show(shown),
    )


def failures() -> Panel:
    """After how long each loader tells of a failure, and what it says."""
    methods = {name: name for name in COMPARISONS["start_method"].options()}
    both = {name: name for name in ("file_descriptor", "file_system")}
    return Panel(
        "Break both loaders",
        noticing,
        labels=list(SIDES),
        controls=[
            Control("failure", "Failure", {name: name for name in FAILURES}, "worker exits"),
            Control("start_method", "Start method", methods, next(iter(methods))),
            Control(
                "sharing_strategy", "Sharing strategy", {"each one's default": None, **both}, None
            ),
        ],
        widgets=lambda shown: need("labkit.lab.panels.view", "ipywidgets").show(shown),
    )


def panel(
    title: str,
    compare: str,
    controls: Sequence[Control] = (),
    options: Sequence[Any] | None = None,
    **arguments: Any,
) -> Panel:
    """A panel that compares loaders.

    Args:
        title: in verb form.
        compare: the argument in which they differ, as in `labkit.lab.experiments.loading`.
        controls: further arguments, which the learner may choose.
        options: the values compared; those that there are on this machine if None.
        **arguments: further arguments that stay as they are.
    """
    comparison = COMPARISONS[compare]
    values = comparison.options() if options is None else list(options)
    return Panel(
        title,
        functools.partial(loading, compare, options=values, **arguments),
        labels=[comparison.label(value) for value in values],
        controls=controls,
        widgets=lambda shown: need("labkit.lab.panels.view", "ipywidgets").show(shown),
    )


def _quantity(names: Sequence[str]) -> Control:
    return Control("quantity", "Measure", {name: name for name in names}, names[0])


def _workers(counts: Sequence[int] = (0, 1, 2, 4), usual: int | None = None) -> Control:
    value = min(sizes().workers, max(counts)) if usual is None else usual
    return Control("workers", "Workers", {str(n): n for n in sorted({*counts, value})}, value)


def _batch_bytes() -> Control:
    usual = sizes().batch_bytes
    offered: Mapping[str, int] = {
        bytes_words(n): n for n in sorted({4_000, 64_000, 1_000_000, usual})
    }
    return Control("batch_bytes", "Bytes a batch", offered, usual)


def _loader() -> Control:
    return Control("loader", "Loader", {name: name for name in LOADERS}, "labkit")
