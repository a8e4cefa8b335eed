"""Make the README's pictures: two panels as they stand in JupyterLab, and a timeline.

python -m scripts.readme_pictures

The panels are run in a kernel and photographed in Chromium, by the drivers of `tests/browser`; the
timeline is traced here. All is measured on this machine when this runs. They are stored in
`notebooks/pictures/`, as PNG with few colours.
"""

import io
import tempfile
import time
from pathlib import Path

from PIL import Image
from playwright.sync_api import expect

import labkit
from labkit.lab import timeline
from labkit.lab.datasets import Indices, Waiting
from scripts.execute_notebooks import NOTEBOOKS
from tests.browser import chromium, jupyterlab
from tests.browser.conftest import READY, notebooks_of
from tests.browser.notebook_page import NotebookPage

PICTURES = NOTEBOOKS / "pictures"
PANELS = {
    "panel_workers": (
        "from labkit.lab import panels\n"
        "panel = panels.panel('Load with and without workers', 'workers',\n"
        "                     panels.workers().controls, options=[0, 2])\n"
        "panel.predict('2 workers', factor=2)\n"
        "panel.run(repeats=7, seconds=30)\n"
        "panel"
    ),
    "panel_what_if": (
        "from labkit.lab import panels\n"
        "panels.what_if(cores=8, num_workers=4, step_seconds=0.002, preloader=True)"
    ),
}
KERNEL_SECONDS = 120.0
COLOURS, WIDTH = 256, 1000


def main() -> None:
    """Make all three."""
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / "timeline.png").write_bytes(small(timeline.show(traced()).png))
    with (
        tempfile.TemporaryDirectory() as folder,
        jupyterlab.running(Path(folder)) as lab,
        chromium.context(chromium.required_path()) as context,
    ):
        context.set_default_timeout(KERNEL_SECONDS * 1000)
        page = context.new_page()
        page.set_viewport_size({"width": 1500, "height": 1800})
        page.goto(f"{lab.url}lab?token={lab.token}")
        page.wait_for_function(READY)
        with notebooks_of(lab, page, Path(folder)) as open_notebook:
            photograph(open_notebook(*PANELS.values()))


def photograph(notebook: NotebookPage) -> None:
    """Run the cells, each of which shows a panel, and store what stands below them."""
    notebook.run_all()
    for cell, name in enumerate(PANELS):
        notebook.select(cell)
        shown = notebook.output(cell)
        expect(shown.locator("figure img:visible")).to_be_visible()
        data = shown.screenshot(animations="disabled")
        (PICTURES / f"{name}.png").write_bytes(small(data))


def traced() -> labkit.tracing.Trace:
    """An epoch in which two batches are late, so that others wait for their turn."""
    slow = Waiting(Indices(96), seconds=0.06, every=48)
    loader = labkit.DataLoader(slow, batch_size=8, num_workers=2, persistent_workers=True)
    list(loader)
    with labkit.trace() as trace:
        for _ in loader:
            time.sleep(0.004)  # a step
    loader.close()
    return trace


def small(data: bytes) -> bytes:
    """The picture with few colours, and no wider than a page shows it."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    if image.width > WIDTH:
        height = round(image.height * WIDTH / image.width)
        image = image.resize((WIDTH, height), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    few = image.quantize(
        COLOURS, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE
    )  # MEDIANCUT turns a colour of few pixels, such as a thin bar's, into another one
    few.save(file, "PNG", optimize=True)
    return file.getvalue()


if __name__ == "__main__":
    main()
