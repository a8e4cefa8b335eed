"""The worker's side: seed, fetch, collate, send.

A worker reads tasks from its channel, one after another, until the channel ends; that is also how
it learns that the main process is gone. What it fetched is pickled and written by a feeder thread,
so that it can fetch the next batch while the channel is full.

Before it: `pool.py`, which started it. After it: `fetch.py`, then `sharing/`.
Mirrors: torch/utils/data/_utils/worker.py (`_worker_loop`, `WorkerInfo`). The end-of-file stands
for PyTorch's `None`, its `done_event` and its `ManagerWatchdog`.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import os
import pickle
import random
import select
import signal
import sys
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from torch.utils.data._utils import worker as torch_worker

from labkit.channel import Channel
from labkit.errors import WorkerException
from labkit.feeder import Feeder, Forwarded
from labkit.fetch import Fetched, Fetcher, make_fetcher
from labkit.logbook import Logbook
from labkit.messages import INTERRUPTED, IterableEnd, Result, Resume
from labkit.sharing import Segment, building_in, make_sender
from labkit.spans import here, span
from labkit.startup import Startup
from labkit.watch import end_with_main_process

__all__ = ["WorkerInfo", "get_worker_info", "numpy_seed", "set_epoch", "worker_loop"]

STACK_SIGNAL = getattr(signal, "SIGRTMIN", 0) + 8
"""On this signal a worker writes its stack to the stack pipe, even while a lock holds it."""

_LONG_SECONDS = 0.01
"""Before a task that will take so long, it is worth a look whether it is still wanted."""

_PEER_CLOSED = getattr(select, "POLLRDHUP", 0)


class WorkerInfo:
    """Who this worker is. Reading `id` or `num_workers` is noticed: who shards, reads them.

    Attributes:
        id: 0 to num_workers - 1.
        num_workers: how many workers this loader has.
        seed: what torch and random were seeded with here: base seed + id.
        dataset: this worker's copy of the dataset.

    Mirrors: torch.utils.data._utils.worker.WorkerInfo.
    """

    rng = None
    worker_method = "multiprocessing"

    def __init__(self, id: int, num_workers: int, seed: int, dataset: Any) -> None:
        self._id = id
        self._num_workers = num_workers
        self.seed = seed
        self.dataset = dataset
        self.was_read = False

    @property
    def id(self) -> int:
        """The worker's number, from 0."""
        self.was_read = True
        return self._id

    @property
    def num_workers(self) -> int:
        """How many workers the loader has."""
        self.was_read = True
        return self._num_workers

    def __repr__(self) -> str:
        return f"WorkerInfo(id={self._id}, num_workers={self._num_workers}, seed={self.seed})"


_worker_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """In a worker, who it is; elsewhere None. `torch.utils.data.get_worker_info` says the same."""
    return _worker_info


def worker_loop(
    channel: Channel,
    worker_id: int,
    startup: Startup,
    memory: Segment,
    stack_pipe: Connection | None,
) -> None:
    """A worker's life: the target of its process.

    Args:
        channel: its end.
        worker_id: 0 to num_workers - 1.
        startup: what all workers of the loader get.
        memory: for its logbook.
        stack_pipe: where to write its stack at a `STACK_SIGNAL`, if a timeout may ask for that.
    """
    try:
        accept_interrupts()
        # What was there before the fork is the parent's: a collection that looked at it would write
        # to its pages, and each would be copied.
        gc.freeze()
        if stack_pipe is not None:
            faulthandler.register(STACK_SIGNAL, file=stack_pipe, all_threads=True)
            stack_pipe.send_bytes(b"ready")  # before that, the signal would end this process
        logbook = Logbook(memory)
        memory.close()
        _Worker(channel, worker_id, startup, logbook).run()
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)  # the main process was interrupted too, and says so
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the main process wants no more, or is gone
    if startup.start_method == "spawn":
        atexit.register(_end_without_teardown)  # last, so it is called first


def _end_without_teardown() -> None:
    """Call the other exit handlers, then end this process: a spawned worker ends as a forked one.

    What an interpreter does after its exit handlers, taking each module apart, takes a second with
    torch. `close` would wait for it, and it cannot be cut short once the main process is gone: a
    daemon thread (see `watch.py`) stands still in it.
    """
    atexit.unregister(_end_without_teardown)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(0)


def accept_interrupts() -> None:
    """Let Ctrl-C in: it was held back while this process started, to end here and quietly."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


class _Worker:
    """What a worker has and does; one a process."""

    def __init__(
        self, channel: Channel, worker_id: int, startup: Startup, logbook: Logbook
    ) -> None:
        self._channel = channel
        self._head = logbook.head
        here.lane = self._lane = logbook.lane("worker")
        self._id = worker_id
        self._startup = startup
        self._sender = make_sender(
            startup.sharing_strategy,
            startup.main_pid,
            startup.arena_limit_bytes,
            startup.keeps_pages,
        )
        self._feeder = Feeder(channel, worker_id, self._sender, logbook.lane("feeder"))
        end_with_main_process(channel, lambda: self._sender.close(receiver_is_gone=True))
        self._fetcher: Fetcher | None = None
        self._start_error: WorkerException | None = None
        self._is_broken = False  # the start error is for good, not only for this epoch
        self._seconds = 0.0  # that the latest task took
        self._ended = False  # the iterable dataset is exhausted: skip tasks until a `Resume`
        self._hangup = select.poll() if _PEER_CLOSED else None
        if self._hangup is not None:
            self._hangup.register(channel, _PEER_CLOSED)

    def run(self) -> None:
        if self._startup.forward_output:
            sys.stdout = Forwarded("stdout", self._feeder)
            sys.stderr = Forwarded("stderr", self._feeder)
        self._seed()
        try:
            if self._startup.worker_init_fn is not None:
                self._startup.worker_init_fn(self._id)
            self._make_fetcher()
        except Exception as error:
            # Told as the outcome of every task: without this there is nothing to be fetched.
            self._start_error = WorkerException(error, self._id)
            self._is_broken = True
        try:
            with building_in(self._sender.allocate):
                while True:
                    self._handle(self._next_message())
        except EOFError:
            for stream in (sys.stdout, sys.stderr):
                if isinstance(stream, Forwarded):
                    stream.write_rest()
            self._feeder.finish()
        finally:
            self._sender.close(receiver_is_gone=self._channel.peer_is_gone())

    def _seed(self) -> None:
        global _worker_info
        startup, seed = self._startup, self._startup.base_seed + self._id
        torch.set_num_threads(1)
        random.seed(seed)
        torch.manual_seed(seed)
        np.random.seed(numpy_seed(startup.base_seed, self._id))
        _worker_info = WorkerInfo(self._id, startup.num_workers, seed, startup.dataset)
        # Datasets ask PyTorch who they are; its answer is this variable.
        torch_worker._worker_info = _worker_info  # type: ignore[assignment]

    def _make_fetcher(self) -> None:
        s = self._startup
        self._fetcher = make_fetcher(s.dataset, s.auto_collation, s.collate_fn, s.drop_last)

    def _next_message(self) -> Any:
        while not self._channel.inbox:
            with span("wait", batch=-1):
                self._channel.read()
        if self._seconds > _LONG_SECONDS and self._hangup is not None and self._hangup.poll(0):
            raise EOFError("the main process wants no more: the tasks that wait are void")
        payload, _ = self._channel.inbox.popleft()
        returned, message = pickle.loads(payload)
        self._sender.take_back(returned)
        return message

    def _handle(self, message: Any) -> None:
        if isinstance(message, Resume):
            self._ended = False
            self._head.batch = -1  # it has begun none of this epoch
            self._lane.epoch = message.serial
            with span("resume", batch=-1):
                self._resume(message)
            self._feeder.put(message)
        elif not self._ended:
            batch, index = message
            self._head.batch = self._lane.batch = batch
            began = time.monotonic()
            self._feeder.put(self._outcome(batch, index))
            self._seconds = time.monotonic() - began

    def _resume(self, message: Resume) -> None:
        if self._is_broken:
            return
        self._start_error = None
        try:
            if message.epoch is not None:
                set_epoch(self._startup.dataset, message.epoch)
            self._make_fetcher()
        except Exception as error:
            self._start_error = WorkerException(error, self._id)

    def _outcome(self, batch: int, index: Any) -> Result:
        if self._start_error is not None:
            return batch, self._start_error, 0
        try:
            assert self._fetcher is not None
            fetched: Fetched = self._fetcher.fetch(index)
        except StopIteration:  # only an iterable dataset's end: fetchers see to that
            self._ended = True
            return batch, self._iterable_end(), 0
        except Exception as error:
            return batch, WorkerException(error, self._id, index), 0
        return batch, fetched.batch, fetched.n_samples

    def _iterable_end(self) -> IterableEnd:
        assert self._fetcher is not None and _worker_info is not None
        told = _worker_info.was_read or self._startup.worker_init_fn is not None
        return IterableEnd(self._fetcher.dropped_samples, told)


def numpy_seed(base_seed: int, worker_id: int) -> list[int]:
    """The seed of numpy's global generator in a worker: four 32-bit words.

    Mirrors: torch.utils.data._utils.worker._generate_state, which is numpy's `SeedSequence` written
    out (O'Neill, "Developing a seed_seq Alternative", 2015).
    """
    entropy = [worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    return [int(word) for word in np.random.SeedSequence(entropy).generate_state(4)]


def set_epoch(dataset: Any, epoch: int) -> None:
    """Tell a dataset its epoch: by its `set_epoch`, else by its attribute `epoch`, if any."""
    if hasattr(dataset, "set_epoch"):
        dataset.set_epoch(epoch)
    elif hasattr(dataset, "epoch"):
        dataset.epoch = epoch
