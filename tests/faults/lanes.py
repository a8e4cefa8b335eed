"""Many episodes, side by side: each lane is a process that runs its part of them.

A process that runs episodes has imported torch, so forking is cheap, and has a fork server, so that
is too. Episodes wait most of the time, which lanes do side by side; and each looks for what is left
behind in its own process.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait

from tests import leftovers
from tests.faults.episode import Episode, Outcome
from tests.faults.running import run

__all__ = ["by_start_method", "run_all"]


def by_start_method(episodes: Sequence[Episode], lanes: int = 1) -> list[Sequence[Episode]]:
    """The episodes in lanes, so many for each start method: a fork server takes long to start."""
    methods = sorted({episode.start_method for episode in episodes})
    of_method = [[e for e in episodes if e.start_method == method] for method in methods]
    return [part for part in (some[i::lanes] for some in of_method for i in range(lanes)) if part]


def run_all(lanes: Sequence[Sequence[Episode]]) -> Iterator[tuple[Episode, Outcome]]:
    """The outcomes as they come. Whoever stops asking for them ends the lanes.

    Raises:
        RuntimeError: a lane has died.
    """
    context = multiprocessing.get_context("fork")
    ends, processes = [], []
    try:
        for lane in lanes:
            ours, theirs = context.Pipe(duplex=False)
            processes.append(context.Process(target=_run_lane, args=(lane, theirs)))
            processes[-1].start()
            theirs.close()
            ends.append(ours)
        yield from _received(ends)
        for process in processes:
            process.join()
            if process.exitcode != 0:
                raise RuntimeError(f"a lane of episodes ended with exit code {process.exitcode}")
    finally:
        for end in ends:
            end.close()
        for process in processes:
            process.terminate()
            process.join()
            process.close()


def _received(ends: Sequence[Connection]) -> Iterator[tuple[Episode, Outcome]]:
    open_ends = list(ends)
    while open_ends:
        for end in wait(open_ends):
            assert isinstance(end, Connection)
            try:
                yield end.recv()
            except EOFError:
                open_ends.remove(end)


def _run_lane(episodes: Sequence[Episode], results: Connection) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    leftovers.NAMES_ARE_OURS = False  # other lanes have some; each episode looks for its own
    for episode in episodes:
        results.send((episode, run(episode)))
