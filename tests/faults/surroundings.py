"""Special episodes that lie in what is around a loader: threads, processes, other loaders."""

from __future__ import annotations

import importlib
import io
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
import torch

import labkit
from labkit.errors import WorkerDied
from labkit.pinning import PinThread
from labkit.recording import Source
from tests.datasets import Mapped, Samples, sleep
from tests.faults.running import gone_when
from tests.faults.scarcity import in_a_process

__all__ = [
    "close_while_pinning_hangs",
    "close_with_stopped_workers",
    "death_around_a_loader",
    "death_in_a_process",
    "death_in_a_thread",
    "fork_beside_busy_threads",
    "many_loaders_beside_one",
]

LOADERS = 40  # 200, where all episodes are run

_log = logging.Logger("faults")  # of no hierarchy
# Python makes logging's locks anew in a forked child, but not those inside a file.
_log.addHandler(logging.StreamHandler(io.StringIO()))


def fork_beside_busy_threads() -> float:
    """Ten loaders, whose workers take the locks that threads keep taking here."""
    began = time.monotonic()
    done = threading.Event()
    inner = labkit.DataLoader(Samples(64), 8)
    works: list[Callable[[], Any]] = [
        lambda: _log.warning("in a thread"),
        lambda: _import_anew("json.tool"),
        lambda: torch.empty(1 << 20).fill_(1.0),
        lambda: list(inner),
    ]
    threads = [threading.Thread(target=_repeat, args=(work, done)) for work in works]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            loader = labkit.DataLoader(Mapped(_with_locks, 8), 2, num_workers=2, timeout=30)
            assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    finally:
        done.set()
        for thread in threads:
            thread.join()
    return time.monotonic() - began


def _with_locks(index: int) -> int:
    _log.warning("in a worker")
    _import_anew("json.scanner")
    return index + int(torch.empty(1 << 16).fill_(0.0).sum())


def _import_anew(name: str) -> None:
    sys.modules.pop(name, None)
    importlib.import_module(name)


def _repeat(work: Callable[[], Any], done: threading.Event) -> None:
    while not done.is_set():
        work()


def death_in_a_thread() -> float:
    """All of it off the main thread."""
    told: list[float] = []
    thread = threading.Thread(target=lambda: told.append(_seconds_to_a_death(Samples(64))))
    thread.start()
    thread.join(60)
    (seconds,) = told
    return seconds


def death_in_a_process() -> float:
    """In a process that multiprocessing has made."""
    return in_a_process(_seconds_to_a_death, Samples(64))


def death_around_a_loader() -> float:
    """The dataset has a loader of its own, without workers."""
    return _seconds_to_a_death(Mapped(_from_a_loader, 64))


def _from_a_loader(index: int) -> torch.Tensor:
    inner = labkit.DataLoader(Samples(4), 2)
    assert [batch.tolist() for batch in inner] == [[0, 1], [2, 3]]
    return torch.tensor(index)


def _seconds_to_a_death(dataset: Any) -> float:
    """From a worker's death to its error, which comes after the batches that were made."""
    loader = labkit.DataLoader(dataset, 2, num_workers=2, prefetch_factor=1)
    batches = iter(loader)
    given = [int(next(batches)[0])]
    (victim, *_) = (p for p in multiprocessing.active_children() if p.name.endswith("worker 0"))
    assert victim.pid is not None
    with gone_when([victim.pid]) as gone:
        os.kill(victim.pid, signal.SIGKILL)
        assert gone(30)
    began = time.monotonic()
    with pytest.raises(WorkerDied, match="SIGKILL"):
        for batch in batches:
            given.append(int(batch[0]))
    seconds = time.monotonic() - began
    assert given == list(range(0, 2 * len(given), 2))
    assert len(given) < 5
    return seconds


def many_loaders_beside_one() -> float:
    """Each is begun and dropped; the running one gives all its batches, in their order."""
    began = time.monotonic()
    running = iter(labkit.DataLoader(Samples(2 * LOADERS + 50), 2, num_workers=2))
    given = [next(running).tolist()]
    counts = []
    for number in range(LOADERS):
        strategy = sorted(labkit.get_all_sharing_strategies())[number % 4]
        batches = iter(labkit.DataLoader(Samples(4), num_workers=1, sharing_strategy=strategy))
        assert next(batches).tolist() == [0]
        if number % 10 == 9:
            batches._pool._workers[0].process.kill()
        del batches
        given.append(next(running).tolist())
        counts.append((len(os.listdir("/proc/self/fd")), threading.active_count()))
    assert counts[8:] == counts[4:-4], counts  # by strategy, of which there are four
    given += [batch.tolist() for batch in running]
    assert given == [[2 * i, 2 * i + 1] for i in range(LOADERS + 25)]
    return time.monotonic() - began


def close_with_stopped_workers() -> float:
    """A stopped process ends by SIGKILL alone."""
    loader = labkit.DataLoader(Samples(64), num_workers=2, persistent_workers=True)
    next(iter(loader))
    pids = [child.pid for child in multiprocessing.active_children() if child.pid is not None]
    with gone_when(pids) as gone:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        loader.close()
        seconds = time.monotonic() - began
        assert gone(0.1)
    return seconds


def close_while_pinning_hangs() -> float:
    """The thread that pins is in a user's `pin_memory` for good, or so it seems."""
    hanging = threading.Event()
    asked = threading.Event()

    class Hanging:
        def pin_memory(self) -> Hanging:
            asked.set()
            hanging.wait()
            return self

    class Pool:
        def receive(self, *args: Any) -> list[Any]:
            return [(0, (0, Hanging(), 1))]

        def interrupt(self) -> None: ...

    with ExitStack() as afterwards:
        afterwards.callback(hanging.set)
        thread = PinThread(Pool(), Source(max_depth=0))
        assert asked.wait(30)
        began = time.monotonic()
        thread.close()
        loader = labkit.DataLoader(Mapped(sleep), num_workers=2)
        iter(loader).close()  # what a close takes beside it: workers in a sample
        return time.monotonic() - began
