"""What happens in workers and to them: death, stacks, prints, threads, memory, random numbers."""

import atexit
import functools
import gc
import logging
import multiprocessing
import os
import random
import re
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Dataset, Sampler
from torch.utils.data import get_worker_info as torch_get_worker_info

import labkit
from labkit.errors import LoaderTimeout, NestedWorkers, WorkerDied
from tests import leftovers
from tests.comparison import differences
from tests.datasets import (
    EndsAtTwo,
    Mapped,
    Recipe,
    Samples,
    pid_of,
    pid_then_sleep,
    sleep,
    sleep_at_two,
    threads_of,
)
from tests.scripts import alive, family_of, run_cells, seconds_until, started

METHODS = ["fork", "spawn", "forkserver"]
INTERRUPTIONS = int(os.environ.get("LABKIT_INTERRUPTIONS", "12"))  # of a loader's start
HOW_IT_IS_TOLD = {
    "SIGKILL": ("SIGKILL", -signal.SIGKILL, "is killed by signal: Killed (SIGKILL)"),
    "SIGTERM": ("SIGTERM", -signal.SIGTERM, "is killed by signal: Terminated (SIGTERM)"),
    "SIGSEGV": ("SIGSEGV", -signal.SIGSEGV, "is killed by signal: Segmentation fault (SIGSEGV)"),
    "os._exit(0)": (None, 0, "exited unexpectedly with exit code 0"),
    "sys.exit(3)": (None, 3, "exited unexpectedly with exit code 3"),
}


# Death


class Deaths:
    """Notes when the first of some processes dies."""

    def __init__(self, pids):
        self.pids = list(pids)
        self._descriptors = [os.pidfd_open(pid) for pid in self.pids]
        self._thread = threading.Thread(target=self._wait)
        self._thread.start()

    def _wait(self):
        select.select(self._descriptors, [], [])
        self._time = time.monotonic()
        for descriptor in self._descriptors:
            os.close(descriptor)

    def first(self):
        self._thread.join()
        return self._time


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("how", HOW_IT_IS_TOLD)
def test_a_death_is_told_within_a_second(how, method):
    """W1: with worker id, pid, signal or exit code, batch; the others are ended and reaped."""
    loader = labkit.DataLoader(EndsAtTwo(how), 2, num_workers=2, multiprocessing_context=method)
    batches = iter(loader)
    deaths = Deaths(child.pid for child in multiprocessing.active_children())
    with pytest.raises(WorkerDied) as caught:
        list(batches)
    told = time.monotonic()
    assert told - deaths.first() < 1
    error = caught.value
    name, code, text = HOW_IT_IS_TOLD[how]
    assert (error.worker_id, error.batch, error.indices) == (1, 1, [2, 3])
    assert (error.signal, error.exitcode) == (name, code)
    assert f"worker 1 (pid {error.pid}) {text} while it worked on batch 1 (indices [2, 3])" in str(
        error
    )
    assert ("memory" in str(error)) == (how == "SIGKILL")
    assert error.pid in deaths.pids
    assert not any(map(psutil.pid_exists, deaths.pids))


@pytest.mark.parametrize("method", METHODS)
def test_a_death_is_told_within_a_second_though_the_others_are_busy(method):
    """W1: nobody waits for what will be thrown away."""
    loader = labkit.DataLoader(
        Mapped(pid_then_sleep, 4),
        None,
        num_workers=2,
        multiprocessing_context=method,
        prefetch_factor=1,
    )
    batches = iter(loader)
    pids = next(batches), next(batches)
    os.kill(pids[0], signal.SIGKILL)
    start = time.monotonic()
    with pytest.raises(WorkerDied, match=rf"worker 0 \(pid {pids[0]}\)"):
        next(batches)
    assert time.monotonic() - start < 1
    assert not any(map(psutil.pid_exists, pids))


def test_an_except_clause_written_for_pytorch_catches_a_death():
    loader = labkit.DataLoader(EndsAtTwo("SIGKILL", 0.5), num_workers=1)
    with pytest.raises(RuntimeError, match=r"DataLoader worker .* is killed by signal"):
        list(loader)


def test_a_death_is_noticed_off_the_main_thread():
    """W1: also off the main thread."""
    caught = []
    loader = labkit.DataLoader(EndsAtTwo("SIGKILL", 0.5), num_workers=2)

    def consume() -> None:
        try:
            list(loader)
        except WorkerDied as error:
            caught.append(error.indices)

    thread = threading.Thread(target=consume)
    thread.start()
    thread.join(10)
    assert caught == [[2]]


def test_after_a_death_the_iterator_repeats_the_error_and_the_loader_starts_anew():
    data = EndsAtTwo("SIGKILL", 0.5)
    loader = labkit.DataLoader(data, num_workers=2, persistent_workers=True)
    batches = iter(loader)
    for _ in range(2):
        with pytest.raises(WorkerDied):
            list(batches)
    assert next(iter(loader)).tolist() == [0]
    loader.close()


def test_the_batches_that_came_before_a_death_are_given_first():
    data = EndsAtTwo("os._exit(0)", 0.5)
    given = []
    with pytest.raises(WorkerDied):
        for batch in labkit.DataLoader(data, num_workers=1):
            given += batch.tolist()
    assert given == [0, 1]


@pytest.mark.parametrize("method", METHODS)
def test_the_death_of_an_idle_persistent_worker_is_told_by_the_next_epoch(method):
    loader = labkit.DataLoader(
        Mapped(pid_of, 2), None, num_workers=2, persistent_workers=True,
        multiprocessing_context=method,
    )  # fmt: skip
    first, second = list(loader)
    os.kill(second, signal.SIGKILL)
    with pytest.raises(WorkerDied, match=rf"worker 1 \(pid {second}\).*SIGKILL"):
        list(loader)
    assert not psutil.pid_exists(first)
    assert len(list(loader)) == 2
    loader.close()


class KillsFirst(Sampler):
    """Kills a process, if it is given one, before it gives the first index."""

    victim = None

    def __iter__(self):
        if self.victim is not None:
            deaths = Deaths([self.victim])
            os.kill(self.victim, signal.SIGKILL)
            deaths.first()
        yield from range(8)


def test_a_worker_that_dies_before_its_first_batch_of_an_epoch_is_not_told_with_one():
    """Nor with the last one of the epoch before, whose number is under way again."""
    sampler = KillsFirst()
    loader = labkit.DataLoader(
        Mapped(pid_of, 8), None, sampler=sampler, num_workers=1, prefetch_factor=8,
        persistent_workers=True,
    )  # fmt: skip
    sampler.victim = list(loader)[-1]
    with pytest.raises(WorkerDied) as raised:
        list(loader)
    assert (raised.value.pid, raised.value.batch) == (sampler.victim, None)
    loader.close()


def test_a_worker_that_dies_in_the_middle_of_a_message_holds_up_nobody():
    """Killed while it writes 200 MB; the other worker's channel is its own."""

    def make(index: int) -> bytes:
        return bytes(200 << 20) if index == 0 else bytes(10)

    loader = labkit.DataLoader(
        Mapped(make, 60), None, num_workers=2, sharing_strategy="copy", in_order=False
    )
    batches = iter(loader)
    time.sleep(1)  # nobody reads: worker 0 is stuck in its message
    victim = next(p for p in multiprocessing.active_children() if p.name.endswith("worker 0"))
    victim.kill()
    start = time.monotonic()
    with pytest.raises(WorkerDied, match="worker 0"):
        list(batches)
    assert time.monotonic() - start < 5


def test_the_batch_named_is_the_one_on_which_the_worker_died():
    """W1: although earlier ones of it, made but not sent, are lost with it."""

    def make(index: int) -> bytes:
        if index == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return bytes(20 << 20)

    loader = labkit.DataLoader(
        Mapped(make), None, num_workers=1, prefetch_factor=4, sharing_strategy="copy"
    )
    batches = iter(loader)
    time.sleep(1)  # nobody reads
    with pytest.raises(WorkerDied) as caught:
        list(batches)
    assert (caught.value.batch, caught.value.indices) == (2, 2)


# Stuck


def test_a_timeout_tells_where_a_forked_worker_is_stuck():
    """W2: a lock that a thread held when the loader forked."""
    lock = threading.Lock()

    def take_the_lock(index: int) -> int:
        with lock:
            return index

    with lock:
        loader = labkit.DataLoader(
            Mapped(take_the_lock, 8), 2, num_workers=2, timeout=2, multiprocessing_context="fork"
        )
        batches = iter(loader)
        start = time.monotonic()
        with pytest.raises(LoaderTimeout, match=r"timed out after 2 seconds") as caught:
            next(batches)
        assert time.monotonic() - start <= 3
        error = caught.value
        assert (error.worker_id, error.batch, error.indices) == (0, 0, [0, 1])
        assert error.pid in {child.pid for child in multiprocessing.active_children()}
        assert "take_the_lock" in error.stack
        for fact in ("worker 0", f"pid {error.pid}", "[0, 1]", "take_the_lock", '"spawn"'):
            assert fact in str(error)
        with pytest.raises(LoaderTimeout, match="take_the_lock"):  # still so, still told
            next(batches)
        batches.close()


LOCK = threading.Lock()


def take_the_modules_lock(index: int) -> int:
    with LOCK:
        return index


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_spawned_worker_does_not_inherit_the_lock(method):
    """W2."""
    with LOCK:
        loader = labkit.DataLoader(
            Mapped(take_the_modules_lock, 4), 4, num_workers=1, timeout=60,
            multiprocessing_context=method,
        )  # fmt: skip
        assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3]]


def test_an_item_that_is_only_slow_arrives_after_a_timeout():
    """Iteration may go on after it, as in PyTorch."""
    loader = labkit.DataLoader(
        Mapped(lambda index: time.sleep(1.5) or index, 2), num_workers=1, timeout=1
    )
    batches = iter(loader)
    with pytest.raises(LoaderTimeout):
        next(batches)
    assert next(batches).tolist() == [0]


def test_deleting_an_iterator_of_sleeping_workers_takes_at_most_five_seconds():
    """W8."""
    before = {child.pid for child in multiprocessing.active_children()}
    loader = labkit.DataLoader(
        Mapped(sleep), 2, num_workers=2, timeout=1, pin_memory=torch.accelerator.is_available()
    )
    batches = iter(loader)
    pids = {child.pid for child in multiprocessing.active_children()} - before
    try:  # `pytest.raises` would keep the traceback, and that the iterator
        next(batches)
    except LoaderTimeout:
        start = time.monotonic()
    del batches
    assert time.monotonic() - start < 5
    assert len(pids) == 2
    assert not any(map(psutil.pid_exists, pids))


def test_deleting_an_iterator_of_killed_workers_takes_at_most_five_seconds():
    """W8."""
    batches = iter(labkit.DataLoader(Mapped(sleep), 2, num_workers=2, timeout=1))
    for child in multiprocessing.active_children():
        child.kill()
    start = time.monotonic()
    del batches
    assert time.monotonic() - start < 5
    assert multiprocessing.active_children() == []


def test_a_persistent_worker_that_is_stuck_does_not_hold_up_the_next_epoch_for_ever():
    """The timeout counts there too, as in PyTorch."""
    loader = labkit.DataLoader(
        Mapped(sleep_at_two, 3), num_workers=1, timeout=1, persistent_workers=True
    )
    for batch in loader:
        assert batch.tolist() == [0]
        break
    thread = threading.Thread(target=_expect_timeout, args=(loader, caught := []), daemon=True)
    thread.start()
    thread.join(10)
    try:
        assert caught == [LoaderTimeout]
    finally:
        for child in multiprocessing.active_children():
            child.kill()
        thread.join(10)
        loader.close()


def _expect_timeout(loader, caught):
    try:
        list(loader)
    except RuntimeError as error:
        caught.append(type(error))


# The main process's end

KEEPS_WORKERS = """
    import os, time, labkit
    from tests.datasets import Mapped

    def item(i):
        time.sleep(0.05)
        return os.getpid()

    loader = labkit.DataLoader(
        Mapped(item, 100_000), None, num_workers=2, multiprocessing_context={method!r},
        sharing_strategy={strategy!r}, persistent_workers={persistent})
    batches = iter(loader)
    pids = {{next(batches) for _ in range(4)}}
    print(*pids, flush=True)
    {then}
"""


@pytest.mark.parametrize("then", ["time.sleep(60)", "for _ in batches: pass"], ids=["idle", "busy"])
@pytest.mark.parametrize("method", METHODS)
def test_workers_are_gone_two_seconds_after_the_main_process_was_killed(method, then):
    """W9."""
    script = KEEPS_WORKERS.format(method=method, strategy="copy", persistent=False, then=then)
    with started(script) as process:
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert len(pids) == 2
        assert all(alive(pid) for pid in pids)
        time.sleep(0.3)
        process.kill()
        assert seconds_until(lambda: not any(map(alive, pids))) < 2


def leave_a_file_at_exit(worker_id, path):
    atexit.register(path.touch)


def test_a_spawned_worker_calls_exit_handlers_before_it_ends(tmp_path):
    """It ends at once after them, for what the interpreter would do then takes a second."""
    path = tmp_path / "called"
    init = functools.partial(leave_a_file_at_exit, path=path)
    options = {"multiprocessing_context": "spawn", "worker_init_fn": init}
    assert len(list(labkit.DataLoader(Samples(2), num_workers=1, **options))) == 2
    assert path.exists()


@pytest.mark.parametrize("strategy", sorted(labkit.get_all_sharing_strategies()))
def test_nothing_stays_in_shared_memory_when_the_main_process_is_killed(strategy):
    """W9: under every strategy, batches under way and kept."""
    script = """
        import labkit, torch
        from tests.datasets import Mapped
        loader = labkit.DataLoader(Mapped(lambda i: torch.ones(100_000), 1000), 4, num_workers=2,
                                   sharing_strategy=STRATEGY)
        kept = []
        for batch in loader:
            kept = (kept + [batch])[-3:]
            print("batch", flush=True)
    """.replace("STRATEGY", repr(strategy))
    with started(script) as process:
        process.stdout.readline()
        workers = [child.pid for child in family_of(process.pid)]
        process.kill()
        assert seconds_until(lambda: not any(map(alive, workers))) < 2
    pids = {str(pid) for pid in (process.pid, *workers)}
    assert [name for name in os.listdir("/dev/shm") if pids & set(name.split("-"))] == []


UNTIL_INTERRUPTED = """
    try:
        print("begun", flush=True)
        for _ in batches: pass
    finally:
        print(time.monotonic(), flush=True)
"""


INTERRUPTED = [("fork", False), ("fork", True), ("spawn", False), ("forkserver", True)]


@pytest.mark.parametrize(("method", "persistent"), INTERRUPTED)
def test_ctrl_c_ends_a_program_with_one_traceback(method, persistent):
    """W10: sent to the process group, as a terminal does; < 2 s, no child left."""
    script = KEEPS_WORKERS.format(
        method=method, strategy="copy", persistent=persistent, then=UNTIL_INTERRUPTED
    )
    with started(script) as process:
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert process.stdout.readline() == "begun\n"
        family = [child.pid for child in family_of(process.pid)]
        start = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        output, errors = process.communicate(timeout=60)
        assert process.returncode == -signal.SIGINT, errors
        assert output, errors
        assert float(output) - start < 2
        assert seconds_until(lambda: not any(map(alive, {*pids, *family}))) < 2
    assert errors.count("Traceback") == 1, errors
    assert errors.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize(("method", "persistent"), INTERRUPTED)
def test_after_a_kernels_interrupt_the_next_cell_iterates_again(method, persistent):
    """W10: one traceback, < 2 s, no child left."""
    define = f"""
        import time, psutil, labkit
        from tests.datasets import Mapped
        loader = labkit.DataLoader(
            Mapped(lambda i: time.sleep(0.02) or i, 1000), None, num_workers=2,
            multiprocessing_context={method!r}, persistent_workers={persistent})
    """
    epoch = """
        for i in loader:
            if i == 3: print("under way", flush=True)
    """
    count = """
        children = psutil.Process().children(recursive=True)
        print([c.cmdline() for c in children if "multiprocessing." not in str(c.cmdline())])
    """
    again = "print([i for i, _ in zip(loader, range(5))])"
    _, interrupted, children, more = run_cells(define, epoch, count, again, interrupt=1)
    assert interrupted["error"] == "KeyboardInterrupt"
    assert interrupted["seconds"] < 2
    assert "Traceback" not in interrupted["stderr"]
    if method == "fork" or not persistent:
        assert children["stdout"] == "[]\n"
    assert more["stdout"] == "[0, 1, 2, 3, 4]\n", more["traceback"]


@contextmanager
def interrupted_at(line: int):
    """A Ctrl-C where this process begins its `line`-th line of Python. Gives how many it began."""
    begun, pid = [0], os.getpid()

    def trace(frame, event, _):
        if event == "line" and os.getpid() == pid:
            begun[0] += 1
            if begun[0] == line:
                signal.raise_signal(signal.SIGINT)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield begun
    finally:
        sys.settrace(before)


# In a callback of a weak reference Python tells of an interrupt, and goes on.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("method", "pin_memory"), [("fork", False), ("forkserver", True)])
def test_a_ctrl_c_at_any_line_of_a_loaders_start_leaves_nothing_behind(method, pin_memory):
    """Although the traceback is kept, as a notebook keeps it, until the iterator is made."""
    loader = labkit.DataLoader(
        Samples(8), 2, num_workers=2, multiprocessing_context=method, pin_memory=pin_memory
    )
    for _ in range(2):  # the first one may start a fork server
        with interrupted_at(0) as lines:
            batches = iter(loader)
        assert torch.cat(list(batches)).tolist() == list(range(8))
    kept, held = [], []
    for line in range(1, lines[0], max(1, lines[0] // INTERRUPTIONS)):
        gc.collect()
        before = leftovers.take()
        try:
            with interrupted_at(line):
                batches = iter(loader)
        except KeyboardInterrupt as interrupt:
            batches = None  # where it came just afterwards
            kept.append(interrupt)
            if leftovers.since(before):
                held.append(line)
                kept.pop()
                del interrupt
        else:
            assert torch.cat(list(batches)).tolist() == list(range(8))
            del batches
        assert leftovers.since(before) == [], line
    assert len(kept) > INTERRUPTIONS / 2
    assert all(line > 0.9 * lines[0] for line in held), (held, lines[0])


# What a worker is like


def test_a_worker_computes_with_one_thread_after_the_parent_has_used_many():
    """W3: right values within 10 s, though the parent ran OpenMP work before the fork."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        torch.ones(2000, 2000) @ torch.ones(2000, 2000)
        loader = labkit.DataLoader(
            Mapped(lambda i: (torch.full((2000, 2000), float(i)) @ torch.ones(2000)).sum(), 4),
            None, num_workers=2, timeout=10, multiprocessing_context="fork",
        )  # fmt: skip
        assert [float(value) for value in loader] == [i * 4e6 for i in range(4)]
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("method", METHODS)
def test_a_worker_has_one_torch_thread(method):
    """W3."""
    loader = labkit.DataLoader(
        Mapped(threads_of, 2), None, num_workers=2, multiprocessing_context=method
    )
    assert list(loader) == [1, 1]


def memory_growth_of_a_worker(strings) -> float:
    """MB of memory of its own that a forked worker has won by reading all `strings`."""

    def read(index: int) -> int:
        before = psutil.Process().memory_full_info().uss
        for string in strings:
            assert string is not None
        return psutil.Process().memory_full_info().uss - before

    loader = labkit.DataLoader(Mapped(read, 1), None, num_workers=1, multiprocessing_context="fork")
    (grown,) = loader
    return grown / 2**20


def test_reading_a_list_of_strings_copies_its_pages_and_reading_an_array_does_not():
    """W17: each reference counted is a page written; 400k short strings."""
    strings = [f"image {i}" for i in range(400_000)]
    array = np.array(strings)
    assert memory_growth_of_a_worker(strings) > 10
    del strings
    assert memory_growth_of_a_worker(array) < 5


@pytest.mark.parametrize("method", METHODS)
def test_a_worker_knows_who_it_is_by_labkit_and_by_pytorch(method):
    loader = labkit.DataLoader(
        Mapped(who, 2), None, num_workers=2, multiprocessing_context=method,
        worker_init_fn=mark_the_dataset,
    )  # fmt: skip
    assert list(loader) == [[0, 2, True, "marked 0"], [1, 2, True, "marked 1"]]
    assert labkit.get_worker_info() is None
    assert torch_get_worker_info() is None


def who(index: int) -> list[object]:
    info = labkit.get_worker_info()
    seed_counts = info.seed == torch.initial_seed()
    assert torch_get_worker_info() is info
    return [info.id, info.num_workers, seed_counts, info.dataset.mark]


def mark_the_dataset(worker_id: int) -> None:
    torch_get_worker_info().dataset.mark = f"marked {worker_id}"


def test_without_workers_there_is_no_worker_info():
    loader = labkit.DataLoader(Mapped(lambda i: torch_get_worker_info() is None, 1), None)
    assert list(loader) == [True]


def start_an_inner_loader(index: int) -> list[int]:
    return list(labkit.DataLoader(Samples(3), None, num_workers=1))


@pytest.mark.parametrize("method", METHODS)
def test_a_worker_may_not_start_workers(method):
    """W20: a nested loader with a worker is refused in words."""
    loader = labkit.DataLoader(
        Mapped(start_an_inner_loader, 1), None, num_workers=1, multiprocessing_context=method
    )
    with pytest.raises(NestedWorkers, match=r"A worker may not start workers.*num_workers=0"):
        list(loader)


def test_a_loader_without_workers_works_inside_a_worker():
    """W20."""
    loader = labkit.DataLoader(
        Mapped(lambda i: list(labkit.DataLoader(Samples(3), None)), 2), None, num_workers=1
    )
    assert list(loader) == [[0, 1, 2], [0, 1, 2]]


def test_a_worker_may_run_a_program():
    loader = labkit.DataLoader(
        Mapped(lambda i: subprocess.run(["echo", str(i)], capture_output=True).stdout, 2),
        None, num_workers=1,
    )  # fmt: skip
    assert list(loader) == [b"0\n", b"1\n"]


@pytest.mark.parametrize("method", METHODS)
def test_a_process_of_the_user_may_have_a_loader_with_workers(method):
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    process = context.Process(target=load_and_send, args=(theirs, method))
    process.start()
    theirs.close()
    assert ours.recv() == [[0, 1], [2, 3]]
    process.join(30)
    assert process.exitcode == 0
    process.close()
    ours.close()


def load_and_send(pipe, method):
    loader = labkit.DataLoader(
        Samples(4), 2, num_workers=2, multiprocessing_context=method, persistent_workers=True
    )
    pipe.send([batch.tolist() for batch in loader])


def test_a_process_forked_in_mid_epoch_disturbs_neither_workers_nor_the_watch_for_deaths():
    """It inherits the loader; the workers stay the parent's."""
    loader = labkit.DataLoader(Mapped(pid_of, 40), None, num_workers=2, persistent_workers=True)
    batches = iter(loader)
    pid = next(batches)
    context = multiprocessing.get_context("fork")
    process = context.Process(target=time.sleep, args=(30,))
    process.start()
    quick = context.Process(target=loader.close)
    quick.start()
    quick.join()
    assert quick.exitcode == 0
    assert next(batches) != pid
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerDied):
        list(batches)
    process.kill()
    process.join()
    process.close()
    quick.close()


def test_prints_of_forked_workers_come_out_while_output_is_captured(capsys):
    """W7: as where a notebook, or pytest, has put something else in stdout's place."""

    def talk(index: int) -> int:
        print("item", index)
        logging.getLogger("labkit test").warning("logged %d", index)
        return index

    handler = logging.StreamHandler()
    logging.getLogger("labkit test").addHandler(handler)
    try:
        list(labkit.DataLoader(Mapped(talk, 2), num_workers=2))
    finally:
        logging.getLogger("labkit test").removeHandler(handler)
    out, _ = capsys.readouterr()
    assert sorted(out.splitlines()) == ["[worker 0] item 0", "[worker 1] item 1"]


# Random numbers


def three_streams(index: int) -> tuple[float, float, float]:
    return torch.rand(()).item(), random.random(), float(np.random.rand())


def two_epochs(loader_class, seed, **options):
    torch.manual_seed(seed)
    loader = loader_class(Mapped(three_streams, 8), num_workers=2, **options)
    return [list(loader), list(loader)]


@pytest.mark.parametrize("persistent", [False, True], ids=["", "persistent"])
@pytest.mark.parametrize("method", METHODS)
def test_random_numbers_of_workers_are_distinct_repeatable_and_pytorchs(method, persistent):
    """W11: numpy, random and torch, two epochs."""
    options = {"persistent_workers": persistent}
    ours = two_epochs(labkit.DataLoader, 1, multiprocessing_context=method, **options)
    again = two_epochs(labkit.DataLoader, 1, multiprocessing_context="fork", **options)
    theirs = two_epochs(TorchDataLoader, 1, multiprocessing_context="fork", **options)
    assert list(differences(ours, again)) == []
    assert list(differences(ours, theirs)) == []
    for stream in range(3):
        numbers = [batch[stream].item() for epoch in ours for batch in epoch]
        assert len(set(numbers)) == 16


@pytest.mark.parametrize("bits", [0, 31, 32, 62])
def test_numpys_seed_is_pytorchs_for_small_and_large_base_seeds(bits):
    """W11: words of zero and all that."""
    from torch.utils.data._utils.worker import _generate_state

    from labkit.worker import numpy_seed

    for worker_id in (0, 1, 63):
        for base_seed in (2**bits - 1, 2**bits, 2**bits + 1):
            assert numpy_seed(base_seed, worker_id) == list(_generate_state(base_seed, worker_id))


# Epoch numbers


class Curriculum(Dataset):
    epoch = 0

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return self.epoch


class CurriculumBySetter(Curriculum):
    def set_epoch(self, epoch):
        self.epoch = epoch * 10


def test_a_persistent_workers_dataset_does_not_see_what_changes_between_epochs():
    """W16: PyTorch's default, and documented."""
    for loader_class in (labkit.DataLoader, TorchDataLoader):
        loader = loader_class(Curriculum(), None, num_workers=1, persistent_workers=True)
        assert list(loader) == [0, 0]
        loader.dataset.epoch = 1
        assert list(loader) == [0, 0]
        del loader
    documentation = re.sub(r"\s+", " ", labkit.DataLoader.__doc__)
    assert "change between epochs are not seen by the workers' copies" in documentation
    assert "`set_epoch` is the way" in documentation


@pytest.mark.parametrize("dataset", [Curriculum, CurriculumBySetter])
@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 2}, {"num_workers": 2, "p": True}], ids=str
)
def test_an_epoch_can_be_sent_to_the_workers(dataset, options):
    """W16: the one supported way."""
    options = dict(options)
    loader = labkit.DataLoader(
        dataset(), None, persistent_workers=options.pop("p", False), **options
    )
    factor = 10 if dataset is CurriculumBySetter else 1
    for epoch in (0, 3, 4):
        loader.set_epoch(epoch)
        assert list(loader) == [epoch * factor] * 2
    assert list(loader) == [4 * factor] * 2
    loader.close()


def test_an_epoch_reaches_the_sampler_too():
    """W16: what DistributedSampler needs."""
    from torch.utils.data import DistributedSampler

    data = Samples(20, Recipe("int"))
    ours = DistributedSampler(data, num_replicas=2, rank=0)
    theirs = DistributedSampler(data, num_replicas=2, rank=0)
    loader = labkit.DataLoader(data, None, sampler=ours)
    for epoch in (0, 1):
        loader.set_epoch(epoch)
        theirs.set_epoch(epoch)
        assert list(loader) == list(theirs)


def test_the_package_waits_nowhere_by_polling():
    """Waiting for workers costs the same for 1 as for 64: nothing, while nothing comes."""
    batches = iter(labkit.DataLoader(Mapped(sleep_at_two, 3), None, num_workers=1))
    assert [next(batches), next(batches)] == [0, 1]
    used = {}

    def wait() -> None:
        with pytest.raises((StopIteration, WorkerDied)):
            next(batches)
        used["switches"] = Path(f"/proc/self/task/{threading.get_native_id()}/status").read_text()

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(2)
    multiprocessing.active_children()[0].kill()
    thread.join()
    switches = int(re.search(r"\nvoluntary_ctxt_switches:\s+(\d+)", used["switches"]).group(1))
    assert switches < 50
