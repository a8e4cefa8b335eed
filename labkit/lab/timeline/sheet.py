"""Where things stand on a timeline, in inches from its top left corner; and its legend.

Before it: `window`, what is drawn. After it: `timeline`, which draws in these places.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from labkit.lab import need
from labkit.lab.explain.wording import duration
from labkit.lab.plots.axis import keep_back
from labkit.lab.plots.lettering import Pen, Type, width_inches, wrapped
from labkit.lab.plots.palette import Theme, layer_style
from labkit.lab.timeline.window import Window

need("matplotlib")

from matplotlib.axes import Axes  # noqa: E402 (what is missing is named first)
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.patches import Rectangle  # noqa: E402
from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: E402

__all__ = ["BATCH", "LANE", "MARGIN", "PANEL", "Sheet", "TEXT", "TITLE", "WIDTH", "bar", "legend"]

WIDTH = 8.2
MARGIN = 0.15
LANE = 0.3
PANEL = 0.75
TITLE = Type(13, 0.27, "bold")
TEXT = Type(9, 0.2)
BATCH = Type(7.5, 0.16)

_GAP = 0.36
_BELOW = 0.62  # the time axis
_LEGEND = Type(9, 0.26)
_SAMPLE = 0.3
_WHO = {"main": "main process", "worker": "worker", "feeder": "feeder thread"}


@dataclass(frozen=True)
class Sheet:
    """Where things stand, in inches from the top left corner."""

    window: Window
    theme: Theme
    panels: int  #: below the lanes

    @property
    def notes(self) -> list[str]:
        """Lines below the title."""
        text = f"A bar: what a thread did. Its number: for which batch. {self.window.before}"
        return wrapped(text, WIDTH - 2 * MARGIN, TEXT)

    @property
    def unit(self) -> tuple[str, float]:
        """Of the time axis: its name, and how many of it are a second."""
        if self.window.seconds >= 2:
            return "s", 1.0
        return ("ms", 1e3) if self.window.seconds >= 2e-3 else ("µs", 1e6)

    @cached_property
    def left(self) -> float:
        """The axes' left end."""
        return max(width_inches(lane, TEXT) for lane in self.window.lanes) + MARGIN + 0.12

    @property
    def width(self) -> float:
        """The axes' width."""
        return WIDTH - self.left - 0.25

    @property
    def top(self) -> float:
        """The lanes' top."""
        return MARGIN + TITLE.line + TEXT.line * len(self.notes) + 0.08

    @property
    def lanes_height(self) -> float:
        """Of all together."""
        return LANE * len(self.window.lanes)

    def panel_top(self, panel: int) -> float:
        """The top of a panel, from 0 on."""
        return self.top + self.lanes_height + _GAP + panel * (PANEL + _GAP)

    @property
    def legend_top(self) -> float:
        """Where the legend begins."""
        return self.panel_top(self.panels) - _GAP + _BELOW

    @cached_property
    def legend_left(self) -> float:
        """Where its samples begin, right of whose layers they are."""
        return MARGIN + max(width_inches(_who(lane), _LEGEND) for lane in self.window.layers) + 0.15

    @cached_property
    def legend_lines(self) -> list[tuple[str, list[str]]]:
        """Its lines: whose layers, and which."""
        lines = []
        for lane, layers in self.window.layers.items():
            lines.append((_who(lane), list[str]()))
            left = room = WIDTH - MARGIN - self.legend_left
            for layer in layers:
                left -= _legend_wide(layer)
                if left < 0:
                    lines.append(("", []))
                    left = room - _legend_wide(layer)
                lines[-1][1].append(layer)
        return lines

    @property
    def height(self) -> float:
        """The figure's height."""
        return self.legend_top + _LEGEND.line * len(self.legend_lines) + MARGIN

    @property
    def time_axis_name_top(self) -> float:
        """Where the name of the time axis begins."""
        return self.legend_top - _BELOW + 0.24

    def axes(self, drawn: Figure, top: float, height: float) -> Axes:
        """Axes on the time of the window, in its unit since the trace began."""
        bottom = 1 - (top + height) / self.height
        place = self.left / WIDTH, bottom, self.width / WIDTH, height / self.height
        axes = drawn.add_axes(place, facecolor="none")
        low, high = self.time(self.window.start), self.time(self.window.start) + self.span
        ticks = [t for t in MaxNLocator(8).tick_values(low, high) if low <= t <= high]
        axes.set(xlim=(low, high), xticks=ticks)
        axes.tick_params(labelbottom=False)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        axes.grid(axis="x", color=self.theme.grid, linewidth=0.8)
        keep_back(axes, self.theme, ["left", "bottom"], size=8.5)
        return axes

    @cached_property
    def _zero(self) -> float:
        """Where the time axis counts from: far from it the numbers would be too long to read."""
        far = self.window.start - self.window.began > 20 * self.window.seconds
        return self.window.start if far else self.window.began

    def time(self, at: float) -> float:
        """The place of a moment on the axes."""
        return (at - self._zero) * self.unit[1]

    @property
    def time_axis_name(self) -> str:
        """The unit, and when 0 is."""
        if self._zero == self.window.began:
            return f"{self.unit[0]} since the trace began"
        return f"{self.unit[0]} since {duration(self._zero - self.window.began)} into the trace"

    @property
    def span(self) -> float:
        """The axes' length."""
        return self.window.seconds * self.unit[1]


def legend(drawn: Figure, sheet: Sheet) -> None:
    """A line for each kind of lane: a sample of each layer's bar, and its name."""
    pen, colours = Pen(drawn), sheet.theme
    for i, (who, layers) in enumerate(sheet.legend_lines):
        y = sheet.legend_top + i * _LEGEND.line
        pen.write([who], MARGIN, y, _LEGEND, colours.ink)
        x = sheet.legend_left
        for layer in layers:
            sample = Rectangle(
                (x / WIDTH, 1 - (y + 0.2) / sheet.height),
                _SAMPLE / WIDTH,
                0.15 / sheet.height,
                transform=drawn.transFigure,
                **bar(layer, colours),
            )
            drawn.add_artist(sample)
            pen.write([_words(layer)], x + _SAMPLE + 0.06, y, _LEGEND, colours.ink)
            x += _legend_wide(layer)


def bar(layer: str, colours: Theme) -> dict[str, Any]:
    """How a layer's bars look, in matplotlib's words."""
    style = layer_style(layer)
    return {
        "facecolor": style.colour or "none",
        "edgecolor": colours.muted if style.colour is None else "#1a1a1a",
        "linestyle": ":" if style.colour is None else "-",
        "hatch": style.hatch,
        "linewidth": 0.5,
    }


def _who(lane: str) -> str:
    return f"{_WHO.get(lane, lane)}:"


def _words(layer: str) -> str:
    return "consumer (your loop)" if layer == "consumer" else layer


def _legend_wide(layer: str) -> float:
    return _SAMPLE + 0.06 + width_inches(_words(layer), _LEGEND) + 0.16
