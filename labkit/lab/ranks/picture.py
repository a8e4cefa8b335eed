"""Who read which sample: a row for each worker of each rank, a column for each sample.

Before it: ranks that told what they read. After it: `plots.pictures`, which brings it into the
notebook.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

from labkit.lab import need
from labkit.lab.plots.lettering import DPI, Pen, Type, width_inches
from labkit.lab.plots.palette import Theme, theme
from labkit.lab.plots.pictures import Picture
from labkit.lab.ranks.verdicts import Verdict, judged

need("matplotlib")

from matplotlib.figure import Figure  # noqa: E402 (what is missing is named first)
from matplotlib.patches import Rectangle  # noqa: E402

__all__ = ["Read", "show"]

Read = tuple[int, int, int]
"""(sample, worker, batch number in that rank's epoch)."""

_WIDTH, _MARGIN, _RIGHT = 8.2, 1.55, 0.2
_ROW, _HEAD, _FOOT, _GAP = 0.25, 0.5, 0.24, 0.12
_TITLE, _TEXT, _SMALL = Type(11, 0.24, "bold"), Type(9.5, 0.2), Type(8.5, 0.18)
_TOP = 0.4
_RANKS = (("#0072b2", "#ffffff"), ("#e69f00", "#000000"), ("#009e73", "#000000"))


def show(length: int, epochs: Mapping[str, Sequence[Sequence[Read]]]) -> Picture:
    """The picture, with a sentence under it, for a notebook cell to end in.

    Args:
        length: of the dataset.
        epochs: by title, what each rank read, by rank.

    Raises:
        ValueError: there is no epoch, or a sample is not of the dataset.
    """
    if not epochs:
        raise ValueError("there is nothing to draw: give at least one epoch, by its title")
    verdicts = {title: _verdict(reads, length) for title, reads in epochs.items()}
    said = " ".join(_sentence(title, verdict) for title, verdict in verdicts.items())
    what = "A row for each worker of each rank, a column for each sample, batch numbers inside."
    return Picture(
        draw=partial(_figure, length, epochs),
        alt=f"Grid of who read which of {length} samples. {what} {said}",
        title="Figure: who read which sample",
        sentence=said,
    )


def _verdict(reads: Sequence[Sequence[Read]], length: int) -> Verdict:
    return judged([[sample for sample, _, _ in share] for share in reads], length)


def _sentence(title: str, verdict: Verdict) -> str:
    counts = " and ".join(map(str, verdict.counts))
    return f"{title.capitalize()}: the ranks read {counts} samples; {verdict}."


def _figure(length: int, epochs: Mapping[str, Sequence[Sequence[Read]]], dark: bool) -> Figure:
    colours = theme(dark)
    heights = [_HEAD + _ROW * len(_rows(reads)) + _FOOT + _GAP for reads in epochs.values()]
    drawn = Figure(figsize=(_WIDTH, _TOP + sum(heights)), dpi=DPI, facecolor=colours.paper)
    pen = Pen(drawn)
    words = "Who read which sample (inside: the number of the batch)"
    pen.write([words], 0.15, 0.1, _TITLE, colours.ink)
    top = _TOP
    for (title, reads), height in zip(epochs.items(), heights, strict=True):
        _grid(drawn, pen, top, title, length, reads, colours)
        top += height
    return drawn


def _rows(reads: Sequence[Sequence[Read]]) -> list[tuple[int, int]]:
    """(rank, worker) of each row."""
    return sorted({(rank, worker) for rank, share in enumerate(reads) for _, worker, _ in share})


def _grid(
    drawn: Figure,
    pen: Pen,
    top: float,
    title: str,
    length: int,
    reads: Sequence[Sequence[Read]],
    colours: Theme,
) -> None:
    """One epoch: its title, the samples' numbers, the rows, and below what was not read once."""
    column = (_WIDTH - _MARGIN - _RIGHT) / length
    pen.write([title], 0.15, top + 0.08, _TEXT, colours.ink)
    step = 1 if column >= 0.22 else 5
    for sample in range(0, length, step):
        x = _MARGIN + column * (sample + 0.5)
        pen.write([str(sample)], x, top + _HEAD - 0.2, _SMALL, colours.muted, "center")
    for number, (rank, worker) in enumerate(_rows(reads)):
        y = top + _HEAD + _ROW * number
        words = f"rank {rank}, worker {worker}" if worker >= 0 else f"rank {rank}"
        pen.write([words], _MARGIN - 0.1, y + 0.03, _TEXT, colours.ink, "right")
        cells: dict[int, list[int]] = {}
        for sample, by, batch in reads[rank]:
            if by == worker:
                cells.setdefault(sample, []).append(batch)
        for sample in range(length):
            place = (_MARGIN + column * sample, y, column)
            _cell(drawn, pen, place, rank, cells.get(sample, []), colours)
    times = Counter(sample for share in reads for sample, _, _ in share)
    under = top + _HEAD + _ROW * len(_rows(reads)) + 0.03
    odd = {sample: times[sample] for sample in range(length) if times[sample] != 1}
    for sample, count in odd.items():
        x = _MARGIN + column * (sample + 0.5)
        pen.write([f"{count}×"], x, under, _SMALL, colours.prediction, "center")
    if odd:
        pen.write(["read"], _MARGIN - 0.1, under, _SMALL, colours.prediction, "right")


def _cell(
    drawn: Figure,
    pen: Pen,
    place: tuple[float, float, float],
    rank: int,
    batches: Sequence[int],
    colours: Theme,
) -> None:
    x, y, wide = place
    height = drawn.get_figheight()
    colour, ink = _RANKS[rank % len(_RANKS)]
    drawn.add_artist(
        Rectangle(
            (x / _WIDTH, 1 - (y + _ROW) / height), wide / _WIDTH, _ROW / height,
            transform=drawn.transFigure, facecolor=colour if batches else "none",
            edgecolor=colours.grid, linewidth=0.6,
        )
    )  # fmt: skip
    words = ",".join(map(str, batches))
    if words and width_inches(words, _SMALL) <= wide:
        pen.write([words], x + wide / 2, y + 0.035, _SMALL, ink, "center")
