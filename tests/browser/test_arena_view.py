"""The arena's view in JupyterLab: batches are taken, kept and dropped by keyboard."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.accessibility import faults, whole_notebook
from tests.browser.notebook_page import OUTPUT_OF_SELECTED_CELL

pytestmark = pytest.mark.timeout(170)
SHOWN = """
from labkit.lab.arena_view import ArenaView
arena = ArenaView()
arena.take()  # its worker starts now, and not in a test
arena.drop_all()
arena
"""
CELLS = [SHOWN]


def test_batches_are_taken_kept_and_dropped_by_keyboard(notebook, witness):
    notebook.select(0)
    shown = notebook.output(0)
    figure = shown.locator("figure img:visible")
    for button, key, said in (
        ("Take the next batch", "Tab", "Took batch 1"),
        ("Keep it", "Tab", "Kept batch 1"),
        ("Take the next batch", "Shift+Tab", "Took batch 2"),
        ("Drop the oldest kept", "Tab", "Dropped batch 1"),
        ("Drop all", "Tab", "Dropped 1 batch"),
        ("Take the next batch", "Shift+Tab", "Took batch 3"),
    ):
        pressed = shown.get_by_role("button", name=button, exact=True)
        expect(pressed).to_be_enabled()
        notebook.tab_to(pressed, key)
        notebook.press("Space")
        expect(shown.get_by_role("status")).to_contain_text(said)
        expect(figure).to_have_count(1)
        expect(figure).to_have_attribute("alt", re.compile(said))
    assert faults(notebook.page, OUTPUT_OF_SELECTED_CELL) == []
    with whole_notebook(notebook.page):
        notebook.screenshot("arena", of=shown)


def test_it_follows_the_theme(notebook, witness):
    notebook.select(0)
    figure = notebook.output(0).locator("figure img:visible")
    light = figure.get_attribute("src")
    with notebook.in_the_dark():
        expect(figure).to_have_count(1)
        assert figure.get_attribute("src") != light
        assert faults(notebook.page, OUTPUT_OF_SELECTED_CELL) == []
        with whole_notebook(notebook.page):
            notebook.screenshot("arena-dark", of=notebook.output(0))
