"""One notebook, open in JupyterLab: what a learner does with it and sees of it.

`NotebookPage` waits for what it starts: for the kernel after opening, for the last cell after
running. What widgets do afterwards, Playwright's `expect` waits for.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Locator, Page

VISIBLE = ".jp-NotebookPanel:not(.lm-mod-hidden)"
OUTPUTS = f"{VISIBLE} .jp-OutputArea-output"  # what cells show, without JupyterLab's own frame
OUTPUT_OF_SELECTED_CELL = f"{VISIBLE} .jp-Cell.jp-mod-active .jp-OutputArea-output"

OPEN = """async path => {
    const panel = await jupyterapp.commands.execute(
        'docmanager:open', {path, factory: 'Notebook'});
    await panel.context.ready;
    await panel.revealed;
    await panel.sessionContext.ready;
    await panel.sessionContext.session.kernel.info;
}"""
# `panel` in the scripts below is the notebook's tab; undefined once it is closed.
PANEL = """const panel = [...jupyterapp.shell.widgets('main')]
    .find(widget => widget.context && widget.context.path === path);"""
SHOW = """jupyterapp.shell.activateById(panel.id);
    while (jupyterapp.shell.currentWidget !== panel) {
        await new Promise(requestAnimationFrame);
    }"""
CLOSE = "if (panel) { await panel.sessionContext.shutdown(); panel.dispose(); }"
RUN_ALL = f"{SHOW} await jupyterapp.commands.execute('notebook:run-all-cells');"
RUN = f"{SHOW} await jupyterapp.commands.execute('notebook:run-cell');"
SAVE = "await panel.context.save();"
SELECT = f"""{SHOW}
    panel.content.activeCellIndex = argument;
    await panel.content.scrollToItem(argument, 'start');
    panel.content.widgets[argument].node.focus();"""
# From the model and not from the page: a cell off the screen has no text there.
ERRORS = """return panel.content.model.sharedModel.cells
    .flatMap(cell => cell.toJSON().outputs || [])
    .filter(output => output.output_type === 'error')
    .map(output => output.ename + ': ' + output.evalue);"""
# The kernel answers on the way that widgets' messages took, and so after it has read them.
SETTLE = "await panel.sessionContext.session.kernel.requestKernelInfo();"

THEME = "async theme => { await jupyterapp.commands.execute('apputils:change-theme', {theme}); }"
FOCUSED = "document.activeElement.outerHTML.slice(0, 100)"
# ipywidgets puts no-break spaces into the entries of a list.
CHOSEN = "element => element.selectedOptions[0].label.replaceAll('\\u00a0', ' ')"


class NotebookPage:
    """A notebook in a tab of JupyterLab, with its kernel running."""

    def __init__(self, page: Page, path: str, screenshots: Path):
        self.page = page
        self.path = path
        self._screenshots = screenshots
        page.evaluate(OPEN, path)
        self.panel = page.locator(VISIBLE)

    def close(self) -> None:
        """Shut the kernel down and close the tab without asking and saving."""
        self._do(CLOSE)

    def run_all(self) -> None:
        """Run every cell; returns after the last one.

        Raises:
            AssertionError: a cell ended with an error.
        """
        self._do(RUN_ALL)
        errors = self._do(ERRORS)
        assert not errors, errors

    def run(self, index: int) -> None:
        """Select a cell and run it."""
        self.select(index)
        self._do(RUN)

    def save(self) -> None:
        """Store the notebook with its outputs."""
        self._do(SAVE)

    def output(self, index: int) -> Locator:
        """Return all that a code cell shows; cells are numbered from 0."""
        return self.panel.locator(".jp-Cell").nth(index).locator(".jp-Cell-outputArea")

    def select(self, index: int) -> None:
        """Scroll to the cell and select it, which is where a Tab starts from."""
        self._do(SELECT, index)

    def tab_to(self, target: Locator, key: str = "Tab", limit: int = 60) -> None:
        """Press Tab, or Shift+Tab as `key`, until `target` has the focus.

        Raises:
            AssertionError: `limit` times did not reach it; the message lists where it went.
        """
        way = []
        for _ in range(limit):
            self.page.keyboard.press(key)
            if target.evaluate("element => element === document.activeElement"):
                return
            way.append(self.page.evaluate(FOCUSED))
        raise AssertionError(f"{key} does not reach {target}, but:\n" + "\n".join(way))

    def choose_next(self, dropdown: Locator) -> str:
        """Reach a list by Tab and take its next entry, if there is one; return its words.

        The first key opens the list: without it JupyterLab takes the arrow for itself and goes to
        another cell.
        """
        self.tab_to(dropdown)
        self.press("Space", "ArrowDown", "Enter")
        self.settle()
        return dropdown.evaluate(CHOSEN)

    def press(self, *keys: str) -> None:
        """Press the keys one after another."""
        for key in keys:
            self.page.keyboard.press(key)

    def settle(self) -> None:
        """Wait until the kernel has heard what was done until now."""
        self._do(SETTLE)

    def theme(self, name: str) -> None:
        """Change JupyterLab's theme: 'JupyterLab Light' or 'JupyterLab Dark'."""
        self.page.evaluate(THEME, name)
        self.page.locator(f'body[data-jp-theme-name="{name}"]').wait_for(state="attached")

    @contextmanager
    def in_the_dark(self) -> Iterator[None]:
        """In JupyterLab's dark theme."""
        self.theme("JupyterLab Dark")
        try:
            yield
        finally:
            self.theme("JupyterLab Light")

    def screenshot(self, name: str, of: Locator | None = None) -> Path:
        """Store what `of`, else the whole window, looks like; returns the PNG's path."""
        path = self._screenshots / f"{name}.png"
        # Playwright would write the file from a thread that stays.
        path.write_bytes((of or self.page).screenshot(animations="disabled"))
        return path

    def _do(self, script: str, argument: int | None = None):
        function = f"async ([path, argument]) => {{ {PANEL} {script} }}"
        return self.page.evaluate(function, [self.path, argument])
