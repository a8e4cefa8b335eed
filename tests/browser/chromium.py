"""The browser: Chromium from the system, headless, with no way out of this machine.

Playwright drives it; the Chromium that Playwright would bring along is not needed. Where there is
none the tests are skipped, except where LABKIT_BROWSER_TESTS=1 says that they must run.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import BrowserContext, expect, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ADVICE = (
    "no Chromium found: install one (Debian: apt-get install chromium fonts-dejavu-core "
    "fonts-liberation) or name it in CHROMIUM=/path/to/chromium"
)
WAIT_LIMIT = 20_000  # milliseconds, for each single wait

ARGUMENTS = [
    "--disable-gpu",
    # Whatever a page asks for elsewhere fails at once, as on a machine without a network.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
]


def path() -> str | None:
    """Return the path of a Chromium or Chrome, or None."""
    if named := os.environ.get("CHROMIUM"):
        return shutil.which(named)
    return next(filter(None, map(shutil.which, NAMES)), None)


def required_path() -> str:
    """Return the path, or skip the test that asks; fail it where browser tests must run."""
    found = path()
    if found is None:
        must_run = os.environ.get("LABKIT_BROWSER_TESTS") == "1"
        (pytest.fail if must_run else pytest.skip)(ADVICE)
    return found


@contextmanager
def context(executable: str) -> Iterator[BrowserContext]:
    """Run Chromium and give a window of a laptop's size; both end with the block."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        try:
            window = browser.new_context(
                viewport={"width": 1280, "height": 900}, reduced_motion="reduce"
            )
            window.set_default_timeout(WAIT_LIMIT)
            expect.set_options(timeout=WAIT_LIMIT)
            yield window
        finally:
            browser.close()
