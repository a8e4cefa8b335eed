"""The widgets of a panel: settings left, result right, history below.

A thin skin: it reads what it shows from the `Panel` and calls its methods. A run takes place in a
thread, so that Cancel works and other cells run meanwhile. Results go into HTML widgets with alt
text, never into an output area, which from a thread would take what other cells print.

Before it: `model`. After it: the learner.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from html import escape
from typing import Any

from labkit.lab import need
from labkit.lab.code_spans import with_code
from labkit.lab.panels.entry import Entry
from labkit.lab.panels.history import html_table, prediction_words
from labkit.lab.panels.markup import progress_bar, recorded_html, run_html, text_block
from labkit.lab.panels.model import Control, Panel

widgets: Any = need("ipywidgets")

__all__ = ["PanelView", "button", "show"]

_CHOOSE = "choose one …"
_FIRST_FIGURE_SECONDS = 8.0  # a run that takes longer shows what there is,
_NEXT_FIGURE_SECONDS = 10.0  # and then that often


def show(panel: Panel) -> Any:
    """The panel's widgets, which stay the same however often it is displayed."""
    return PanelView(panel).box


class PanelView:
    """The widgets; each attribute is one that tests and browsers may press or read."""

    def __init__(self, panel: Panel) -> None:
        self.panel = panel
        self.settings = {control.argument: _dropdown(control) for control in panel.controls}
        self.fastest = widgets.Dropdown(
            options=[_CHOOSE, *panel.labels], description="Least:", **_labelled()
        )
        self.factor = widgets.BoundedFloatText(
            value=1, min=1, max=1e6, step=0.5, description="Factor:", **_labelled()
        )
        self.predict = button("Predict", "Commit to this prediction")
        self.skip = button("Skip the prediction", "Run without a prediction")
        self.run = button("Run", "Measure with these settings", "primary")
        self.cancel = button("Cancel", "Stop measuring", "warning")
        self.progress = widgets.HTML()
        self.status = widgets.HTML()
        self.result = widgets.HTML()
        self.recorded = widgets.HTML()
        self.history = widgets.HTML()
        self.box = self._laid_out()
        self._asked = True  # for a prediction
        self._shown: Entry | None = None
        self._next_figure: float | None = None  # of the run under way; on time.monotonic()
        self._said = ""
        self._listen()
        self._hint_at_recording()
        self.refresh()

    def _laid_out(self) -> Any:
        title = widgets.HTML(f"<strong>{escape(self.panel.title)}</strong>")
        question = widgets.HTML(
            text_block(
                "<strong>Predict first</strong>: which will have the least, and how many times "
                "that will the greatest be?"
            )
        )
        buttons = widgets.Layout(flex_flow="row wrap")
        left = widgets.VBox(
            [
                title,
                *self.settings.values(),
                question,
                self.fastest,
                self.factor,
                widgets.HBox([self.predict, self.skip], layout=buttons),
                widgets.HBox([self.run, self.cancel], layout=buttons),
                self.progress,
                self.status,
            ],
            layout=widgets.Layout(width="350px", flex="0 0 auto"),
        )
        # On a narrow page it stands below, where the figure's letters can be read.
        right = widgets.VBox(
            [self.result, self.recorded], layout=widgets.Layout(flex="1 1 700px", min_width="0")
        )
        top = widgets.HBox([left, right], layout=widgets.Layout(flex_flow="row wrap"))
        return widgets.VBox([top, self.history])

    def _listen(self) -> None:
        self.predict.on_click(lambda _: self._commit())
        self.skip.on_click(lambda _: self._skip())
        self.run.on_click(lambda _: self._start())
        self.cancel.on_click(lambda _: self._stop())
        for control in self.settings.values():
            control.observe(lambda _: self._ask_again(), names="value")
        self.fastest.observe(lambda _: self._predict_anew(), names="value")
        self.factor.observe(lambda _: self._predict_anew(), names="value")
        self.panel.on_change.append(self.refresh)

    # What the learner does

    def _commit(self) -> None:
        self.panel.predict(self.fastest.value, self.factor.value)
        self._may_run()

    def _skip(self) -> None:
        self.panel.prediction = None
        self._may_run()

    def _may_run(self) -> None:
        self._asked = False
        beside = self.panel.beside(self._chosen)
        self.recorded.value = text_block(recorded_html(beside)) if beside is not None else ""
        self.refresh()

    def _predict_anew(self) -> None:
        """Buttons and values come in threads of their own: a value may come after its button."""
        if self.panel.prediction is not None and not self._asked:
            self.panel.predict(self.fastest.value, self.factor.value)
        self.refresh()

    def _ask_again(self) -> None:
        """A prediction was made for the settings as they were."""
        self.panel.prediction = None
        self._asked = True
        self._hint_at_recording()
        self.refresh()

    @property
    def _chosen(self) -> dict[str, Any]:
        return {argument: widget.value for argument, widget in self.settings.items()}

    def _start(self) -> None:
        chosen = self._chosen
        self._asked = True
        self.run.disabled = True
        thread = threading.Thread(
            target=self._measure, args=(chosen,), name=f"panel: {self.panel.title}", daemon=True
        )
        thread.start()

    def _measure(self, settings: dict[str, Any]) -> None:
        with suppress(Exception):  # `panel.error` tells of it
            self.panel.run(**settings)

    def _stop(self) -> None:
        self.cancel.disabled = True
        self._say("Cancelling …")
        self.panel.cancel()

    # What the learner sees

    def refresh(self) -> None:
        """Show what the panel knows now."""
        panel, running = self.panel, self.panel.running
        for control in self.settings.values():
            control.disabled = running
        waits = running or not self._asked
        self.fastest.disabled = self.factor.disabled = self.skip.disabled = waits
        self.predict.disabled = waits or self.fastest.value == _CHOOSE
        self.run.disabled = running or self._asked
        self.cancel.disabled = not running
        done, total, text = panel.progress
        self.progress.value = text_block(progress_bar(done, total, text)) if running else ""
        self._show_latest()
        self._say(*self._state())
        if not running:
            self.history.value = text_block(html_table(panel))

    def _hint_at_recording(self) -> None:
        """It would give the answer away before the prediction is made."""
        beside = self.panel.beside(self._chosen)
        if beside is None:
            return
        words = beside.words
        if beside.result is not None:
            words = "What was recorded with these settings comes here when you have predicted."
        self.recorded.value = text_block(f"<p>{with_code(words)}</p>")

    def _state(self) -> tuple[str, str]:
        """What is going on, and the role (WAI-ARIA) of a text that says so."""
        panel = self.panel
        if panel.running:
            return "Measuring …", "status"
        if not self._asked:
            words = prediction_words(panel.prediction)
            said = f"Your prediction: {words}." if words else "No prediction."
            return f"{said} Now press Run.", "status"
        if panel.error:
            return panel.error, "alert"
        done = "Done. For another run: predict" if panel.history else "Predict"
        return f"{done}, or skip that, and then press Run.", "status"

    def _say(self, text: str, role: str = "status") -> None:
        if text != self._said:  # else screen readers would say it again and again
            self._said = text
            edge = "border-left: 4px solid var(--jp-error-color1); padding-left: 6px"
            style = f' style="{edge}"' if role == "alert" else ""
            self.status.value = text_block(f'<div role="{role}"{style}>{escape(text)}</div>')

    def _show_latest(self) -> None:
        """The latest run's result; of one that takes long, what there is so far."""
        panel, now = self.panel, time.monotonic()
        if not panel.running:
            self._next_figure = None
            entry = panel.last
        else:
            self._next_figure = self._next_figure or now + _FIRST_FIGURE_SECONDS
            entry = panel.so_far if now >= self._next_figure else None
            if entry is not None:
                self._next_figure = now + _NEXT_FIGURE_SECONDS
        if entry is None and self._shown is None:
            self.result.value = "<p>No run yet: the figure will be here.</p>"
        elif entry is not None and entry is not self._shown:
            self._shown = entry
            self.recorded.value = ""  # it is in the run's own figure
            count = len(panel.history) + panel.running
            so_far = ", so far" if panel.running else ""
            self.result.value = text_block(f"<strong>Run {count}{so_far}</strong>{run_html(entry)}")


def _dropdown(control: Control) -> Any:
    return widgets.Dropdown(
        options=list(control.options.items()),
        value=control.value,
        description=f"{control.label}:",
        **_labelled(),
    )


def _labelled() -> dict[str, Any]:
    """With room for the label's words: ipywidgets would cut them off."""
    return {
        "style": {"description_width": "140px"},
        "layout": widgets.Layout(width="340px"),
    }


def button(words: str, tooltip: str, style: str = "") -> Any:
    """A button as wide as its words; the style is one of ipywidgets' ("primary", "warning" …)."""
    return widgets.Button(
        description=words,
        tooltip=tooltip,
        button_style=style,
        layout=widgets.Layout(width="auto"),
    )
