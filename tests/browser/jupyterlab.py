"""A JupyterLab of the tests' own: on a free port, with folders of its own, without pop-ups.

`running(folder)` starts it before a browser comes and stops it afterwards, kernels included. It
reads nothing of the user's configuration, so what a test sees is what a newcomer sees.
"""

import json
import os
import secrets
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

START_LIMIT = 90.0  # seconds
STOP_LIMIT = 20.0  # seconds; JupyterLab shuts its kernels down first

# A pop-up lies over the notebook and takes the focus. One asks for news; another says that the file
# has changed on disk, where a test's save and an autosave meet.
SETTINGS = {
    "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
        "doNotDisturbMode": True,
    },
}


@dataclass(frozen=True)
class JupyterLab:
    """A running server: where it answers, and the folder whose notebooks it shows."""

    url: str  # ends with a slash
    token: str
    root: Path

    def kernels(self) -> set[str]:
        """Return the ids of the kernels that run."""
        return {kernel["id"] for kernel in self._ask("api/kernels")}

    def shut_down_kernel(self, kernel: str) -> None:
        """End a kernel, whatever it is doing; returns when the server has ended it."""
        self._ask(f"api/kernels/{kernel}", method="DELETE")

    def _ask(self, path: str, method: str = "GET"):
        headers = {"Authorization": f"token {self.token}"}
        request = urllib.request.Request(self.url + path, headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=STOP_LIMIT) as answer:
            return json.loads(answer.read() or "null")


@contextmanager
def running(folder: Path) -> Iterator[JupyterLab]:
    """Run a JupyterLab that shows `folder`/notebooks and keeps all else elsewhere in `folder`."""
    root = folder / "notebooks"
    root.mkdir(exist_ok=True)
    log = folder / "jupyterlab.log"
    token = secrets.token_hex(16)
    with log.open("w") as output:
        server = subprocess.Popen(
            _command(root),
            env=_environment(folder, token),
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        lab = JupyterLab(_url(server, folder / "runtime", log), token, root)
        yield lab
    finally:
        server.terminate()
        try:
            server.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _command(root: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
        "--expose-app-in-browser",  # as window.jupyterapp, through which the tests give commands
        "--ServerApp.ip=127.0.0.1",
        "--ServerApp.port=0",
        f"--ServerApp.root_dir={root}",
    ]


def _environment(folder: Path, token: str) -> dict[str, str]:
    configuration = folder / "config"
    settings = configuration / "labconfig"
    settings.mkdir(parents=True)
    (settings / "default_setting_overrides.json").write_text(json.dumps(SETTINGS))
    # ipykernel behaves differently where it finds PYTEST_CURRENT_TEST.
    inherited = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
    return inherited | {
        "JUPYTER_TOKEN": token,
        "JUPYTER_CONFIG_DIR": str(configuration),
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
        "IPYTHONDIR": str(folder / "ipython"),
    }


def _url(server: subprocess.Popen, runtime: Path, log: Path) -> str:
    """Wait for the file in which the server says where it listens."""
    deadline = time.monotonic() + START_LIMIT
    while server.poll() is None and time.monotonic() < deadline:
        for file in runtime.glob(f"jpserver-{server.pid}.json"):
            try:
                return json.loads(file.read_text())["url"]
            except json.JSONDecodeError:  # half written
                continue
        time.sleep(0.05)
    raise RuntimeError(
        f"JupyterLab did not start within {START_LIMIT:.0f} s. It wrote:\n{log.read_text()[-4000:]}"
    )
