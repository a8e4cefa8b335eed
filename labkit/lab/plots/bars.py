"""Times as pairs of bars: a row for each case, in it a bar of each of two kinds.

Before it: `failures.picture` and `shared_memory.killed_picture`, which say what the bars are. After
it: `pictures`, which brings the figure into a notebook.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from labkit.lab import need
from labkit.lab.plots.axis import lying_bars
from labkit.lab.plots.lettering import DPI, Pen, Type, width_inches
from labkit.lab.plots.palette import Theme, theme

need("matplotlib")

from matplotlib.axes import Axes  # noqa: E402 (what is missing is named first)
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.patches import Rectangle  # noqa: E402

__all__ = ["HATCHED", "PLAIN", "Bar", "Look", "draw"]

_WIDTH, _ROW = 8.2, 0.52
_TOP, _BOTTOM, _RIGHT = 0.72, 0.62, 0.9
_TITLE, _TEXT = Type(13, 0.27, "bold"), Type(9.5, 0.2)
_PLACES = (-0.19, 0.19)
"""Of the first and the second kind, in a row that is 1 high."""


@dataclass(frozen=True)
class Look:
    """How the bars of one kind are told from the others: by colour and by hatching."""

    colour: str
    hatch: str


PLAIN, HATCHED = Look("#0072b2", ""), Look("#e69f00", "///")


@dataclass(frozen=True)
class Bar:
    """A time, and what is written at its end."""

    seconds: float
    words: str


def draw(
    title: str,
    rows: Mapping[str, Sequence[Bar | None]],
    kinds: Mapping[str, Look],
    axis_name: str,
    dark: bool = False,
) -> Figure:
    """The figure.

    Args:
        title: above all.
        rows: for each case its bars in the order of the kinds; None: it has no such bar.
        kinds: two, each with its look; the names stand in the legend.
        axis_name: what the seconds are counted from.
        dark: draw for a dark page.
    """
    colours = theme(dark)
    height = _TOP + _ROW * len(rows) + _BOTTOM
    drawn = Figure(figsize=(_WIDTH, height), dpi=DPI, facecolor=colours.paper)
    pen = Pen(drawn)
    margin = max(width_inches(name, _TEXT) for name in rows) + 0.3
    seconds = [bar.seconds for bars in rows.values() for bar in bars if bar]
    axes = lying_bars(drawn, (margin, _TOP, _RIGHT, _BOTTOM), seconds, len(rows), colours)
    pen.write([title], 0.15, 0.12, _TITLE, colours.ink)
    _legend(pen, drawn, kinds, margin, colours)
    for row, (name, bars) in enumerate(rows.items()):
        above = _TOP + _ROW * (row + 0.3)
        pen.write([name], margin - 0.12, above, _TEXT, colours.ink, "right")
        for place, bar, look in zip(_PLACES, bars, kinds.values(), strict=True):
            if bar is not None:
                _bar(axes, row + place, bar, look, colours)
    middle = margin + (_WIDTH - margin - _RIGHT) / 2
    pen.write([axis_name], middle, height - 0.32, _TEXT, colours.ink, "center")
    return drawn


def _bar(axes: Axes, y: float, bar: Bar, look: Look, colours: Theme) -> None:
    axes.barh(
        y, bar.seconds, height=0.3, color=look.colour, edgecolor=colours.ink, hatch=look.hatch,
        linewidth=0.6,
    )  # fmt: skip
    axes.text(
        bar.seconds, y, f" {bar.words}", va="center", fontsize=8.5, color=colours.ink,
        parse_math=False,
    )  # fmt: skip


def _legend(
    pen: Pen, drawn: Figure, kinds: Mapping[str, Look], margin: float, colours: Theme
) -> None:
    x, height = margin, drawn.get_figheight()
    for name, look in kinds.items():
        sample = Rectangle(
            (x / _WIDTH, 1 - 0.62 / height), 0.3 / _WIDTH, 0.14 / height,
            transform=drawn.transFigure, facecolor=look.colour, edgecolor=colours.ink,
            hatch=look.hatch, linewidth=0.6,
        )  # fmt: skip
        drawn.add_artist(sample)
        pen.write([name], x + 0.37, 0.44, _TEXT, colours.ink)
        x += 0.37 + width_inches(name, _TEXT) + 0.3
