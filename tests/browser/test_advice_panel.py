"""The panel for a dataset of one's own, in JupyterLab: run and cancelled by keyboard."""

import pytest
from playwright.sync_api import expect

from tests.browser.accessibility import faults, whole_notebook
from tests.browser.notebook_page import OUTPUT_OF_SELECTED_CELL

pytestmark = pytest.mark.timeout(170)
CELLS = ["from labkit.lab import panels\npanels.advise(seconds=3.0)"]
SOON = 60_000  # milliseconds


def test_advice_is_found_and_shown_with_figures_and_cancelled_the_next_time(notebook, witness):
    notebook.select(0)
    shown = notebook.output(0)
    run, cancel = (shown.get_by_role("button", name=name) for name in ("Run", "Cancel"))
    expect(cancel).to_be_disabled()
    notebook.tab_to(run)
    notebook.press("Enter")
    expect(shown.get_by_role("progressbar")).to_be_visible(timeout=SOON)
    expect(run).to_be_disabled()
    expect(shown.get_by_role("status")).to_have_text("Done.", timeout=SOON)
    expect(shown.get_by_role("heading", name="What holds it back")).to_be_visible()
    assert "fetch" in shown.locator("figure img:visible").first.get_attribute("alt")
    assert faults(notebook.page, OUTPUT_OF_SELECTED_CELL) == []
    with whole_notebook(notebook.page):
        notebook.screenshot("advice", of=shown)
    notebook.tab_to(run)
    notebook.press("Space")
    expect(cancel).to_be_enabled(timeout=SOON)
    notebook.tab_to(cancel)
    notebook.press("Space")
    expect(shown.get_by_role("alert")).to_contain_text("ancel", timeout=SOON)
    expect(run).to_be_enabled()
