"""Programs that the lab starts, and ends with all that they started.

A measurement that depends on the state of a process runs in a program of its own. Whatever happens
(an error, a time limit, Ctrl-C), nothing of it is left.

After it: `bench.timing`, which starts one a repeat; `experiments.fresh`, which keeps one for many;
`doctor.link`, `inherited` and `exercises.counting`, each of which asks one something.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import labkit
from labkit.lab import need

__all__ = ["end", "output_of", "start"]

_TIDY_SECONDS = 5.0


def output_of(command: Sequence[str], limit_s: float = 120) -> str:
    """What the command prints.

    Raises:
        RuntimeError: it failed; says what it wrote.
        subprocess.TimeoutExpired: it took longer than `limit_s`.
    """
    process = start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        output, errors = process.communicate(timeout=limit_s)
    except BaseException:
        end(process)
        raise
    if process.returncode != 0:
        raise RuntimeError(f"a program of the lab failed:\n{errors.decode()}")
    return output.decode()


def start(
    command: Sequence[str],
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
    pass_fds: Iterable[int] = (),
    **environment: str,
) -> subprocess.Popen[bytes]:
    """Start a program that can import this labkit, in a process group of its own."""
    here = str(Path(labkit.__file__).parents[1])  # also where labkit is not installed
    path = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env={**os.environ, "PYTHONPATH": path, **environment},
        pass_fds=list(pass_fds),
        start_new_session=True,  # Ctrl-C comes to this process alone
    )


def end(process: subprocess.Popen[bytes]) -> None:
    """End it and all that it started: by Ctrl-C, so that it can tidy up, then by force."""
    if process.returncode is not None:
        return  # it has ended and was waited for
    psutil = need("psutil")
    family: list[Any] = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=_TIDY_SECONDS)
    for member in [*psutil.wait_procs(family, timeout=_TIDY_SECONDS)[1], process]:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    with suppress(ProcessLookupError, PermissionError):  # those whose own parent has ended
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
