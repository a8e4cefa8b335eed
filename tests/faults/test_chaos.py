"""Faults at random, beside a model: no hang, no wrong batch, nothing left behind.

Hypothesis chooses what happens, and shrinks what fails. The model knows which batch comes next and
whether an error is due. `make chaos` runs 500 episodes; in CI run as many as a few seconds hold.
"""

import gc
import multiprocessing
import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import hypothesis.strategies as st
import torch
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from torch.utils.data import Dataset

import labkit
from labkit.errors import LoaderTimeout, TooManyOpenFiles, WorkerDied
from tests import leftovers

EPISODES = int(os.environ.get("LABKIT_CHAOS_EPISODES", "8"))
LENGTH = 12
FAILING = 5  # the sample that raises
LIMIT_SECONDS = 20.0  # the loader's timeout: to be stuck, and not only late


class Planted(ValueError):
    pass


class Numbers(Dataset):
    """Sample i of epoch e is filled with 100 * e + i; one of them raises."""

    epoch = 0

    def __len__(self):
        return LENGTH

    def __getitem__(self, index):
        if index == FAILING:
            raise Planted(index)
        return torch.full((2000,), 100 * self.epoch + index)


class Chaos(RuleBasedStateMachine):
    """A loader, and a model of it: the epoch, the next batch, who is hit.

    No rule has a precondition: whether a worker lives is not for hypothesis, which repeats itself.
    """

    @initialize(
        strategy=st.sampled_from(sorted(labkit.get_all_sharing_strategies())),
        persistent=st.booleans(),
        num_workers=st.integers(1, 3),
        prefetch_factor=st.integers(1, 3),
    )
    def make(self, strategy, persistent, num_workers, prefetch_factor):
        self.before = leftovers.take()
        self.pids = {os.getpid()}
        self.persistent = persistent
        self.loader = labkit.DataLoader(
            Numbers(),
            batch_size=None,
            num_workers=num_workers,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent,
            sharing_strategy=strategy,
            multiprocessing_context="fork",
            timeout=LIMIT_SECONDS,
        )
        self.epoch = -1
        self.kept: list[tuple[int, torch.Tensor]] = []
        self.stopped: set[int] = set()
        self.killed = False
        self.batches = None
        self.new_epoch()

    @rule()
    def new_epoch(self):
        """Also in the middle of one, as after a `break`."""
        self.continue_all()
        if not self.persistent and self.batches is not None:
            self.batches.close()
        self.epoch += 1
        self.loader.set_epoch(self.epoch)
        try:
            self.batches = iter(self.loader)
        except WorkerDied:
            assert self.persistent
            assert self.killed
            self.batches = iter(self.loader)
        self.killed = False
        self.pids.update(self.workers())
        self.next = 0

    @rule(keep=st.booleans(), count=st.integers(1, 4))
    def take(self, keep, count):
        """Batches come in order, the planted exception in its place; an error only if it is due."""
        for _ in range(count):
            self._take_one(keep)

    def _take_one(self, keep):
        if self.stopped:
            self.continue_all()  # it would wait; that is `take_while_stopped`
        try:
            batch = next(self.batches)
        except StopIteration:
            assert self.next in (LENGTH, None)
            return
        except Planted:
            assert self.next == FAILING
            self.next += 1
            return
        except WorkerDied:
            assert self.killed
            self.next = None
            return
        assert self.next is not None
        assert batch.tolist() == [100 * self.epoch + self.next] * 2000
        if keep:
            self.kept.append((100 * self.epoch + self.next, batch))
        self.next += 1

    @rule(which=st.integers(0, 2), how=st.sampled_from([signal.SIGKILL, signal.SIGTERM]))
    def kill(self, which, how):
        self.continue_all()
        if workers := self.workers():
            os.kill(workers[which % len(workers)], how)
            self.killed = True

    @rule(which=st.integers(0, 2))
    def stop(self, which):
        if workers := self.workers():
            pid = workers[which % len(workers)]
            os.kill(pid, signal.SIGSTOP)
            self.stopped.add(pid)

    @rule()
    def take_while_stopped(self):
        """What is there is given; else the timeout tells it, and nothing is lost."""
        if not self.stopped:
            return
        patient = self.batches._settings
        self.batches._settings = replace(patient, timeout=0.05)
        try:
            batch = next(self.batches)
        except LoaderTimeout:
            pass
        except Planted:
            assert self.next == FAILING
            self.next += 1
        except StopIteration:
            assert self.next in (LENGTH, None)
        except WorkerDied:
            assert self.killed
            self.next = None
        else:
            assert batch.tolist() == [100 * self.epoch + self.next] * 2000
            self.next += 1
        finally:
            self.batches._settings = patient

    @rule()
    def continue_all(self):
        for pid in self.stopped:
            with suppress(ProcessLookupError):  # it was killed, or ended with the others
                os.kill(pid, signal.SIGCONT)
        self.stopped.clear()

    @rule()
    def drop(self):
        """Half of what was kept."""
        del self.kept[::2]

    @rule()
    def close(self):
        """Whatever its workers do; and the loader begins anew.

        With stopped workers that takes seconds: `surroundings.close_with_stopped_workers` has it.
        """
        self.continue_all()
        began = time.monotonic()
        self.batches.close()
        self.loader.close()
        assert time.monotonic() - began < 5
        self.killed = False
        self.new_epoch()

    @rule()
    def exhaust_descriptors(self):
        """An epoch begins, with fewer descriptors than it takes; then with enough."""
        self.continue_all()
        self.batches.close()
        self.loader.close()
        with few_descriptors():
            try:
                self.batches = iter(self.loader)
            except TooManyOpenFiles:
                pass
            else:
                self.batches.close()
                self.loader.close()
        self.killed = False
        self.new_epoch()

    @invariant()
    def what_was_kept_is_as_it_was(self):
        for value, batch in getattr(self, "kept", ()):
            assert batch[0] == value
            assert batch[-1] == value

    def workers(self):
        return [
            child.pid
            for child in multiprocessing.active_children()
            if child.name.startswith("DataLoader worker")
        ]

    def teardown(self):
        if not hasattr(self, "before"):
            return
        self.continue_all()
        began = time.monotonic()
        self.batches.close()
        self.loader.close()
        assert time.monotonic() - began < 5
        self.batches = self.loader = None
        self.kept.clear()
        gc.collect(0)
        left = [
            thing for thing in leftovers.since(self.before) if not is_anothers(thing, self.pids)
        ]
        assert left == []


def is_anothers(thing: str, pids: set[int]) -> bool:
    """Whether it is a name in shared memory of which none of these processes is in."""
    return thing.startswith("name ") and not {str(pid) for pid in pids} & set(thing.split("-"))


@contextmanager
def few_descriptors() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(fd) for fd in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 4, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


TestChaos = Chaos.TestCase
TestChaos.settings = settings(
    max_examples=EPISODES,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
