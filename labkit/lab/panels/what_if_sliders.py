"""The widgets of a what-if panel: sliders left, what is predicted right, what was kept below.

A thin skin: a slider's move calls `look`, the button `keep`. Numbers and sentence follow each move;
the timeline, which takes longer to draw than to simulate, follows when the slider rests.

Before it: `what_if`. After it: the learner.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any

from labkit.lab import need
from labkit.lab.explain.wording import number
from labkit.lab.panels.controls import Control
from labkit.lab.panels.markup import text_block

if TYPE_CHECKING:
    from labkit.lab.panels.what_if import WhatIf
    from labkit.lab.simulate import Prediction

widgets: Any = need("ipywidgets")

__all__ = ["Sliders"]

_REST_SECONDS = 0.15
_CLASS = "labkit-what-if"
_OLD = "<em>Below: the timeline before; the new one comes.</em>"

_NAME_SLIDERS = """<script>
(() => {
  const say = slider => {
    const handle = slider.querySelector("[role=slider]");
    const label = slider.querySelector(".widget-label");
    const readout = slider.querySelector(".widget-readout");
    if (!handle || !label || !readout) return false;
    const tell = () => handle.setAttribute("aria-valuetext", readout.textContent);
    handle.setAttribute("aria-label", label.textContent.replace(/:$/, ""));
    readout.setAttribute("role", "textbox");
    readout.setAttribute("aria-label", label.textContent.replace(/:$/, "") + ", typed");
    new MutationObserver(tell).observe(readout, {childList: true, characterData: true,
                                                 subtree: true});
    tell();
    return true;
  };
  const look = left => {
    const sliders = [...document.querySelectorAll(".CLASS .widget-slider")];
    if ((!sliders.length || !sliders.every(say)) && left) setTimeout(look, 200, left - 1);
  };
  look(50);
})();
</script>""".replace("CLASS", _CLASS)
"""What ipywidgets leaves out: a slider's handle has its number, but no name and no words."""


class Sliders:
    """The widgets; each attribute is one that tests and browsers may move or read."""

    def __init__(self, panel: WhatIf) -> None:
        self.panel = panel
        self.settings = {c.argument: _slider(c) for c in panel.controls}
        self.keep = widgets.Button(
            description="Keep, to compare",
            tooltip="Keep what is predicted now in the table below",
            layout=widgets.Layout(width="auto"),
        )
        self.answer = widgets.HTML()
        self.drawing = widgets.HTML()  # whether the figure is that of another setting still
        self.figure = widgets.HTML(_timeline(panel.last))
        self.history = widgets.HTML()
        self.box = self._laid_out()
        self._drawn: Any = panel.last
        self._turn = threading.Lock()
        for slider in self.settings.values():
            slider.observe(lambda _: self._look(), names="value")
        self.keep.on_click(lambda _: panel.keep())
        panel.on_change.append(self.refresh)
        self.refresh()

    def _laid_out(self) -> Any:
        title = widgets.HTML(f"<strong>{escape(self.panel.title)}</strong>")
        source = widgets.HTML(text_block(f"<small>{escape(self.panel.provenance)}</small>"))
        left = widgets.VBox(
            [title, *self.settings.values(), self.keep, source],
            layout=widgets.Layout(width="350px", flex="0 0 auto"),
        )
        right = widgets.VBox(
            [self.answer, self.drawing, self.figure],
            layout=widgets.Layout(flex="1 1 700px", min_width="0"),
        )
        top = widgets.HBox([left, right], layout=widgets.Layout(flex_flow="row wrap"))
        box = widgets.VBox([top, self.history, _names_for_screen_readers()])
        box.add_class(_CLASS)
        return box

    def _look(self) -> None:
        self.panel.look(**{argument: slider.value for argument, slider in self.settings.items()})

    def refresh(self) -> None:
        """Show what is predicted now."""
        self.answer.value = text_block(_answer(self.panel))
        self.history.value = text_block(_table(self.panel.rows()))
        if self.panel.last is not self._drawn and self._turn.acquire(blocking=False):
            self.drawing.value = text_block(_OLD)
            threading.Thread(target=self._draw, name="what if: timeline", daemon=True).start()

    def _draw(self) -> None:
        """Draw the timeline that is wanted when the slider rests, until it is the latest."""
        self._draw_latest()
        if self.panel.last is not self._drawn:  # it was moved at the very end
            self.refresh()

    def _draw_latest(self) -> None:
        try:
            while (wanted := self.panel.last) is not self._drawn:
                time.sleep(_REST_SECONDS)
                if wanted is self.panel.last:
                    self.figure.value = _timeline(wanted)
                    self._drawn = wanted
            self.drawing.value = ""
        finally:
            self._turn.release()


def _timeline(prediction: Prediction) -> str:
    """The figure, without the sentence that stands above it."""
    picture = prediction.picture()
    rest = picture.sentence.removeprefix(prediction.sentence).strip()
    html: str = replace(picture, sentence=rest).html
    return html


def _answer(panel: WhatIf) -> str:
    found = panel.last
    busy = f"{found.device_busy:.0%}"
    return (
        f"<div role='status'><strong>Predicted, not measured: "
        f"{number(found.samples_per_second)} samples/s, device busy {busy}.</strong><br>"
        f"{escape(found.held_back)}</div>"
    )


def _table(rows: list[list[str]]) -> str:
    if not rows:
        return ""
    style = 'style="text-align: left; padding: 2px 12px 2px 0"'
    head = "".join(f'<th scope="col" {style}>{escape(cell)}</th>' for cell in rows[0])
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td {style}>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows[1:]
    )
    return (
        '<div style="overflow-x: auto"><table><caption style="text-align: left">Kept, to compare; '
        "all of it predicted. Settings that are the same in all are left out.</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _names_for_screen_readers() -> Any:
    """An output area for a script, which a page runs each time that it shows the sliders."""
    output = {"output_type": "display_data", "data": {"text/html": _NAME_SLIDERS}, "metadata": {}}
    return widgets.Output(outputs=(output,), layout=widgets.Layout(height="0", margin="0"))


def _slider(control: Control) -> Any:
    return widgets.SelectionSlider(
        options=list(control.options.items()),
        index=list(control.options.values()).index(control.value),  # a value may be None
        description=f"{control.label}:",
        style={"description_width": "140px"},
        layout=widgets.Layout(width="340px"),
    )
