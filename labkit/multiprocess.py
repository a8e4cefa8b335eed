"""One epoch with workers: hand out tasks, put results in order, end.

A task is (batch number, indices). At most `prefetch_factor × num_workers` of them are under way;
for each batch that is given to the user one more is handed out. Results that come before their turn
wait in the reorder buffer: a task that is not given yet, with its result.

Before it: `iteration.py`. After it: `pool.py`.
Mirrors: torch/utils/data/dataloader.py (`_MultiProcessingDataLoaderIter`).
"""

from __future__ import annotations

import copy
import itertools
import os
import sys
import threading
import time
import warnings
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NoReturn

from labkit.diagnosis import timed_out, worker_died
from labkit.errors import WorkerDied, WorkerException
from labkit.iteration import HOW_TO_SHARD, BaseIterator, EpochReport, Settings
from labkit.messages import INTERRUPTED, IterableEnd, Result, Resume, Unreadable
from labkit.pinning import PinThread
from labkit.pool import Death, WorkerPool
from labkit.recording import step
from labkit.sharing import PageLocker
from labkit.spans import span
from labkit.startup import (
    Startup,
    interrupts_held_back,
    prepare_start_method,
    resolve_context,
)

__all__ = ["MultiProcessIterator", "OneEpoch"]

_GRACE_AFTER_DEATH = 0.2  # seconds: the error is to be told, and nobody wants the others' work
_LEAVE_SECONDS = 1.0  # for a thread to leave `next`, where it may be in a sampler of the user's


@dataclass
class _Task:
    """A batch under way: who works on it, on what, and the result once that has come."""

    worker_id: int
    index: Any
    result: Result | None = None


class MultiProcessIterator(BaseIterator):
    """Iterates with worker processes; with persistent workers again and again, by `restart`."""

    def __init__(self, settings: Settings, report: EpochReport) -> None:
        super().__init__(settings, report)
        context = resolve_context(settings.multiprocessing_context)
        startup = Startup(
            dataset=settings.dataset,
            auto_collation=settings.auto_collation,
            collate_fn=settings.collate_fn,
            drop_last=settings.drop_last,
            worker_init_fn=settings.worker_init_fn,
            base_seed=self._base_seed,
            num_workers=settings.num_workers,
            sharing_strategy=settings.sharing_strategy,
            arena_limit_bytes=settings.arena_limit_bytes,
            keeps_pages=settings.page_locker is not None,
            main_pid=os.getpid(),
            forward_output=sys.stdout is not sys.__stdout__,
            start_method=prepare_start_method(context),
        )
        self._failure: Exception | None = None
        self._interrupted = -1  # the number of the epoch that is to end
        self._turn = threading.RLock()  # of the thread that is in `next`, which may `close`
        self._resume = Resume(serial=0)
        self._pin_thread: PinThread | None = None
        with step(self._source), ExitStack() as on_failure:
            with interrupts_held_back():
                self._pool = WorkerPool(
                    startup,
                    context,
                    self._source,
                    with_stacks=settings.timeout > 0,
                    page_locker=settings.page_locker,
                )
                on_failure.callback(self._close_pool)  # a traceback would keep the workers
                if settings.pin_memory:
                    self._pin_thread = PinThread(self._pool, self._source)
            self._begin_epoch()
            on_failure.pop_all()

    def _begin_epoch(self) -> None:
        num_workers = self._settings.num_workers
        # Taken anew although it was taken in `__init__`: PyTorch does, and a sampler may draw from
        # the generator each time.
        self._sampler_iter = iter(self._settings.index_sampler)
        self._tasks: dict[int, _Task] = {}  # by batch number, in the order of handing out
        self._arrived: deque[int] = deque()  # batch numbers in the order of their results
        self._send_idx = 0  # number of the next batch to hand out
        self._rcvd_idx = 0  # number of the next batch to give to the user, if in order
        self._active = [True] * num_workers  # False: its iterable dataset has ended
        self._workers_num_tasks = [0] * num_workers
        self._worker_cycle = itertools.cycle(range(num_workers))
        self._hint_given = False
        self._max_tasks = (self._settings.prefetch_factor or 0) * num_workers
        for _ in range(self._max_tasks):
            self._hand_out()

    def restart(self, report: EpochReport) -> None:
        """Begin a new epoch with the same workers (`persistent_workers`).

        What is under way is finished first and dropped, so that random numbers in the workers go on
        from the same place every time. A thread that is in `next` leaves it first, with
        StopIteration.
        """
        self._resume = Resume(self._resume.serial + 1, report.epoch)
        self._pool.interrupt()
        with self._turn, step(self._source):
            self._report = report
            self._source.epoch = self._resume.serial
            for worker_id in range(self._pool.num_workers):
                self._pool.send(worker_id, self._resume)
            try:
                self._wait_until_resumed()
            except KeyboardInterrupt:
                self.close()
                raise
            self._begin_epoch()

    def _wait_until_resumed(self) -> None:
        waiting = set(range(self._pool.num_workers))
        deadline = self._deadline()
        while waiting:
            messages = self._messages(_seconds_until(deadline))
            self._end_if_failed(messages)
            if self._failure is not None:
                raise self._told_failure()
            waiting.difference_update(w for w, message in messages if message == self._resume)
            if not messages and _is_over(deadline):
                self._raise_timeout(min(waiting))

    @property
    def epoch_number(self) -> int:
        """The number of the epoch that runs, from 0."""
        return self._resume.serial

    @property
    def usable(self) -> bool:
        """Whether `restart` can be called: not closed, of this process and not of one that forked
        it, and its workers not ended by Ctrl-C.
        """
        return self._pool.is_open_here and INTERRUPTED not in self._pool.exitcodes()

    def takes(self, page_locker: PageLocker | None) -> bool:
        """Whether its batches lie in memory that this one page-locks, so that `restart` will do."""
        return self._settings.page_locker == page_locker

    def close(self) -> None:
        has_turn = self._turn.acquire(blocking=False)
        if not has_turn:  # another thread is in `next`; it leaves that first, with StopIteration
            self.interrupt()
            has_turn = self._turn.acquire(timeout=_LEAVE_SECONDS)
        try:
            self._tasks.clear()
            self._arrived.clear()
            self._close_pool()
        finally:
            if has_turn:
                self._turn.release()

    def interrupt(self) -> None:
        self.interrupt_epoch(self._resume.serial)

    def interrupt_epoch(self, number: int) -> None:
        """As `interrupt`, if that epoch still runs."""
        self._interrupted = max(self._interrupted, number)
        self._pool.interrupt()

    def this_epoch(self) -> OneEpoch:
        """The epoch that runs now, and no later one with the same workers."""
        return OneEpoch(self, self._resume.serial)

    def _close_pool(self, **grace: float) -> None:
        if self._pin_thread is not None:
            self._pin_thread.close()  # first: it receives from the pool
        self._pool.close(**grace)

    def _next(self, epoch: int | None = None) -> Any:
        """The next batch; of the epoch with that number, or StopIteration."""
        with self._turn:
            try:
                task = self._next_task(self._resume.serial if epoch is None else epoch)
            except KeyboardInterrupt:
                # Whoever is interrupted here will hardly go on with this epoch; and as long as the
                # traceback lives, in a notebook until the next one, it would keep the workers.
                self.close()
                raise
            assert task.result is not None
            _, data, n_samples = task.result
            self._workers_num_tasks[task.worker_id] -= 1
            self._hand_out()
            if isinstance(data, WorkerException):
                data.indices = task.index
                data.reraise()
            return self._give(data, n_samples)

    def _next_task(self, epoch: int) -> _Task:
        """The task whose result is to be given now; waits for it."""
        deadline: float | None = None
        while True:
            if self._interrupted >= epoch or self._resume.serial != epoch:
                raise StopIteration
            if (batch := self._next_arrived()) is not None:
                break
            if self._failure is not None:
                raise self._told_failure()
            if not self._tasks:
                if not self._settings.persistent_workers:
                    self.close()
                raise StopIteration
            deadline = deadline or self._deadline()
            self._receive(deadline)
        with span("take", batch):
            return self._tasks.pop(batch)

    def _next_arrived(self) -> int | None:
        """The number of the batch to give now, if its result has come."""
        if not self._settings.in_order:
            return self._arrived.popleft() if self._arrived else None
        while self._rcvd_idx < self._send_idx and self._rcvd_idx not in self._tasks:
            self._rcvd_idx += 1  # void: its worker's dataset had ended
        task = self._tasks.get(self._rcvd_idx)
        if task is None or task.result is None:
            return None
        self._rcvd_idx += 1
        return self._rcvd_idx - 1

    def _deadline(self) -> float | None:
        """When a wait that begins now is too long, on `time.monotonic`; None for never."""
        return time.monotonic() + self._settings.timeout if self._settings.timeout > 0 else None

    def _receive(self, deadline: float | None) -> None:
        """Wait for something to arrive and put it where it belongs."""
        ends = []
        awaited = self._tasks.get(self._rcvd_idx)
        messages = self._messages(_seconds_until(deadline), awaited.worker_id if awaited else None)
        for worker_id, message in messages:
            if isinstance(message, Resume):
                continue  # the answer to a `restart` that was given up after `timeout`
            if isinstance(message, (Death, Unreadable)):
                continue  # see below
            batch, data, _ = message
            if isinstance(data, IterableEnd):
                self._void_tasks_of(worker_id)
                ends.append((worker_id, data))
            else:
                self._tasks[batch].result = message
                self._arrived.append(batch)
        # Now that nothing can get lost: what ends it, what may raise.
        self._end_if_failed(messages)
        for worker_id, end in ends:
            self._end_worker(worker_id, end)
        if not messages and _is_over(deadline):
            self._raise_timeout()

    def _messages(
        self, timeout: float | None = None, likely: int | None = None
    ) -> list[tuple[int, Any]]:
        """What has arrived, as (worker id, message)."""
        try:
            return (self._pin_thread or self._pool).receive(timeout, likely)
        except Exception as error:
            self._failure = _without_traceback(error)
            self.close()
            raise

    def _end_if_failed(self, messages: list[tuple[int, Any]]) -> None:
        """A death or an unreadable message ends it all. It is told when the batches that came with
        it, and whose turn is before it, have been given.
        """
        for worker_id, message in messages:
            if isinstance(message, Death):
                self._failure = self._died(worker_id, message)
                self._close_pool(grace_seconds=_GRACE_AFTER_DEATH)
                return
            if isinstance(message, Unreadable):
                self._failure, message.error = message.error, None
                self._close_pool()
                return

    def _told_failure(self) -> Exception:
        """The error that ended it all. Its traceback is told once, for that collects frames, and
        frames hold batches.
        """
        assert self._failure is not None
        failure, self._failure = self._failure, _without_traceback(self._failure)
        self.close()
        return failure

    def _hand_out(self) -> None:
        """Give the next task to the next worker, if there is one and somebody to do it."""
        if self._failure is not None:
            return
        try:
            with span("sampler", self._send_idx):
                index = next(self._sampler_iter)
        except StopIteration:
            return
        for _ in range(self._settings.num_workers):
            worker_id = next(self._worker_cycle)
            if self._can_take(worker_id):
                break
        else:
            return
        with span("dispatch", self._send_idx):  # first: not every index can be pickled
            self._pool.send(worker_id, (self._send_idx, index))
        self._tasks[self._send_idx] = _Task(worker_id, index)
        self._workers_num_tasks[worker_id] += 1
        self._send_idx += 1

    def _can_take(self, worker_id: int) -> bool:
        if not self._active[worker_id] or self._settings.in_order:
            return self._active[worker_id]
        # Out of order a slow worker must not collect tasks that a fast one could do.
        return self._workers_num_tasks[worker_id] < self._max_tasks // sum(self._active)

    def _void_tasks_of(self, worker_id: int) -> None:
        """A worker's iterable dataset has ended: what else it was asked for will not come."""
        self._active[worker_id] = False
        for batch, task in list(self._tasks.items()):
            if task.worker_id == worker_id and task.result is None:
                with span("void", batch):
                    del self._tasks[batch]

    def _end_worker(self, worker_id: int, end: IterableEnd) -> None:
        self._report.dropped_samples += end.dropped_samples
        if not self._settings.persistent_workers and self._failure is None:
            self._pool.retire(worker_id)
        self._hint_at_sharding(end)
        self._hand_out()

    def _hint_at_sharding(self, end: IterableEnd) -> None:
        if end.asked_who_it_is or self._hint_given or self._settings.num_workers < 2:
            return
        self._hint_given = True
        warnings.warn(
            f"{self._settings.num_workers} workers iterated over an IterableDataset that never "
            f"asked which worker it is in: every sample may have come from each of them. "
            f"{HOW_TO_SHARD}",
            stacklevel=7,
        )

    def _died(self, worker_id: int, death: Death) -> WorkerDied:
        task = self._tasks.get(death.batch)
        if task is None or task.result is not None:
            return worker_died(worker_id, death)  # it had nothing to do
        return worker_died(worker_id, death, death.batch, task.index)

    def _raise_timeout(self, worker_id: int | None = None) -> NoReturn:
        """For the oldest batch that has not come, from this worker or from any."""
        for batch, task in self._tasks.items():
            if task.result is None and worker_id in (None, task.worker_id):
                late, worker_id, indices = batch, task.worker_id, task.index
                break
        else:  # it is stuck between two epochs
            assert worker_id is not None
            late, indices = None, None
        pid, stack = self._pool.pid(worker_id), self._pool.stack(worker_id)
        raise timed_out(self._settings.timeout, worker_id, pid, late, indices, stack)


class OneEpoch:
    """An epoch of persistent workers for a thread of its own, as a `Preloader` has one.

    Raises:
        RuntimeError: another epoch has begun with these workers.
    """

    def __init__(self, iterator: MultiProcessIterator, number: int) -> None:
        self._iterator = iterator
        self._number = number

    def __iter__(self) -> OneEpoch:
        return self

    def __next__(self) -> Any:
        try:
            with step(self._iterator.source):
                return self._iterator._next(self._number)
        except StopIteration:
            if self._iterator.epoch_number != self._number:
                raise RuntimeError(
                    "This epoch was ended by another one that has begun with the same persistent "
                    "workers. Finish or close one epoch before you begin the next, or make a "
                    "loader for each."
                ) from None
            raise

    def interrupt(self) -> None:
        """End a `next` that waits in another thread; nothing, if another epoch has begun."""
        self._iterator.interrupt_epoch(self._number)


def _without_traceback(error: Exception) -> Exception:
    """The same error to be raised again. A traceback holds frames, and these hold the batches."""
    try:
        return copy.copy(error)
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")


def _seconds_until(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _is_over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline
