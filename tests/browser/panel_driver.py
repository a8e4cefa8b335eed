"""A panel in a cell's output, used by keyboard alone, and read as it stands on the page."""

import re
from dataclasses import dataclass

from playwright.sync_api import Locator, expect

from tests.browser.notebook_page import NotebookPage


@dataclass(frozen=True)
class PanelDriver:
    """The panel that one cell of the notebook shows."""

    notebook: NotebookPage
    cell: int

    @property
    def shown(self) -> Locator:
        """All of it."""
        return self.notebook.output(self.cell)

    def select(self) -> None:
        """Go to its cell, from which Tab leads into it."""
        self.notebook.select(self.cell)

    def control(self, label: str) -> Locator:
        """The list of a setting, by its label."""
        return self.shown.get_by_role("combobox", name=label, exact=True)

    def settings(self) -> list[Locator]:
        """The lists of all settings, without the prediction's."""
        lists = self.shown.get_by_role("combobox").all()
        return lists[:-1]

    def button(self, name: str) -> Locator:
        """A button by its words, before which an icon may stand."""
        return self.shown.get_by_role("button", name=re.compile(rf"(^|\s){re.escape(name)}$"))

    @property
    def status(self) -> Locator:
        """The line that a screen reader says when it changes."""
        return self.shown.get_by_role("status")

    @property
    def alert(self) -> Locator:
        """The same line where a run has failed or was cancelled."""
        return self.shown.get_by_role("alert")

    @property
    def figure(self) -> Locator:
        """The figure in the colours of the theme, if there is one."""
        return self.shown.locator("figure img:visible")

    @property
    def sentence(self) -> Locator:
        """What stands under the figure."""
        return self.shown.locator("figcaption")

    @property
    def numbers(self) -> Locator:
        """The figure's text equivalent, which unfolds."""
        return self.shown.locator("details")

    @property
    def runs(self) -> Locator:
        """The rows of the history."""
        return self.shown.get_by_role("table").last.locator("tbody tr")

    def press(self, name: str, key: str = "Tab") -> None:
        """Reach a button by Tab (or Shift+Tab) and press it, once it can be pressed."""
        expect(self.button(name)).to_be_enabled()
        self.notebook.tab_to(self.button(name), key)
        self.notebook.press("Space")

    def run_without_prediction(self, key: str = "Tab") -> None:
        """Skip the prediction and press Run; from below the buttons with Shift+Tab."""
        self.press("Skip the prediction", key)
        self.press("Run")

    def predict(self, factor: str) -> str:
        """Commit to the first setting as the one with the least; return its label."""
        fastest = self.notebook.choose_next(self.control("Least:"))
        self.notebook.tab_to(self.shown.get_by_role("spinbutton"))
        self.notebook.press("Control+a", *factor, "Enter")
        self.notebook.settle()
        self.press("Predict")
        return fastest
