"""What axe-core finds wrong in a part of a page.

axe-playwright-python brings axe-core with it, so the check needs no network and no npm. axe judges
what a machine can (names, roles, contrast, alt texts); that an alt text says the right thing, it
cannot tell.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.browser.notebook_page import VISIBLE

GRAVE = ("serious", "critical")

# Without what only costs time here: of other kinds one example each, no style sheets loaded again,
# no selector worked out for each element.
OPTIONS = {"resultTypes": ["violations"], "preload": False, "selectors": False}

# axe takes for invisible, and passes over without a word, what hangs over its frame: all that one
# must scroll to, and in JupyterLab, whose body has no height, everything.
FULL_HEIGHT = "document.body.style.height = '100vh'"
HEIGHT = """notebook => window.innerHeight + 100
    + notebook.querySelector('.jp-WindowedPanel-viewport').offsetHeight
    - notebook.querySelector('.jp-WindowedPanel-outer').clientHeight"""
TO_THE_TOP = "notebook => { notebook.querySelector('.jp-WindowedPanel-outer').scrollTop = 0; }"
LAID_OUT = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def faults(page: Page, selector: str) -> list[str]:
    """Return axe's serious and critical findings within `selector`, one line an element.

    Raises:
        AssertionError: there is nothing to judge: no element matches, or axe saw no text in it.
    """
    assert page.locator(selector).count(), f"nothing to look at: no element matches {selector}"
    page.evaluate(FULL_HEIGHT)
    with whole_notebook(page):
        found = Axe().run(page, context=selector, options=OPTIONS).response
    looked_at = {rule["id"] for kind in ("violations", "passes") for rule in found[kind]}
    assert "color-contrast" in looked_at, f"axe saw no text in {selector}, only {looked_at}"
    return [
        f"{violation['impact']}: {violation['help']} ({violation['id']}): {node['html'][:200]}"
        for violation in found["violations"]
        if violation["impact"] in GRAVE
        for node in violation["nodes"]
    ]


@contextmanager
def whole_notebook(page: Page) -> Iterator[None]:
    """Make the window so high that nothing of the notebook must be scrolled to."""
    usual = page.viewport_size
    page.evaluate(LAID_OUT)
    notebook = page.locator(VISIBLE)
    height = max(usual["height"], round(notebook.evaluate(HEIGHT)))
    page.set_viewport_size({"width": usual["width"], "height": height})
    notebook.evaluate(TO_THE_TOP)
    page.evaluate(LAID_OUT)
    try:
        yield
    finally:
        page.set_viewport_size(usual)
