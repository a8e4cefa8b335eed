"""The what-if panel in JupyterLab: sliders moved by keyboard, what follows, what is kept."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.accessibility import faults, whole_notebook
from tests.browser.notebook_page import OUTPUT_OF_SELECTED_CELL

pytestmark = pytest.mark.timeout(170)
CELLS = ["from labkit.lab import panels\npanels.what_if(cores=2)"]


def test_sliders_are_moved_by_keyboard_and_what_they_predict_is_kept(notebook, witness):
    notebook.select(0)
    shown = notebook.output(0)
    answer, figure = shown.get_by_role("status"), shown.locator("figure img:visible")
    expect(answer).to_contain_text("Predicted, not measured")
    expect(figure).to_have_attribute("alt", re.compile("Predicted, not measured"))
    keep = shown.get_by_role("button", name="Keep, to compare")
    before, drawn = answer.inner_text(), figure.get_attribute("src")
    workers = shown.get_by_role("slider", name="Workers a device", exact=True)
    expect(workers).to_have_attribute("aria-valuetext", "2")
    notebook.tab_to(workers)
    notebook.press("Home")
    expect(workers).to_have_attribute("aria-valuetext", "0")
    expect(answer).not_to_have_text(before)
    expect(answer).to_contain_text("the main process, which loads")
    expect(figure).not_to_have_attribute("src", drawn, timeout=30_000)
    notebook.tab_to(keep)
    notebook.press("Space")
    notebook.tab_to(workers, "Shift+Tab")
    notebook.press("ArrowRight", "ArrowRight", "ArrowUp")
    expect(workers).to_have_attribute("aria-valuetext", "3")
    notebook.tab_to(keep)
    notebook.press("Space")
    rows = shown.get_by_role("table").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.last).to_contain_text("3")
    assert faults(notebook.page, OUTPUT_OF_SELECTED_CELL) == []
    with whole_notebook(notebook.page):
        notebook.screenshot("what-if", of=shown)


def test_it_follows_the_theme(notebook, witness):
    notebook.select(0)
    figure = notebook.output(0).locator("figure img:visible")
    light = figure.get_attribute("src")
    with notebook.in_the_dark():
        expect(figure).to_have_count(1)
        assert figure.get_attribute("src") != light
        assert faults(notebook.page, OUTPUT_OF_SELECTED_CELL) == []
        with whole_notebook(notebook.page):
            notebook.screenshot("what-if-dark", of=notebook.output(0))
