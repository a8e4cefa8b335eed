"""In the main process of a failure: play the act, tell what is raised, and what is left.

Before it: `stage`, which starts and watches it. After it: the acts in `acts`.
"""

from __future__ import annotations

import faulthandler
import gc
import io
import mmap
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import signal
import threading
import time
import traceback
import weakref
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import IO, Any

from labkit.lab import need
from labkit.lab.failures import datasets
from labkit.lab.failures.acts import Failure
from labkit.lab.failures.outcome import Left
from labkit.lab.failures.sides import LABKIT, Side
from labkit.lab.shared_memory.holdings import names_of
from labkit.lab.shared_memory.main_processes import MANAGER
from labkit.startup import prepare_start_method
from labkit.worker import STACK_SIGNAL as LABKITS_SIGNAL

__all__ = ["STACK_SIGNAL", "Told", "main_process", "members"]

STACK_SIGNAL = LABKITS_SIGNAL + 2  # the next one is taken by exercises.confined
"""At it, this process and forked workers tell where they stand."""


@dataclass
class Told:
    """What was raised."""

    error: str
    message: str
    at: float


def main_process(
    failure: Failure, side: Side, reports: Connection, printed: IO[bytes], stack: IO[bytes]
) -> None:
    """The program of one side's main process.

    Args:
        failure: what is played.
        side: with which loader.
        reports: where to tell what happens.
        printed: the file that stdout and stderr become.
        stack: the file for where this process or a forked worker stands, at a `STACK_SIGNAL`.
    """
    os.setpgid(0, 0)
    for descriptor in (1, 2):
        os.dup2(printed.fileno(), descriptor)
    datasets.BEGUN = mmap.mmap(-1, 1)  # shared with forked workers
    _start_servers(side)
    faulthandler.register(STACK_SIGNAL, file=stack, all_threads=False)
    descriptors = len(os.listdir("/proc/self/fd"))
    stage = _Stage(reports)
    try:
        failure.act(side, stage)
        stage.tell(told=Told("", "", time.monotonic()))
    except BaseException as error:
        at = time.monotonic()
        _print(error)
        told = Told(type(error).__name__, str(error), at)
        stage.tell(told=told, workers=stage.workers, exit_codes=stage.exit_codes)
    gc.collect()  # the traceback's frames are gone, and the loader with them
    closed = time.monotonic()
    left = Left(
        processes=len(members(os.getpgid(0), [os.getpid(), *_servers()])),
        names=len(names_of([os.getpid(), *stage.workers])),
        descriptors=max(0, len(os.listdir("/proc/self/fd")) - descriptors),
    )
    stage.tell(closed=closed - stage.raised, left=left)
    while True:  # to be ended with its group
        with suppress(Exception):  # of PyTorch's handler of SIGCHLD, which stays
            signal.pause()


def _start_servers(side: Side) -> None:
    """Those that stay are started first, so that their descriptors do not count as left behind."""
    if side.package == LABKIT:
        prepare_start_method(multiprocessing.get_context(side.start_method))
    elif side.start_method == "forkserver":
        multiprocessing.forkserver.ensure_running()
    elif side.start_method == "spawn":
        multiprocessing.resource_tracker.ensure_running()


def _print(error: BaseException) -> None:
    """As the interpreter does when nobody catches it."""
    text = io.StringIO()
    traceback.print_exception(error, file=text)
    os.write(2, text.getvalue().encode())


def _servers() -> list[int]:
    """Those that multiprocessing starts once a process, and keeps."""
    server: Any = multiprocessing.forkserver._forkserver
    tracker: Any = multiprocessing.resource_tracker._resource_tracker
    return [pid for pid in (server._forkserver_pid, tracker._pid) if pid]


class _Stage:
    """What an act may ask for: see `acts.Stage`."""

    def __init__(self, reports: Connection) -> None:
        self._reports = reports
        self._turn = threading.Lock()
        self._batches = 0
        self._processes: dict[int, weakref.ref[BaseProcess]] = {}
        self._first_bytes: int | None = None
        self._megabytes: list[float] = []
        self.raised = 0.0

    def tell(self, **news: Any) -> None:
        """To the observer."""
        if "told" in news:
            self.raised = news["told"].at
        with self._turn:
            self._reports.send(news)

    @property
    def workers(self) -> list[int]:
        """The process ids of all workers that were seen."""
        for process in multiprocessing.active_children():
            # Only a weak one: a process object holds a descriptor.
            self._processes.setdefault(process.pid or 0, weakref.ref(process))
        return list(self._processes)

    @property
    def exit_codes(self) -> list[int | None]:
        """Of each worker that the loader has not let go of yet; None: it lives."""
        codes = []
        for process in (reference() for reference in self._processes.values()):
            with suppress(ValueError):  # it was closed
                if process is not None:
                    codes.append(process.exitcode)
        return codes

    def breaks(self) -> None:
        workers = self.workers
        self.tell(broke=time.monotonic(), workers=workers, servers=_servers())

    def came(self, private_bytes: int | None = None) -> None:
        self._batches += 1
        if private_bytes is not None:
            self._first_bytes = private_bytes if self._first_bytes is None else self._first_bytes
            self._megabytes.append((private_bytes - self._first_bytes) / 1e6)
        self.tell(batches=self._batches, megabytes=self._megabytes)


def members(group: int, servers: Collection[int]) -> list[int]:
    """The live processes of a group, without those that serve all of it."""
    psutil = need("psutil")
    found = []
    for pid in psutil.pids():
        with suppress(psutil.Error, OSError):
            if os.getpgid(pid) == group and pid not in servers:
                process = psutil.Process(pid)
                is_manager = process.name().startswith(MANAGER)
                if process.status() != psutil.STATUS_ZOMBIE and not is_manager:
                    found.append(pid)
    return found
