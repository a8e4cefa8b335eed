"""A trace as a figure: what every process did when, and how many batches were under way.

Before it: `labkit.tracing`, which recorded, `window`, which picks what fits on the page, and
`sheet`, which says where.

A row is a lane, that is a thread; a bar is a span; the number in it is the batch. Below, on the
same time axis: the tasks handed out, and the batches in the reorder buffer.
"""

from __future__ import annotations

import math

from labkit.lab import need
from labkit.lab.explain.wording import duration
from labkit.lab.plots.lettering import DPI, Pen, width_inches
from labkit.lab.plots.palette import layer_style, theme
from labkit.lab.plots.pictures import Picture
from labkit.lab.timeline.sheet import (
    BATCH,
    LANE,
    MARGIN,
    PANEL,
    TEXT,
    TITLE,
    WIDTH,
    Sheet,
    bar,
    legend,
)
from labkit.lab.timeline.window import Traced, Window, kind
from labkit.tracing import Steps

need("matplotlib")

from matplotlib.axes import Axes  # noqa: E402 (what is missing is named first)
from matplotlib.figure import Figure  # noqa: E402

__all__ = ["show", "timeline", "timeline_alt_text"]


def show(trace: Traced, batches: range | None = None) -> Picture:
    """The timeline for a notebook cell to end in.

    Raises:
        ValueError: as `timeline`.
    """
    return Picture(
        draw=lambda dark: timeline(trace, dark, batches),
        alt=timeline_alt_text(trace, batches),
        title="Figure: the timeline of a trace",
    )


def timeline(
    trace: Traced, dark: bool = False, batches: range | None = None, title: str = ""
) -> Figure:
    """Draw what each thread did for these batches, and what was done meanwhile.

    Args:
        trace: what was recorded.
        dark: for a dark page.
        batches: their numbers in the trace's first epoch; None for the first dozen or so.
        title: in place of the one that says which batches these are.

    Raises:
        ValueError: the trace has no batch, none of these, or more of them than a page can show.
    """
    panels = 2 if trace.max_depth else 0  # without workers there is nothing to count
    sheet = Sheet(Window.of(trace, batches), theme(dark), panels)
    drawn = Figure(figsize=(WIDTH, sheet.height), dpi=DPI, facecolor=sheet.theme.paper)
    pen = Pen(drawn)
    pen.write([title or sheet.window.title], MARGIN, MARGIN, TITLE, sheet.theme.ink)
    pen.write(sheet.notes, MARGIN, MARGIN + TITLE.line, TEXT, sheet.theme.muted)
    axes = _draw_lanes(drawn, sheet)
    if sheet.panels:
        under_way = (
            "tasks under way: handed out, their batches not yet taken "
            f"(dashed: at most prefetch_factor × num_workers = {trace.max_depth})"
        )
        _draw_steps(drawn, sheet, 0, under_way, trace.depth(sheet.window.loader), trace.max_depth)
        waiting = "reorder buffer: batches that have come and wait for their turn"
        axes = _draw_steps(drawn, sheet, 1, waiting, trace.reorder_buffer(sheet.window.loader), 0)
    _name_time(axes, pen, sheet)
    legend(drawn, sheet)
    return drawn


def timeline_alt_text(trace: Traced, batches: range | None = None) -> str:
    """What the timeline shows, in words: who did what for how much of the time."""
    window = Window.of(trace, batches)
    parts = [f"{window.title}, {duration(window.seconds)} long.", window.before]
    for lane, shares in window.shares().items():
        most = sorted(shares.items(), key=lambda item: -item[1])[:3]
        parts.append(f"{lane}: " + ", ".join(f"{layer} {part:.0%}" for layer, part in most) + ".")
    if not trace.max_depth:
        return " ".join(part for part in parts if part)
    deepest = max(value for _, value in window.steps(trace.depth(window.loader)))
    fullest = max(value for _, value in window.steps(trace.reorder_buffer(window.loader)))
    parts.append(f"At most {deepest} tasks were under way at once, and {trace.max_depth} may be.")
    parts.append(f"At most {fullest} batches waited for their turn in the reorder buffer.")
    return " ".join(part for part in parts if part)


def _draw_lanes(drawn: Figure, sheet: Sheet) -> Axes:
    axes = sheet.axes(drawn, sheet.top, sheet.lanes_height)
    axes.set(ylim=(sheet.lanes_height, 0), yticks=[])
    pen, lanes = Pen(drawn), sheet.window.lanes
    band = False
    for i, lane in enumerate(lanes):
        band = band != (kind(lane) != "feeder" and i > 0)  # a worker's feeder is its process too
        if band:
            axes.axhspan(i * LANE, (i + 1) * LANE, color=sheet.theme.band, zorder=0)
        y = sheet.top + i * LANE + (LANE - TEXT.line) / 2
        pen.write([lane], sheet.left - 0.1, y, TEXT, sheet.theme.ink, "right")
    layers = {(span.lane, span.layer) for span in sheet.window.spans}
    for lane, layer in sorted(layers):
        _draw_spans(axes, pen, sheet, lanes.index(lane), lane, layer)
    return axes


def _draw_spans(axes: Axes, pen: Pen, sheet: Sheet, row: int, lane: str, layer: str) -> None:
    """The bars of one layer in one lane, with the batch's number in those that are wide enough."""
    spans = [span for span in sheet.window.spans if (span.lane, span.layer) == (lane, layer)]
    style, unit = layer_style(layer), sheet.unit[1]
    least = 0.012 / sheet.width * sheet.span  # so that the shortest can be seen
    axes.broken_barh(
        [(sheet.time(span.start), max((span.end - span.start) * unit, least)) for span in spans],
        ((row + 0.14) * LANE, 0.72 * LANE),
        gid=f"{layer} in {lane}",
        zorder=2 if style.colour is None else 3,
        **bar(layer, sheet.theme),
    )
    if style.colour is None:
        return
    y = sheet.top + (row + 0.5) * LANE - BATCH.line / 2
    for span in spans:
        words = str(span.batch)
        wide = (span.end - span.start) / sheet.window.seconds * sheet.width
        if span.batch >= 0 and wide > width_inches(words, BATCH) + 0.06:
            middle = (span.start + span.end) / 2 - sheet.window.start
            x = sheet.left + middle / sheet.window.seconds * sheet.width
            pen.write([words], x, y, BATCH, style.ink, "center", style.colour)


def _draw_steps(
    drawn: Figure, sheet: Sheet, panel: int, name: str, steps: Steps, limit: int
) -> Axes:
    """One of the two counts over time; with a dashed line at its limit, if it has one."""
    top, colours = sheet.panel_top(panel), sheet.theme
    axes = sheet.axes(drawn, top, PANEL)
    inside = sheet.window.steps(steps)
    times = [sheet.time(at) for at, _ in inside]
    values = [value for _, value in inside]
    axes.fill_between(times, values, step="post", color=colours.interval, linewidth=0)
    axes.step(times, values, where="post", color=colours.data, linewidth=1.6, gid=name)
    if limit:
        axes.axhline(limit, color=colours.prediction, linestyle="--", linewidth=1.4)
    most = max(*values, limit, 1)
    axes.set(ylim=(0, most * 1.18), yticks=range(0, most + 1, math.ceil(most / 4)))
    left = max(MARGIN, min(sheet.left, WIDTH - MARGIN - width_inches(name, TEXT)))
    Pen(drawn).write([name], left, top - TEXT.line - 0.02, TEXT, colours.ink)
    return axes


def _name_time(axes: Axes, pen: Pen, sheet: Sheet) -> None:
    axes.tick_params(labelbottom=True)
    pen.write([sheet.time_axis_name], sheet.left, sheet.time_axis_name_top, TEXT, sheet.theme.ink)
