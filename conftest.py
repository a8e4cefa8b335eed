"""For every pytest run here: what runs side by side, and the machine on which notebooks run.

nbval's kernels behave as in JupyterLab, on a machine as small as one on Binder
(`scripts/small_machine.py`), and what memory each notebook took stands at the end of the report.
"""

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import nbval.kernel
import pytest
import traitlets
from jupyter_client.manager import KernelManager
from xdist.scheduler import LoadFileScheduling

from scripts.small_machine import Group, Limits

IN_A_BROWSER = "tests/browser/"
MEMORY_MOST = 1.5e9  # bytes that a notebook and its workers may hold
PEAKS = pytest.StashKey[dict[str, int]]()

os.environ["LABKIT_PROGRESS"] = "off"  # no test keeps what it passes, nor does a kernel of one

limits = cache(Limits.here)
_start_new_kernel = nbval.kernel.start_new_kernel


class SmallMachine(KernelManager):
    """Starts a kernel on a small machine. Its sockets are files: the network is left out."""

    group = traitlets.Any(None)  # its control group, if one could be made

    def format_kernel_cmd(self, extra_arguments: list[str] | None = None) -> list[str]:
        cores = sorted(os.sched_getaffinity(0))
        core = cores[int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % len(cores)]
        command = super().format_kernel_cmd(extra_arguments)
        return [*limits().command(self.group, core), *command]


class Kernels:
    """Starts the notebooks' kernels, and watches what memory they take."""

    def __init__(self) -> None:
        self.notebook = ""
        self.peaks: dict[str, int] = {}
        self._ended = threading.Event()
        self._watch: threading.Thread | None = None
        self._sockets = ""

    def start(self, **options: Any) -> tuple[Any, Any]:
        """In the place of `nbval.kernel.start_new_kernel`.

        ipykernel leaves the standard file descriptors alone when it finds PYTEST_CURRENT_TEST, and
        then whatever a spawned worker prints is lost. nbval's own file for stderr stays open, so it
        is swapped for DEVNULL.
        """
        self.end()
        self._sockets = tempfile.mkdtemp()
        options["stderr"].close()
        options["stderr"] = subprocess.DEVNULL
        environment = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
        environment["LABKIT_MEASURE_SECONDS"] = "0.5"  # nbval does not compare figures
        group = None
        if (above := limits().group) is not None:
            group = Group(above, self.notebook)
            self._ended = threading.Event()
            watched = (group, self.notebook, self._ended)
            self._watch = threading.Thread(target=self._see, args=watched, daemon=True)
            self._watch.start()
        nbval.kernel.KernelManager = partial(
            SmallMachine, transport="ipc", ip=f"{self._sockets}/kernel", group=group
        )
        return _start_new_kernel(**options, env=environment)

    def _see(self, group: Group, notebook: str, ended: threading.Event) -> None:
        while not ended.wait(0.1):
            self.peaks[notebook] = max(self.peaks.get(notebook, 0), group.used())
        group.remove()

    def end(self) -> None:
        """The latest kernel has ended."""
        self._ended.set()
        if self._watch is not None:
            self._watch.join()
            self._watch = None
        shutil.rmtree(self._sockets, ignore_errors=True)


kernels = Kernels()
nbval.kernel.start_new_kernel = kernels.start


class ByFile(LoadFileScheduling):
    """Test files side by side; those in a browser follow each other and share a JupyterLab."""

    def _split_scope(self, nodeid: str) -> str:
        return IN_A_BROWSER if nodeid.startswith(IN_A_BROWSER) else super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    kernels.notebook = item.path.stem
    return (yield)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[PEAKS] = {}


def pytest_sessionfinish(session: pytest.Session) -> None:
    kernels.end()
    session.config.stash[PEAKS].update(kernels.peaks)
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["peaks"] = kernels.peaks
    elif any(peak > MEMORY_MOST for peak in session.config.stash[PEAKS].values()):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[PEAKS].update(getattr(node, "workeroutput", {}).get("peaks", {}))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    peaks = config.stash[PEAKS]
    if not peaks:
        return
    terminalreporter.section(f"memory that notebooks took, with {limits()}")
    for notebook, peak in sorted(peaks.items()):
        too_much = f", more than {MEMORY_MOST / 1e6:.0f} MB" if peak > MEMORY_MOST else ""
        terminalreporter.line(f"{notebook}: {peak / 1e6:.0f} MB{too_much}")
