"""The harness sees what it must see: each of its checks finds a fault made on purpose."""

import pytest
from playwright.sync_api import expect

from tests.browser import chromium
from tests.browser.accessibility import faults
from tests.browser.conftest import notebooks_of
from tests.browser.notebook_page import OUTPUT_OF_SELECTED_CELL

pytestmark = pytest.mark.timeout(170)

WIDGETS = """
import ipywidgets as widgets

method = widgets.Dropdown(options=["fork", "spawn"], description="Start method")
run = widgets.Button(description="Run")
result = widgets.HTML("<p>not run</p>")

def show(_):
    result.value = f"<p>ran {method.value}</p>"

run.on_click(show)
widgets.VBox([method, run, result])
"""
OUT_OF_REACH = "widgets.Button(description='Out of reach', disabled=True)"
GRAVE_FAULTS = """
pixel = "data:image/gif;base64,R0lGODlhAQABAAAAACw="
widgets.HTML(
    "<p style='color: #bbb; background: #fff'>pale</p>"
    f"<img src='{pixel}'><button></button>"
)
"""
SCRIPT = """
from IPython.display import Javascript
Javascript('''
    console.error("said");
    setTimeout(() => { throw Error("thrown"); });
    fetch("https://example.org/x").catch(() => 0);
''')
"""
HARMLESS = "print('text')"
CELLS = [WIDGETS, OUT_OF_REACH, GRAVE_FAULTS, SCRIPT, HARMLESS]


@pytest.fixture(scope="module")
def notebook(lab, page, screenshots):
    """A notebook in which each cell is there for one test."""
    with notebooks_of(lab, page, screenshots) as open_notebook:
        notebook = open_notebook(*CELLS)
        notebook.run_all()
        yield notebook


def test_widgets_are_used_by_keyboard_and_answer(notebook, witness):
    output = notebook.output(CELLS.index(WIDGETS))
    notebook.select(CELLS.index(WIDGETS))
    notebook.choose_next(output.get_by_role("combobox", name="Start method"))
    notebook.tab_to(output.get_by_role("button", name="Run", exact=True))
    notebook.press("Enter")
    expect(output).to_contain_text("ran spawn")
    assert faults(notebook.page, OUTPUT_OF_SELECTED_CELL) == []
    assert notebook.screenshot("harness").stat().st_size > 10_000


def test_what_tab_does_not_reach_fails(notebook, witness):
    notebook.select(CELLS.index(OUT_OF_REACH))
    button = notebook.panel.get_by_role("button", name="Out of reach")
    with pytest.raises(AssertionError, match="Tab does not reach"):
        notebook.tab_to(button, limit=10)


def test_an_error_in_a_cell_fails(open_notebook):
    with pytest.raises(AssertionError, match="ValueError: on purpose"):
        open_notebook("raise ValueError('on purpose')").run_all()


def test_console_errors_uncaught_errors_and_requests_elsewhere_are_seen(notebook, witness):
    notebook.run(CELLS.index(SCRIPT))
    for _ in range(50):
        if len(witness.errors) >= 2 and witness.requests_elsewhere():
            break
        notebook.page.wait_for_timeout(100)  # lets the browser's news in
    assert any("said" in error for error in witness.errors)
    assert any("thrown" in error for error in witness.errors)
    assert witness.requests_elsewhere() == ["https://example.org/x"]
    witness.forget()


def test_axe_finds_grave_faults(notebook, witness):
    notebook.select(CELLS.index(GRAVE_FAULTS))
    found = faults(notebook.page, OUTPUT_OF_SELECTED_CELL)
    for rule in ("color-contrast", "image-alt", "button-name"):
        assert any(rule in fault for fault in found), (rule, found)


def test_axe_does_not_pass_what_it_cannot_see(notebook, witness):
    with pytest.raises(AssertionError, match="no element matches"):
        faults(notebook.page, ".no-such-class")
    cell = CELLS.index(HARMLESS)
    notebook.select(cell)
    notebook.output(cell).evaluate("element => { element.style.visibility = 'hidden'; }")
    with pytest.raises(AssertionError, match="saw no text"):
        faults(notebook.page, OUTPUT_OF_SELECTED_CELL)


@pytest.mark.parametrize(
    ("must_run", "outcome"), [("0", pytest.skip.Exception), ("1", pytest.fail.Exception)]
)
def test_without_chromium_tests_skip_or_fail_where_they_must_run(monkeypatch, must_run, outcome):
    monkeypatch.setenv("CHROMIUM", "/no/such/chromium")
    monkeypatch.setenv("LABKIT_BROWSER_TESTS", must_run)
    with pytest.raises(outcome, match="apt-get install chromium"):
        chromium.required_path()
