"""Every notebook as it is stored: what somebody sees who opens it and has not run anything."""

import nbformat
import pytest
from playwright.sync_api import expect

from tests.browser.accessibility import faults, whole_notebook
from tests.browser.conftest import NOTEBOOKS
from tests.browser.notebook_page import OUTPUTS

pytestmark = pytest.mark.timeout(170)

# Each takes a while, and all of them are made of the same kinds of output: every fifth.
PATHS = sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))[::5]
MISSING_IMAGES = """images => images
    .filter(image => !(image.complete && image.naturalWidth))
    .map(image => image.outerHTML.slice(0, 200))"""


@pytest.mark.parametrize("path", PATHS)
def test_a_stored_notebook_shows_all_its_outputs(path, open_notebook, lab):
    cells = nbformat.read(lab.root / path, as_version=4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    notebook = open_notebook(path=path)
    for place in [*range(0, len(cells), 5), len(cells) - 1]:
        notebook.select(place)  # else JupyterLab takes its time to draw the cells before it
    with whole_notebook(notebook.page):
        expect(notebook.page.locator(OUTPUTS)).to_have_count(len(outputs), timeout=60_000)
        notebook.screenshot(f"stored-{path.removesuffix('.ipynb')}", of=notebook.panel)
        images = notebook.page.locator(f"{OUTPUTS} img")
        assert images.evaluate_all(MISSING_IMAGES) == []
        assert notebook.page.locator(f"{OUTPUTS} .labkit-on-dark:visible").count() == 0
        assert faults(notebook.page, OUTPUTS) == []
