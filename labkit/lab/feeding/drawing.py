"""How many GPUs each resource feeds, drawn: a bar for each, and a line at as many as there are.

Before it: `feed` in the package. After it: `plots.pictures`, which brings it into the notebook.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from labkit.lab import need
from labkit.lab.explain.wording import number
from labkit.lab.feeding import Feeding, Share
from labkit.lab.plots.axis import lying_bars
from labkit.lab.plots.lettering import DPI, Pen, Type, width_inches
from labkit.lab.plots.palette import Theme, theme
from labkit.lab.plots.pictures import Picture

need("matplotlib")

from matplotlib.axes import Axes  # noqa: E402 (what is missing is named first)
from matplotlib.figure import Figure  # noqa: E402

__all__ = ["show"]

_WIDTH, _ROW, _HEAD = 8.2, 0.3, 0.34
_TOP, _BOTTOM, _RIGHT = 0.46, 0.62, 0.75
_TITLE, _TEXT, _BOLD = Type(11, 0.24, "bold"), Type(9.5, 0.2), Type(9.5, 0.2, "bold")


def show(ways: Mapping[str, Feeding]) -> Picture:
    """The picture, with a sentence under it, for a notebook cell to end in.

    Args:
        ways: to load, by name, on the same number of GPUs.

    Raises:
        ValueError: there is none, or they are for different numbers of GPUs.
    """
    if len({way.limit.gpus for way in ways.values()}) != 1:
        raise ValueError("one picture is for one number of GPUs: give ways with the same `gpus`")
    said = " ".join(f"{name.capitalize() or 'Sums'}: {way.sentence}." for name, way in ways.items())
    bars = "; ".join(
        f"{name or 'bars'}: " + ", ".join(f"{s.resource} {number(s.feeds)}" for s in way.shares)
        for name, way in ways.items()
    )
    gpus = next(iter(ways.values())).limit.gpus
    return Picture(
        draw=partial(_figure, ways, gpus),
        alt=f"Bars: how many GPUs each resource feeds, with a line at the {gpus} that there are. "
        f"{bars}.",
        title="Figure: how many GPUs each resource feeds",
        sentence=f"Computed, not measured. {said}",
    )


def _figure(ways: Mapping[str, Feeding], gpus: int, dark: bool) -> Figure:
    colours = theme(dark)
    rows = sum(1 + len(way.shares) for way in ways.values())
    height = _TOP + _ROW * rows + _BOTTOM
    drawn = Figure(figsize=(_WIDTH, height), dpi=DPI, facecolor=colours.paper)
    pen = Pen(drawn)
    pen.write(["How many GPUs each resource feeds"], 0.15, 0.1, _TITLE, colours.ink)
    names = [share.resource for way in ways.values() for share in way.shares]
    margin = max(width_inches(name, _TEXT) for name in names) + 0.35
    axes = lying_bars(drawn, (margin, _TOP, _RIGHT, _BOTTOM), [2.0 * gpus], rows, colours)
    axes.axvline(gpus, color=colours.prediction, linestyle="--", linewidth=1.4)
    row = 0
    for name, way in ways.items():
        pen.write([name], margin, _TOP + _ROW * row + 0.09, _BOLD, colours.ink)
        for place, share in enumerate(way.shares, row + 1):
            above = _TOP + _ROW * place + 0.05
            pen.write([share.resource], margin - 0.1, above, _TEXT, colours.ink, "right")
            _bar(axes, place, share, colours)
        row += 1 + len(way.shares)
    middle = margin + (_WIDTH - margin - _RIGHT) / 2
    words = f"GPUs that it feeds (dashed: the {gpus} that there are)"
    pen.write([words], middle, height - 0.3, _TEXT, colours.ink, "center")
    return drawn


def _bar(axes: Axes, row: int, share: Share, colours: Theme) -> None:
    """Whoever feeds more than the axis shows is cut there, and has an arrow."""
    most = axes.get_xlim()[1]
    enough = share.feeds >= share.gpus
    colour, hatch = (colours.interval, "") if enough else (colours.data, "///")
    width = min(share.feeds, most)
    axes.barh(row, width, 0.62, color=colour, edgecolor=colours.ink, hatch=hatch, linewidth=0.6)
    said = number(share.feeds) + (" →" if share.feeds > most else "")
    axes.text(
        width + most / 120, row, said, va="center", fontsize=8.5, color=colours.ink,
        parse_math=False, clip_on=False, zorder=4,
        bbox={"facecolor": colours.paper, "edgecolor": "none", "pad": 0.6},
    )  # fmt: skip
