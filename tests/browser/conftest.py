"""One JupyterLab and one browser for all tests of this folder, a notebook for each.

Both are as wide as the package, not the session: Playwright keeps an event loop in the main
thread while it runs, and nbclient's tests, which come later, could not run theirs.
"""

import itertools
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import nbformat
import pytest
from playwright import sync_api as playwright
from playwright.sync_api import Page

from tests import leftovers
from tests.browser import chromium, jupyterlab
from tests.browser.jupyterlab import JupyterLab
from tests.browser.notebook_page import NotebookPage
from tests.browser.witness import Witness
from tests.conftest import FAILED

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
READY = "() => window.jupyterapp && window.jupyterapp.restored.then(() => true)"

OF_CHROMIUM = r"process .*: \S*chrom\S* --type="
# What a kernel keeps as long as it lives, as any process does that starts others in this way.
OF_A_KERNEL = (
    r"process .*(multiprocessing\.(resource_tracker|forkserver)|experiments\.fresh_server) import"
)
MAY_STAY = re.compile(f"{OF_CHROMIUM}|{OF_A_KERNEL}")

numbers = itertools.count(1)

OpenNotebook = Callable[..., NotebookPage]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """Keep a screenshot of what a learner would have seen where a test failed."""
    report = yield
    if report.failed and call.when == "call" and {"page", "screenshots"} <= set(item.funcargs):
        name = re.sub(r"\W+", "-", item.name)
        with suppress(playwright.Error):  # the browser itself may have failed
            shown = item.funcargs["page"].screenshot(animations="disabled")
            (item.funcargs["screenshots"] / f"failed-{name}.png").write_bytes(shown)
    return report


@pytest.fixture(scope="package")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterLab]:
    """A JupyterLab that shows a copy of the repository's notebooks."""
    chromium.required_path()  # without a browser there is no use in a server
    folder = tmp_path_factory.mktemp("jupyterlab")
    shutil.copytree(
        NOTEBOOKS, folder / "notebooks", ignore=shutil.ignore_patterns(".ipynb_checkpoints")
    )
    with jupyterlab.running(folder) as server:
        yield server


@pytest.fixture(scope="package")
def page(lab: JupyterLab) -> Iterator[Page]:
    """JupyterLab, loaded and empty, in a browser."""
    with chromium.context(chromium.required_path()) as context:
        page = context.new_page()
        page.goto(f"{lab.url}lab?token={lab.token}")
        page.wait_for_function(READY)
        yield page


@pytest.fixture(autouse=True)
def nothing_stays_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """As for every test, except that Chromium starts and ends processes of its own as it likes, and
    that a kernel's servers stay until it is shut down.
    """
    before = leftovers.take()
    yield
    if request.node.stash.get(FAILED, False):
        return
    left = [thing for thing in leftovers.since(before) if not MAY_STAY.match(thing)]
    if left:
        pytest.fail("left behind by this test:\n  " + "\n  ".join(left), pytrace=False)


@pytest.fixture(scope="package")
def watcher(page: Page) -> Witness:
    """Who hears what happens behind the screen, in all tests together."""
    return Witness(page)


@pytest.fixture
def witness(watcher: Witness) -> Iterator[Witness]:
    """What happens behind the screen during this test; fails it if that is an error."""
    watcher.forget()
    yield watcher
    assert watcher.errors == []
    assert watcher.requests_elsewhere() == []


@pytest.fixture(scope="package")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for screenshots: LABKIT_SCREENSHOTS, else one that is gone some runs later."""
    named = os.environ.get("LABKIT_SCREENSHOTS")
    folder = Path(named) if named else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


@pytest.fixture
def open_notebook(lab: JupyterLab, page: Page, witness: Witness, screenshots: Path):
    """Open a notebook, which is closed after the test: `open_notebook(*code_cells, path=...)`."""
    with notebooks_of(lab, page, screenshots) as open_:
        yield open_


@pytest.fixture(scope="module")
def notebook(
    request: pytest.FixtureRequest, lab: JupyterLab, page: Page, screenshots: Path
) -> Iterator[NotebookPage]:
    """A notebook with the test module's `CELLS`, which have been run."""
    with notebooks_of(lab, page, screenshots) as open_:
        notebook = open_(*request.module.CELLS)
        notebook.run_all()
        yield notebook


@pytest.fixture
def receive(lab: JupyterLab, open_notebook: OpenNotebook) -> Callable[[NotebookPage], NotebookPage]:
    """Open what another notebook holds, as somebody who was sent it and has not run it.

    JupyterLab knows the notebooks that were run in it; of others it shows no widget and no script.
    """

    def open_as_sent(notebook: NotebookPage) -> NotebookPage:
        notebook.save()
        content = nbformat.read(lab.root / notebook.path, as_version=4)
        content.metadata["title"] = "Sent by somebody"  # so that it is another one
        nbformat.write(content, lab.root / f"sent-{notebook.path}")
        return open_notebook(path=f"sent-{notebook.path}")

    return open_as_sent


@contextmanager
def notebooks_of(lab: JupyterLab, page: Page, screenshots: Path) -> Iterator[OpenNotebook]:
    """Give a function that opens an existing notebook by its path, or new cells in a new one.

    All are closed afterwards, and their kernels are gone, whatever happened.
    """
    opened: list[NotebookPage] = []
    of_others = lab.kernels()

    def open_(*cells: str, path: str = "") -> NotebookPage:
        if cells:
            path = f"new-{next(numbers)}.ipynb"
            _write(lab.root / path, cells)
        opened.append(NotebookPage(page, path, screenshots))
        return opened[-1]

    try:
        yield open_
        for notebook in opened:
            notebook.close()
    finally:
        for kernel in lab.kernels() - of_others:
            lab.shut_down_kernel(kernel)


def _write(path: Path, cells: tuple[str, ...]) -> None:
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in cells],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )
    nbformat.write(notebook, path)
