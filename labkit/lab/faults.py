"""Page faults by batch: where memory is fresh, and when it is so no more.

A worker is traced while it collates and pickles; the main process touches one byte of each page of
each batch, as whoever reads it does. Minor faults are those that need no disk: the system gives a
zeroed page, or enters one that is there into this process's page table (getrusage(2)).

Before it: `labkit.tracing`. After it: notebook 06.
"""

from __future__ import annotations

import mmap
import resource
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import labkit
from labkit.lab import need
from labkit.lab.datasets import Payload
from labkit.lab.doctor import sizes
from labkit.lab.explain.wording import number
from labkit.lab.plots.axis import axis_for, keep_back, tick
from labkit.lab.plots.lettering import DPI, Pen, Type
from labkit.lab.plots.palette import Theme, layer_style, theme
from labkit.lab.plots.pictures import Picture

need("matplotlib")

from matplotlib.axes import Axes  # noqa: E402 (what is missing is named first)
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.patches import Patch  # noqa: E402
from matplotlib.ticker import FixedLocator, FuncFormatter  # noqa: E402

__all__ = ["Faults", "by_batch", "faults_of", "show", "touch"]


@dataclass(frozen=True)
class Faults:
    """Minor page faults of one loader's batches, in their order.

    Attributes:
        pages: of a batch.
        worker: while it was collated and pickled.
        reader: while each of its pages was touched in the main process.
    """

    pages: int
    worker: tuple[int, ...]
    reader: tuple[int, ...]

    def late(self, counts: Sequence[int]) -> float:
        """The median over the second half of the batches."""
        return statistics.median(counts[len(counts) // 2 :])


def touch(tensor: torch.Tensor) -> None:
    """Read one byte of each of its pages, on this thread."""
    flat = tensor.reshape(-1).view(torch.uint8)
    int(flat[:: mmap.PAGESIZE].max())  # too few for torch to share out between threads


def faults_of(function: Callable[[], object]) -> int:
    """Minor page faults of this thread while `function` runs."""
    who = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)
    before = resource.getrusage(who).ru_minflt
    function()
    return resource.getrusage(who).ru_minflt - before


def by_batch(batches: int = 16, batch_bytes: int | None = None, **options: Any) -> Faults:
    """Load with one worker, and count the page faults of each batch.

    Args:
        batches: how many.
        batch_bytes: of each; None for what suits this machine.
        **options: further arguments of `labkit.DataLoader`, such as `sharing_strategy`.
    """
    batch_size = 8
    sample_bytes = max(1, (batch_bytes or sizes().batch_bytes) // batch_size)
    loading = {"num_workers": 1, "multiprocessing_context": "fork", **options}
    dataset = Payload(batches * batch_size, sample_bytes)
    loader = labkit.DataLoader(dataset, batch_size=batch_size, **loading)
    reader = []
    with labkit.trace() as trace:
        for batch in loader:
            touched = batch
            reader.append(faults_of(lambda: touch(touched)))  # noqa: B023 (called at once)
    worker = [0] * batches
    for span in trace.spans:
        if span.layer in ("collate", "pickle") and span.worker >= 0:
            worker[span.batch] += span.minor_faults
    pages = -(-batch_size * sample_bytes // mmap.PAGESIZE)
    return Faults(pages, tuple(worker), tuple(reader))


# The figure

_WIDTH, _PANEL, _GAP = 8.2, 1.15, 0.5
_LEFT, _RIGHT, _TOP, _BOTTOM = 0.8, 0.25, 0.85, 0.55
_TITLE = Type(13, 0.27, "bold")
_TEXT = Type(9.5, 0.2)
_WHO = {"worker": "collate", "reader": "consumer"}  # whose bars look as which layer of a timeline


def show(found: Mapping[str, Faults]) -> Picture:
    """The faults of some loaders, by batch, with a sentence for each; for a cell to end in.

    Raises:
        ValueError: there is none.
    """
    if not found:
        raise ValueError("there is nothing to draw: give at least one loader's faults, by its name")
    said = [_in_words(label, faults) for label, faults in found.items()]
    first = next(iter(found.values()))
    return Picture(
        draw=lambda dark: _figure(found, theme(dark)),
        alt=(
            f"Bar charts of minor page faults by batch, of {first.pages:,} pages each, in the "
            f"worker and in the main process. {' '.join(said)}"
        ),
        title=f"Figure: page faults by batch ({', '.join(found)})",
        sentence=" ".join(said),
    )


def _in_words(label: str, faults: Faults) -> str:
    worker, reader = faults.worker, faults.reader
    return (
        f"{label}: {worker[0]:,} faults in the worker for batch 0, a median of "
        f"{_count(faults.late(worker))} over the second half of the batches; in the main process "
        f"{reader[0]:,}, then {_count(faults.late(reader))}."
    )


def _count(median: float) -> str:
    return f"{median:,.0f}" if median % 1 == 0 else number(median)


def _figure(found: Mapping[str, Faults], colours: Theme) -> Figure:
    height = _TOP + len(found) * (_PANEL + _GAP) - _GAP + _BOTTOM
    drawn = Figure(figsize=(_WIDTH, height), dpi=DPI, facecolor=colours.paper)
    pen = Pen(drawn)
    pen.write(["Minor page faults, by batch"], 0.15, 0.12, _TITLE, colours.ink)
    most = max(max(f.pages, *f.worker, *f.reader) for f in found.values())
    for row, (label, faults) in enumerate(found.items()):
        top = _TOP + row * (_PANEL + _GAP)
        axes = _axes(drawn, top, height, most, colours)
        _bars(axes, faults, colours)
        pen.write([label], _LEFT, top - 0.24, _TEXT, colours.ink)
        words = f"dashed: the batch's {faults.pages:,} pages"
        pen.write([words], _WIDTH - _RIGHT, top - 0.24, _TEXT, colours.muted, "right")
        axes.axhline(faults.pages, color=colours.muted, linestyle="--", linewidth=1.2)
    pen.write(["batch"], _WIDTH / 2, height - 0.28, _TEXT, colours.ink, "center")
    _legend(drawn, colours)
    return drawn


def _axes(drawn: Figure, top: float, height: float, most: int, colours: Theme) -> Axes:
    wide = (_WIDTH - _LEFT - _RIGHT) / _WIDTH
    axes = drawn.add_axes(
        (_LEFT / _WIDTH, 1 - (top + _PANEL) / height, wide, _PANEL / height), facecolor="none"
    )
    axis = axis_for([0.0, float(most)])
    axes.set_ylim(0, axis.high)
    axes.yaxis.set_major_locator(FixedLocator(axis.ticks[::2]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))
    axes.grid(axis="y", color=colours.grid, linewidth=0.8)
    keep_back(axes, colours, ["bottom"])
    return axes


def _bars(axes: Axes, faults: Faults, colours: Theme) -> None:
    for place, (who, layer) in enumerate(_WHO.items()):
        counts, style = getattr(faults, who), layer_style(layer)
        axes.bar(
            [batch + 0.42 * (place - 0.5) for batch in range(len(counts))],
            counts,
            width=0.38,
            color=style.colour,
            hatch=style.hatch,
            edgecolor=colours.ink,
            linewidth=0.6,
            gid=who,
        )
    batches = len(faults.worker)
    axes.set_xlim(-0.7, batches - 0.3)
    axes.set_xticks(range(0, batches, max(1, batches // 16)))


def _legend(drawn: Figure, colours: Theme) -> None:
    names = {
        "worker": "in the worker: collate and pickle",
        "reader": "in the main process: one byte of each page read",
    }
    handles = [
        Patch(
            facecolor=layer_style(layer).colour,
            hatch=layer_style(layer).hatch,
            edgecolor=colours.ink,
            linewidth=0.6,
            label=names[who],
        )
        for who, layer in _WHO.items()
    ]
    height = drawn.get_size_inches()[1]
    drawn.legend(
        handles=handles,
        loc="upper right",
        bbox_to_anchor=(1 - 0.1 / _WIDTH, 1 - 0.05 / height),
        fontsize=9,
        frameon=False,
        labelcolor=colours.ink,
        ncols=1,
    )
