"""After how long each failure was told, both loaders, drawn.

Before it: `outcome`. After it: `plots.pictures`, which brings it into the notebook.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from labkit.lab import need
from labkit.lab.explain.wording import number
from labkit.lab.failures.outcome import Beside, Outcome
from labkit.lab.plots.axis import axis_for, keep_back, tick
from labkit.lab.plots.lettering import DPI, Pen, Type, width_inches
from labkit.lab.plots.palette import Theme, theme
from labkit.lab.plots.pictures import Picture

need("matplotlib")

from matplotlib.axes import Axes  # noqa: E402 (what is missing is named first)
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.patches import Rectangle  # noqa: E402

__all__ = ["sentence", "show"]

_WIDTH, _ROW = 8.2, 0.52
_TOP, _BOTTOM, _RIGHT = 0.72, 0.62, 0.9
_TITLE, _TEXT = Type(13, 0.27, "bold"), Type(9.5, 0.2)
_BARS = {"PyTorch": ("#e69f00", "///"), "labkit": ("#0072b2", "")}


def show(*pairs: Beside) -> Picture:
    """The picture, with a sentence under it, for a notebook cell to end in."""
    said = sentence(pairs)
    return Picture(
        draw=partial(_figure, pairs),
        alt=f"Bars over the seconds from each failure until it was told, by loader. {said}",
        title="Figure: after how long each failure was told",
        sentence=said,
    )


def sentence(pairs: Sequence[Beside]) -> str:
    """After how long, and who was given up."""
    parts = ["One run each, on this machine."]
    for pair in pairs:
        sides = ", ".join(f"{o.package} {_words(o)}" for o in pair.outcomes)
        parts.append(f"{pair.failure.capitalize()}: {sides}.")
    return " ".join(parts)


def _words(outcome: Outcome) -> str:
    seconds = f"{number(outcome.seconds)} s"
    return f"after {seconds}" if outcome.is_over else f"given up after {seconds}"


def _figure(pairs: Sequence[Beside], dark: bool) -> Figure:
    colours = theme(dark)
    height = _TOP + _ROW * len(pairs) + _BOTTOM
    drawn = Figure(figsize=(_WIDTH, height), dpi=DPI, facecolor=colours.paper)
    pen = Pen(drawn)
    margin = max(width_inches(pair.failure, _TEXT) for pair in pairs) + 0.3
    axes = _axes(drawn, pairs, margin, colours)
    pen.write(["After how long it was told"], 0.15, 0.12, _TITLE, colours.ink)
    _legend(pen, drawn, margin, colours)
    for row, pair in enumerate(pairs):
        above = _TOP + _ROW * (row + 0.3)
        pen.write([pair.failure], margin - 0.12, above, _TEXT, colours.ink, "right")
        for place, outcome in zip((-0.19, 0.19), pair.outcomes, strict=True):
            _bar(axes, row + place, outcome, colours)
    middle = margin + (_WIDTH - margin - _RIGHT) / 2
    pen.write(["s since the failure"], middle, height - 0.32, _TEXT, colours.ink, "center")
    return drawn


def _axes(drawn: Figure, pairs: Sequence[Beside], margin: float, colours: Theme) -> Axes:
    height = drawn.get_figheight()
    wide, high = _WIDTH - margin - _RIGHT, _ROW * len(pairs)
    place = margin / _WIDTH, _BOTTOM / height, wide / _WIDTH, high / height
    axes = drawn.add_axes(place, facecolor="none")
    axis = axis_for([0.0, *(outcome.seconds for pair in pairs for outcome in pair.outcomes)])
    axes.set(xlim=(0, axis.high), ylim=(len(pairs) - 0.5, -0.5), yticks=[], xticks=axis.ticks)
    axes.set_xticklabels([tick(value) for value in axis.ticks])
    axes.grid(axis="x", color=colours.grid, linewidth=0.8)
    keep_back(axes, colours, ["left", "bottom"])
    return axes


def _bar(axes: Axes, y: float, outcome: Outcome, colours: Theme) -> None:
    colour, hatch = _BARS[outcome.package]
    end = outcome.seconds
    axes.barh(y, end, height=0.3, color=colour, edgecolor=colours.ink, hatch=hatch, linewidth=0.6)
    said = f" {number(end)}" if outcome.is_over else " → given up"
    axes.text(end, y, said, va="center", fontsize=8.5, color=colours.ink, parse_math=False)


def _legend(pen: Pen, drawn: Figure, margin: float, colours: Theme) -> None:
    x, height = margin, drawn.get_figheight()
    for package, (colour, hatch) in _BARS.items():
        sample = Rectangle(
            (x / _WIDTH, 1 - 0.62 / height), 0.3 / _WIDTH, 0.14 / height,
            transform=drawn.transFigure, facecolor=colour, edgecolor=colours.ink, hatch=hatch,
            linewidth=0.6,
        )  # fmt: skip
        drawn.add_artist(sample)
        pen.write([package], x + 0.37, 0.44, _TEXT, colours.ink)
        x += 0.37 + width_inches(package, _TEXT) + 0.3
