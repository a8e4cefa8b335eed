"""The predicted timeline, drawn as a trace's, and marked as predicted.

Before it: `predicting`. After it: the panel `what_if`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from labkit.lab import need
from labkit.lab.plots.pictures import Picture
from labkit.lab.timeline import timeline, timeline_alt_text
from labkit.lab.timeline.window import Window
from labkit.tracing import Trace

need("matplotlib")

from matplotlib.figure import Figure  # noqa: E402 (what is missing is named first)

if TYPE_CHECKING:
    from labkit.lab.simulate.predicting import Prediction

__all__ = ["SHOWN_WORKERS", "show"]

SHOWN_WORKERS = 4
"""Of more workers, so many are drawn."""

_BATCHES = 12


def show(prediction: Prediction) -> Picture:
    """The timeline of a dozen batches, once all goes its usual way, with the sentence under it."""
    trace, batches = _shown(prediction)
    left_out = prediction.settings.num_workers - SHOWN_WORKERS
    more = f" {left_out} more workers are not drawn." if left_out > 0 else ""
    return Picture(
        draw=partial(_draw, trace, batches),
        alt=f"Predicted, not measured. {timeline_alt_text(trace, batches)}{more}",
        title="Figure: the predicted timeline of a loader",
        sentence=prediction.sentence + more,
    )


def _shown(prediction: Prediction) -> tuple[Trace, range]:
    """The part of the trace that is drawn: the first workers, and batches from the middle."""
    trace = prediction.trace
    shown = max(_BATCHES, 2 * min(prediction.settings.num_workers, SHOWN_WORKERS))
    first = len(prediction.taken_at[0]) - shown - 1
    batches = range(first, first + shown)
    trace.spans = [s for s in trace.spans if s.worker < SHOWN_WORKERS]
    return trace, batches


def _draw(trace: Trace, batches: range, dark: bool) -> Figure:
    title = Window.of(trace, batches).title
    predicted = f"Predicted, not measured: {title[:1].lower()}{title[1:]}"
    return timeline(trace, dark, batches, predicted)
