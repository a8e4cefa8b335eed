"""Every panel in JupyterLab, by keyboard alone: set, predicted, run; some cancelled, run again.

The panels are those that the notebooks show, with their widgets, figures and sentences. What they
measure is exchanged for something short, except in `test_real_measurements`: the browser shows
the same for it, and `tests/lab` holds the measuring itself to account.
"""

import os

import pytest
from playwright.sync_api import expect

from labkit.lab import panels
from tests.browser.accessibility import faults
from tests.browser.notebook_page import OUTPUT_OF_SELECTED_CELL, OUTPUTS
from tests.browser.panel_driver import PanelDriver

pytestmark = pytest.mark.timeout(170)

PANELS = sorted(set(panels.__all__) - {"advise", "panel", "what_if"})
# What a panel does when it is run is the same code for all of them; that each measures what it says
# is tested without a browser. LABKIT_ALL_PANELS=1 runs every one of them here.
RUN = PANELS if os.environ.get("LABKIT_ALL_PANELS") else PANELS[::2]
CANCELLED = PANELS[::4]

MEASURED = """
from labkit.lab import panels
panels.panel("Compare no workers with one", "workers", options=[0, 1], repeats=6, seconds=1)
"""
FAULTY = 'panels.panel("Ask for no batch", "workers", options=[0, 1], batch_size=0)'

SHORT = '''
import functools
import time
from collections import Counter

from labkit.lab.experiments import measure
from labkit.lab.panels import Panel

runs = Counter()

def pauses(panel, *, progress, so_far, cancel, **settings):
    """Measure pauses: in each run others, in the second so long ones that one can cancel."""
    runs[panel.title] += 1
    count = runs[panel.title]

    def pause(place):
        time.sleep(0.4 if count == 2 else 0.001)
        return place * count + time.monotonic() % 1

    return measure(
        {label: {"place": place} for place, label in enumerate(panel.labels, 1)},
        pause,
        progress=progress,
        so_far=so_far,
        cancel=cancel,
    )

make = Panel.__init__

def make_short(panel, *arguments, **named):
    make(panel, *arguments, **named)
    panel._experiment = functools.partial(pauses, panel)

Panel.__init__ = make_short
'''
RUN_BEFORE = "panel = panels.workers()\n_ = panel.run()\nruns.clear()\npanel"

CELLS = [MEASURED, FAULTY, SHORT, RUN_BEFORE, *[f"panels.{name}()" for name in PANELS]]


@pytest.fixture
def panel_in(notebook, witness):
    """Select the cell with this source, and take hold of its panel."""

    def select(source):
        panel = PanelDriver(notebook, CELLS.index(source))
        panel.select()
        return panel

    return select


@pytest.mark.parametrize("name", RUN)
def test_a_panel_is_set_predicted_and_run_by_keyboard_and_some_again(name, panel_in):
    panel = panel_in(f"panels.{name}()")
    chosen = [panel.notebook.choose_next(control) for control in panel.settings()]
    assert chosen

    fastest = panel.predict("2")
    expect(panel.status).to_contain_text(f"{fastest} least, the greatest 2 times that")
    panel.press("Run")
    expect(panel.runs).to_have_count(1)
    expect(panel.figure).to_have_count(1)
    first = panel.figure.get_attribute("src")
    assert fastest in panel.figure.get_attribute("alt")
    expect(panel.sentence).to_contain_text(f"You expected {fastest} to be the fastest")
    expect(panel.numbers).to_contain_text(fastest)
    if name in CANCELLED:
        cancel_and_run_again(panel, first)
    panel.notebook.screenshot(f"panel-{name}", of=panel.shown)


def cancel_and_run_again(panel, first):
    panel.run_without_prediction("Shift+Tab")
    panel.press("Cancel")
    expect(panel.alert).to_contain_text("Cancelled")
    expect(panel.runs).to_have_count(1)

    panel.run_without_prediction("Shift+Tab")
    expect(panel.runs).to_have_count(2)
    assert panel.figure.get_attribute("src") != first


def test_a_panel_follows_the_theme(panel_in):
    panel = panel_in(RUN_BEFORE)
    light = panel.figure.get_attribute("src")
    with panel.notebook.in_the_dark():
        expect(panel.figure).to_have_count(1)
        assert panel.figure.get_attribute("src") != light
        assert panel.figure.get_attribute("alt")
        assert faults(panel.notebook.page, OUTPUT_OF_SELECTED_CELL) == []
        panel.notebook.screenshot("panel-dark", of=panel.shown)


def test_real_measurements_are_cancelled_and_made(panel_in):
    panel = panel_in(MEASURED)
    panel.run_without_prediction()
    panel.press("Cancel")
    expect(panel.alert).to_contain_text("Cancelled")
    panel.run_without_prediction("Shift+Tab")
    expect(panel.status).to_contain_text("Done", timeout=60_000)
    assert "1 worker" in panel.figure.get_attribute("alt")
    panel.notebook.screenshot("panel-measured", of=panel.shown)


def test_an_error_is_shown_in_the_panel(panel_in):
    panel = panel_in(FAULTY)
    panel.run_without_prediction()
    expect(panel.alert).to_contain_text("batch_size is a whole number of 1 or more")
    panel.notebook.screenshot("panel-error", of=panel.shown)


def test_no_panel_has_a_grave_fault_after_all_that(notebook, witness):
    """All at once, as the tests above left them: a look at one panel takes as long."""
    assert faults(notebook.page, OUTPUTS) == []


def test_whoever_is_sent_the_notebook_sees_the_figure_without_running_it(notebook, receive):
    sent = receive(notebook)
    cell = CELLS.index(RUN_BEFORE)
    sent.select(cell)
    figure = sent.output(cell).locator("img:visible")
    expect(figure).to_have_count(1)
    expect(figure).to_be_visible()
    assert figure.evaluate("image => image.naturalWidth") > 0
    assert "2 workers" in (figure.get_attribute("alt") or "")
    assert sent.output(cell).get_by_role("button").count() == 0
    sent.screenshot("panel-not-run", of=sent.output(cell))
