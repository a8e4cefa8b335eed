"""Programs and notebooks that run in a process of their own, with a time limit."""

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parent.parent


def environment() -> dict[str, str]:
    """The environment of a program that a user starts: tests can be imported, pytest is unknown."""
    variables = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
    return {**variables, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore::DeprecationWarning"}


def run_script(
    script: str, path: Path | None = None, limit: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run a program: by `python -`, or from a file at `path`."""
    text = textwrap.dedent(script)
    if path is not None:
        path.write_text(text)
    return subprocess.run(
        [sys.executable, "-" if path is None else str(path)],
        input=text if path is None else None,
        capture_output=True,
        text=True,
        timeout=limit,
        env=environment(),
    )


@contextmanager
def started(script: str) -> Iterator[subprocess.Popen[str]]:
    """A program in a process group of its own, as a shell starts it; it is killed at last."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment(),
    )
    family = []
    try:
        yield process
        family = family_of(process.pid)
    finally:
        for member in [*family, *family_of(process.pid)]:
            if member.is_running():
                member.kill()
        process.kill()
        process.communicate()


def family_of(pid: int) -> list[psutil.Process]:
    """The process's descendants."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def seconds_until(condition: Callable[[], bool], limit: float = 30) -> float:
    """How long it takes until `condition()` holds; `limit` if it does not."""
    start = time.monotonic()
    while time.monotonic() - start < limit:
        if condition():
            break
        time.sleep(0.01)
    return time.monotonic() - start


def alive(pid: int) -> bool:
    """Whether the process runs; a dead one that is not reaped does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def run_cells(*cells: str, interrupt: int | None = None, limit: float = 150) -> list[Any]:
    """Run a notebook's cells in a kernel.

    Args:
        *cells: their sources.
        interrupt: number of a cell that is interrupted, one second after it printed something.
        limit: seconds for all of them.

    Returns:
        for each cell {"stdout": …, "stderr": …, "error": name or None, "traceback": …, "seconds"}.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernel"],
        input=json.dumps({"cells": [textwrap.dedent(c) for c in cells], "interrupt": interrupt}),
        capture_output=True,
        text=True,
        timeout=limit,
        env=environment(),
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    results: list[Any] = json.loads(done.stdout)
    return results
