"""The widgets of an arena's view: four buttons, the figure, and what the latest step did.

A thin skin: each button calls the method of its name. Before it: the package. After it: whoever
presses them.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

from labkit.lab import need

if TYPE_CHECKING:
    from labkit.lab.arena_view import ArenaView

widgets: Any = need("ipywidgets")

__all__ = ["Buttons"]


class Buttons:
    """The widgets; each attribute is one that tests and browsers may press or read."""

    def __init__(self, arena: ArenaView) -> None:
        self.arena = arena
        self.take = self._button("Take the next batch", arena.take, "primary")
        self.keep = self._button("Keep it", arena.keep)
        self.drop_oldest = self._button("Drop the oldest kept", arena.drop_oldest)
        self.drop_all = self._button("Drop all", arena.drop_all)
        self.status = widgets.HTML()
        self.figure = widgets.HTML()
        row = widgets.HBox(
            [self.take, self.keep, self.drop_oldest, self.drop_all],
            layout=widgets.Layout(flex_flow="row wrap"),
        )
        self.box = widgets.VBox([row, self.status, self.figure])
        arena.on_change.append(self.refresh)
        self.refresh()

    def refresh(self, error: str = "") -> None:
        """Show the arena as it is now."""
        arena = self.arena
        self.keep.disabled = not arena.can_keep
        self.drop_oldest.disabled = not arena.kept
        self.drop_all.disabled = not arena.kept and arena.in_hand is None
        role, words = ("alert", error) if error else ("status", arena.said)
        self.figure.value = arena.picture().html
        self.status.value = f'<div role="{role}">{escape(words)}</div>'

    def _button(self, words: str, step: Callable[[], None], style: str = "") -> Any:
        button = widgets.Button(
            description=words, button_style=style, layout=widgets.Layout(width="auto")
        )
        button.on_click(lambda _: self._do(step))
        return button

    def _do(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:
            self.refresh(f"{type(error).__name__}: {error}")
            raise
