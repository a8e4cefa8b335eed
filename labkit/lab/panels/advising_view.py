"""The widgets of the panel for a dataset of one's own.

A thin skin: it reads what it shows from the `AdvicePanel` and calls its methods. A run takes place
in a thread, so that Cancel works and other cells run meanwhile.

Before it: `advising`. After it: the user.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from html import escape
from typing import Any

from labkit.lab import need
from labkit.lab.panels.advising import SECONDS, AdvicePanel
from labkit.lab.panels.markup import text_block
from labkit.lab.panels.view import button

widgets: Any = need("ipywidgets")

__all__ = ["AdviceView"]

_LABELLED = {"description_width": "180px"}
_WIDE = "380px"


class AdviceView:
    """The widgets; each attribute is one that tests and browsers may press or read."""

    def __init__(self, panel: AdvicePanel) -> None:
        self.panel = panel
        chosen = panel.settings
        offered = {words: s for words, s in SECONDS.items() if s != chosen["seconds"]}
        offered[f"{chosen['seconds']:g} s"] = chosen["seconds"]
        self.seconds = widgets.Dropdown(
            options=sorted(offered.items(), key=lambda item: item[1]),
            value=chosen["seconds"],
            description="Time for it:",
            style=_LABELLED,
            layout=widgets.Layout(width=_WIDE),
        )
        self.step_ms = widgets.BoundedFloatText(
            value=chosen["step_seconds"] * 1e3,
            min=0,
            max=1e6,
            step=10,
            description="Your training step, ms:",
            style=_LABELLED,
            layout=widgets.Layout(width=_WIDE),
        )
        self.run = button("Run", "Trace it, and try what may help", "primary")
        self.cancel = button("Cancel", "Stop, and keep what was found", "warning")
        self.progress = widgets.HTML()
        self.status = widgets.HTML()
        self.result = widgets.HTML()
        self.box = self._laid_out()
        self._said = ""
        self._shown = ""
        self.run.on_click(lambda _: self._start())
        self.cancel.on_click(lambda _: self._stop())
        panel.on_change.append(self.refresh)
        self.refresh()

    def _laid_out(self) -> Any:
        title = widgets.HTML(f"<strong>{escape(self.panel.title)}</strong>")
        buttons = widgets.HBox([self.run, self.cancel], layout=widgets.Layout(flex_flow="row wrap"))
        return widgets.VBox(
            [
                title,
                self.seconds,
                self.step_ms,
                buttons,
                self.progress,
                self.status,
                self.result,
            ]
        )

    def _start(self) -> None:
        settings = {"seconds": self.seconds.value, "step_seconds": self.step_ms.value / 1e3}
        self.run.disabled = True
        name = f"panel: {self.panel.title}"
        threading.Thread(target=self._find, args=(settings,), name=name, daemon=True).start()

    def _find(self, settings: dict[str, Any]) -> None:
        with suppress(Exception):  # `panel.error` tells of it
            self.panel.run(**settings)

    def _stop(self) -> None:
        self.cancel.disabled = True
        self._say("Cancelling …", "status")
        self.panel.cancel()

    def refresh(self) -> None:
        """Show what the panel knows now."""
        panel, running = self.panel, self.panel.running
        self.seconds.disabled = self.step_ms.disabled = self.run.disabled = running
        self.cancel.disabled = not running
        self.progress.value = text_block(_bar(*panel.progress)) if running else ""
        self._show()
        if running:
            self._say("Measuring …", "status")
        elif panel.error:
            self._say(panel.error, "alert")
        else:
            done = panel.advice is not None
            self._say("Done." if done else "Press Run; nothing is done to your dataset.", "status")

    def _show(self) -> None:
        """The advice: its sentences while it grows, with its figures at the end."""
        advice = self.panel.advice
        if advice is None:
            html = "<p>No run yet: the advice will be here.</p>"
        elif self.panel.running:
            html = text_block(f"<strong>So far</strong><pre>{escape(advice.as_text())}</pre>")
        else:
            html = advice.html()
        if html != self._shown:
            self._shown = self.result.value = html

    def _say(self, text: str, role: str) -> None:
        if text != self._said:  # else screen readers would say it again and again
            self._said = text
            self.status.value = text_block(f'<div role="{role}">{escape(text)}</div>')


def _bar(part: float, text: str) -> str:
    said = f"{part:.0%}: {escape(text)}"
    return (
        f'<label>{said}<br><progress max="1" value="{part:.3f}" style="width: 360px">{said}'
        "</progress></label>"
    )
