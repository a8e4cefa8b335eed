"""What a page did behind the screen: errors in its console, uncaught errors, requests.

One witness watches a page for the whole run; each test asks only for what came since it began.
"""

from urllib.parse import urlsplit

from playwright.sync_api import Page

THIS_MACHINE = ("127.0.0.1", "localhost")
LOCAL_SCHEMES = ("data", "blob", "about")

# What JupyterLab says of itself when a notebook is closed so soon after it was opened.
JUPYTERLAB_ITSELF = ("Could not restore the debugger state",)


class Witness:
    """Collect from `page`, from the moment it is made, what should not happen."""

    def __init__(self, page: Page):
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.errors.append(f"uncaught: {error}"))
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("websocket", lambda socket: self.requests.append(socket.url))

    def forget(self) -> None:
        """Begin anew: what came until now belongs to an earlier test."""
        self.errors.clear()
        self.requests.clear()

    def requests_elsewhere(self) -> list[str]:
        """Return the addresses asked for that are not on this machine."""
        return [url for url in self.requests if not _is_here(url)]

    def _hear(self, message) -> None:
        if message.type == "error" and not message.text.startswith(JUPYTERLAB_ITSELF):
            self.errors.append(f"console: {message.text} ({message.location.get('url')})")


def _is_here(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in LOCAL_SCHEMES or parts.hostname in THIS_MACHINE
