"""The work on a batch, layer by layer, as a figure.

Before it: `layers`. After it: `advice`. What was tried is drawn by `labkit.lab.plots`, the trace by
`labkit.lab.timeline`.
"""

from __future__ import annotations

from labkit.lab import need
from labkit.lab.advising.layers import LAYERS, Layers
from labkit.lab.explain.wording import duration
from labkit.lab.plots.axis import lying_bars
from labkit.lab.plots.lettering import DPI, Pen, Type, wrapped
from labkit.lab.plots.palette import layer_style, theme
from labkit.lab.plots.pictures import Picture

need("matplotlib")

from matplotlib.figure import Figure  # noqa: E402 (what is missing is named first)

__all__ = ["layers_picture"]

_WIDTH, _LEFT, _RIGHT = 8.2, 1.1, 2.1
_TOP, _ROW, _BELOW = 0.75, 0.42, 0.62
_TITLE, _TEXT = Type(13, 0.25, "bold"), Type(9.5, 0.2)
_MARGIN = 0.15
_STYLE = {"transport": "send"}


def layers_picture(layers: Layers) -> Picture:
    """A bar for each layer: how long it works on a batch; the one that holds back is marked."""
    return Picture(
        draw=lambda dark: _figure(layers, dark),
        alt=_alt_text(layers),
        title="Figure: the work on a batch, by layer",
    )


def _marked(layers: Layers, layer: str) -> str:
    return " ◀ holds it back" if layer == layers.held_back_by else ""


def _alt_text(layers: Layers) -> str:
    parts = []
    for name in LAYERS:
        marked = ", which holds it back" if name == layers.held_back_by else ""
        parts.append(f"{name} {duration(layers.seconds[name])}{marked}")
    return (
        f"Bar chart of the work on a batch by layer, over {layers.batches} batches: "
        f"{'; '.join(parts)}. From a batch to the next one it takes "
        f"{duration(layers.batch_seconds)}, marked by a dashed line."
    )


def _figure(layers: Layers, dark: bool) -> Figure:
    colours = theme(dark)
    height = _TOP + _ROW * len(LAYERS) + _BELOW
    drawn = Figure(figsize=(_WIDTH, height), dpi=DPI, facecolor=colours.paper)
    pen, whole = Pen(drawn), layers.batch_seconds * 1e3
    values = [whole, *(seconds * 1e3 for seconds in layers.seconds.values())]
    axes = lying_bars(drawn, (_LEFT, _TOP, _RIGHT, _BELOW), values, len(LAYERS), colours)
    axes.axvline(whole, color=colours.prediction, linestyle="--", linewidth=1.5)
    for row, name in enumerate(LAYERS):
        ms = layers.seconds[name] * 1e3
        style = layer_style(_STYLE.get(name, name))
        axes.barh(
            row,
            ms,
            height=0.66,
            color=style.colour or colours.paper,
            hatch=style.hatch,
            edgecolor=colours.ink,
            linewidth=0.6,
            gid=f"{name} a batch",
        )
        y = _TOP + (row + 0.5) * _ROW - _TEXT.line / 2
        pen.write([name], _LEFT - 0.1, y, _TEXT, colours.ink, "right")
        words = f"{duration(layers.seconds[name]) if ms else 'none'}{_marked(layers, name)}"
        end = axes.transData.transform((ms, 0))[0] / DPI
        pen.write([words], end + 0.08, y, _TEXT, colours.ink, behind=colours.paper)
    title = "Work on a batch, by layer, whoever does it"
    pen.write([title], _MARGIN, _MARGIN, _TITLE, colours.ink)
    under = f"Dashed: from a batch to the next one, {duration(layers.batch_seconds)}, in the trace."
    pen.write(wrapped(under, _WIDTH, _TEXT), _MARGIN, _MARGIN + 0.28, _TEXT, colours.muted)
    pen.write(["ms a batch"], _LEFT, height - 0.3, _TEXT, colours.ink)
    return drawn
