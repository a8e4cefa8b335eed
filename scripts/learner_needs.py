"""Measure what a learner needs of a server: memory and processor time of each notebook.

python -m scripts.learner_needs [NOTEBOOK ...]      (default: all in notebooks/)

Each notebook runs once from top to bottom on a small machine (`scripts.small_machine`), measuring
in full unless LABKIT_MEASURE_SECONDS says otherwise; and once JupyterLab's server by itself,
without a notebook. What was found goes into `scripts/learner_needs.json`, from which
`scripts.numbers_to_expect` writes a page.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from scripts.execute_notebooks import all_notebooks, execute
from scripts.small_machine import Group, Limits

NEEDS = Path(__file__).with_name("learner_needs.json")
SERVER = "JupyterLab's server"
ONE = "--one"
SERVER_SECONDS = 15.0  # it has loaded everything by then, on one slow core too


def main() -> None:
    """Measure, and keep what was found; what was not measured this time stays."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path, default=all_notebooks())
    limits = Limits.here()
    if limits.group is None:
        sys.exit("this system lets no control group be made, so memory cannot be measured")
    kept: dict[str, Any] = json.loads(NEEDS.read_text()) if NEEDS.exists() else {}
    needs = kept.get("needs", {})
    notebooks = parser.parse_args().notebooks
    keep(limits, needs, SERVER, measured(limits, "server", server_command(), SERVER_SECONDS))
    for path in notebooks:
        command = [sys.executable, "-m", "scripts.learner_needs", ONE, str(path.resolve())]
        keep(limits, needs, path.stem, measured(limits, path.stem, command))


def keep(limits: Limits, needs: dict[str, Any], name: str, need: dict[str, float]) -> None:
    """Write down what was found so far."""
    print(name, need, flush=True)
    needs[name] = need
    short = os.environ.get("LABKIT_MEASURE_SECONDS")
    told = {"limits": str(limits), "measure_seconds": short, "machine": machine()}
    NEEDS.write_text(json.dumps({**told, "needs": dict(sorted(needs.items()))}, indent=1) + "\n")


def machine() -> dict[str, Any]:
    """This machine and its versions, as the lab tells them."""
    from labkit.lab.machine import machine as found

    return found()


def measured(
    limits: Limits, name: str, command: list[str], seconds: float | None = None
) -> dict[str, float]:
    """Run a command on a small machine, to its end or for so long.

    Gives the most bytes that its family held, its processor time and its time, in seconds.
    """
    assert limits.group is not None
    group, ended = Group(limits.group, name), threading.Event()
    peaks = [0]

    def watch() -> None:
        while not ended.wait(0.1):
            peaks.append(max(peaks[-1], group.used()))

    watching = threading.Thread(target=watch)
    watching.start()
    start = time.monotonic()
    core = max(os.sched_getaffinity(0))
    child = subprocess.Popen(
        [*limits.command(group, core), *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        if seconds is not None:
            time.sleep(seconds)
            child.terminate()
        assert child.stderr is not None
        said = child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
    finally:
        ended.set()
        watching.join()
        group.remove()
    if seconds is None and status != 0:
        sys.exit(f"{name} ended with status {status}:\n{said.decode(errors='replace')[-3000:]}")
    return {
        "peak_bytes": peaks[-1],
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "seconds": round(time.monotonic() - start, 1),
    }


def server_command() -> list[str]:
    """JupyterLab's server, in a folder of its own."""
    options = ["--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1", "--ServerApp.port=0"]
    folder = f"--ServerApp.root_dir={tempfile.mkdtemp()}"
    return [sys.executable, "-m", "jupyterlab", *options, folder]


if __name__ == "__main__":
    if sys.argv[1:2] == [ONE]:
        execute(Path(sys.argv[2]))
    else:
        main()
