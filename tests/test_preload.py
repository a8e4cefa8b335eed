"""The Preloader: what it gives is what its loader gives, on the device, and never too early.

The device is simulated. Where it matters who was first, the device's own order decides, not how
fast this machine is: a step reads its inputs near the end of its time, and holds the device until
then.
"""

import gc
import itertools
import multiprocessing
import os
import queue
import signal
import threading
import time
import weakref
from collections import defaultdict, deque, namedtuple
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, IterableDataset

import labkit
from labkit import preload, preload_thread
from labkit.containers import map_leaves
from labkit.preload import Preloader
from labkit.recording import Source
from labkit.simulated import Operation, SimulatedDevice, SimulatedTensor
from labkit.simulated.timeline import TO_DEVICE

Point = namedtuple("Point", "x y")


@dataclass
class Pair:
    left: Any
    right: Any


class Record(dict):
    source = "a file"


class Numbered:
    """Samples of 4,000 bytes whose every value is their number."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((1000,), float(index))


class Failing(Numbered):
    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 5:
            raise LookupError("sample 5 is broken")
        return super().__getitem__(index)


class Counting(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(7.0))


@pytest.fixture
def device():
    with SimulatedDevice(launch_us=0) as device:
        yield device


def values(batch: Any) -> Any:
    """The batch with its tensors, wherever they lie, as nested lists."""

    def is_tensor(part: Any) -> bool:
        return isinstance(part, (torch.Tensor, SimulatedTensor))

    return map_leaves(batch, lambda leaf, _: leaf.cpu().tolist(), is_tensor)


# What it gives

leaves = st.one_of(
    st.integers(0, 3).map(lambda n: torch.arange(float(n))),
    st.integers(-5, 5).map(torch.tensor),
    st.booleans().map(torch.tensor),
    st.text(max_size=3),
    st.none(),
    st.integers(),
    st.just(b"bytes"),
)
batches = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.builds(Point, inner, inner),
        st.builds(Pair, inner, inner),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=2).map(Record),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=2).map(
            lambda d: defaultdict(list, d)
        ),
    ),
    max_leaves=6,
)


@given(st.lists(batches, max_size=4), st.sampled_from([None, "simulated"]), st.integers(1, 3))
@settings(max_examples=20)
def test_every_batch_comes_in_order_with_its_containers(given_batches, where, queue_size):
    with SimulatedDevice(launch_us=0) as simulated:
        device = simulated if where else "cpu"
        preloader = Preloader(given_batches, device, queue_size)
        for _ in range(2):
            got = list(preloader)
            assert [values(batch) for batch in got] == [values(batch) for batch in given_batches]
            assert all(same_types(*pair) for pair in zip(got, given_batches, strict=True))


def same_types(got: Any, expected: Any) -> bool:
    if isinstance(expected, torch.Tensor):
        assert isinstance(got, (torch.Tensor, SimulatedTensor))
        assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
        return True
    assert type(got) is type(expected)
    if isinstance(expected, dict):
        return all(same_types(got[key], expected[key]) for key in expected)
    if isinstance(expected, Pair):
        return same_types(got.left, expected.left) and same_types(got.right, expected.right)
    if isinstance(expected, (list, tuple)):
        return all(same_types(*pair) for pair in zip(got, expected, strict=True))
    return True


LOADERS = {
    "labkit": lambda: labkit.DataLoader(Numbered(10), batch_size=2),
    "labkit, workers": lambda: labkit.DataLoader(Numbered(10), batch_size=2, num_workers=2),
    "labkit, persistent": lambda: labkit.DataLoader(
        Numbered(10), batch_size=2, num_workers=2, persistent_workers=True
    ),
    "labkit, file_descriptor": lambda: labkit.DataLoader(
        Numbered(10), batch_size=2, num_workers=1, sharing_strategy="file_descriptor"
    ),
    "labkit, iterable": lambda: labkit.DataLoader(Counting(), batch_size=2, num_workers=1),
    "PyTorch": lambda: DataLoader(Numbered(10), batch_size=2),
    "PyTorch, workers": lambda: DataLoader(Numbered(10), batch_size=2, num_workers=1),
    "a list": lambda: [torch.ones(3), torch.zeros(2)],
    "an empty list": list,
}


@pytest.mark.parametrize("kind", LOADERS)
@pytest.mark.parametrize("on_device", [False, True], ids=["cpu", "device"])
def test_it_gives_what_any_loader_gives(kind, on_device, device):
    expected = [values(batch) for batch in LOADERS[kind]()]
    loader = LOADERS[kind]()
    preloader = Preloader(loader, device if on_device else None)
    for _ in range(2):
        assert [values(batch) for batch in preloader] == expected
    if hasattr(loader, "close"):
        loader.close()


def test_a_generator_is_given_once(device):
    preloader = Preloader((torch.ones(1) * i for i in range(3)), device)
    assert [batch.item() for batch in preloader] == [0, 1, 2]
    assert list(preloader) == []


def test_it_has_what_a_loader_has(device):
    loader = labkit.DataLoader(Numbered(10), batch_size=4)
    preloader = Preloader(loader, device)
    assert len(preloader) == 3
    assert preloader.dataset is loader.dataset
    assert preloader.sampler is loader.sampler
    assert preloader.batch_size == 4
    assert preloader.loader is loader
    with pytest.raises(AttributeError, match="the loader inside, a list, has no dataset"):
        _ = Preloader([]).dataset


def test_next_goes_on_with_one_epoch_and_then_begins_another(device):
    preloader = Preloader([torch.tensor(0), torch.tensor(1)], device)
    got = [next(preloader).item(), next(preloader).item()]
    with pytest.raises(StopIteration):
        next(preloader)
    assert [*got, next(preloader).item()] == [0, 1, 0]
    preloader.close()


def test_the_epoch_is_told_to_whoever_knows_epochs(device):
    told = []

    class Sampler(torch.utils.data.SequentialSampler):
        def set_epoch(self, epoch: int) -> None:
            told.append(epoch)

    for loader_class in (labkit.DataLoader, DataLoader):
        Preloader(loader_class(Numbered(2), sampler=Sampler(range(2)))).set_epoch(3)
    assert told == [3, 3]


@pytest.mark.parametrize(
    ("loader", "queue_size", "error", "words"),
    [
        (3, 2, TypeError, "an iterable of batches, such as a DataLoader, but got int"),
        ([], 0, ValueError, "1 or more"),
        ([], 1.5, TypeError, "whole number"),
    ],
)
def test_wrong_arguments_are_refused(loader, queue_size, error, words):
    with pytest.raises(error, match=words):
        Preloader(loader, queue_size=queue_size)


def test_it_is_not_pickled():
    with pytest.raises(TypeError, match="make one in the process that uses it"):
        Preloader([]).__getstate__()


# Nothing is read or reused too early


class Step:
    """A training step on the device: takes its time, and reads the batch near its end."""

    def __init__(self, device: SimulatedDevice, seconds: float) -> None:
        self.device = device
        self.seconds = seconds
        self.results: list[SimulatedTensor] = []

    def __call__(self, batch: SimulatedTensor) -> None:
        self.results.append(self.device.run(_the_one_value, batch, seconds=self.seconds))

    def found(self) -> list[float]:
        return [result.item() for result in self.results]


def _the_one_value(batch: torch.Tensor) -> float:
    """The value that all elements have; nan if they are of several batches."""
    first = batch.flatten()[0]
    return float(first) if bool((batch == first).all()) else float("nan")


def run_an_epoch(
    device: SimulatedDevice, num_workers: int = 1, batches: int = 40, seconds: float = 0.002
) -> list[float]:
    """What the steps read; each batch is dropped at once."""
    loader = labkit.DataLoader(Numbered(batches), batch_size=1, num_workers=num_workers)
    step = Step(device, seconds)
    for batch in Preloader(loader, device):
        step(batch)
        del batch
    return step.found()


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_slow_consumer_that_drops_its_batches_sees_each_of_them(device, num_workers):
    assert run_an_epoch(device, num_workers) == list(range(40))


def test_batches_that_are_held_do_not_change(device):
    loader = labkit.DataLoader(Numbered(30), batch_size=1, num_workers=2)
    held = list(Preloader(loader, device))
    assert [_the_one_value(batch.cpu()) for batch in held] == list(range(30))


class _AnyEvent:
    """An event that has always happened."""

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass


def without_waiting(monkeypatch):
    """The consumer's stream does not wait for the copy."""

    def no_wait(self, copied):
        stream = self._device.current_stream()
        for leaf in copied.leaves:
            leaf.record_stream(stream)
        self._given = []

    monkeypatch.setattr(preload.PreloadIterator, "_await", no_wait)


def without_recording_streams(monkeypatch):
    monkeypatch.setattr(SimulatedTensor, "record_stream", lambda self, stream: None)
    monkeypatch.setattr(preload_thread.Carrier, "_wait_for_room", lambda self: None)


def without_keeping_sources(monkeypatch):
    monkeypatch.setattr(preload_thread.Carrier, "_let_go", lambda self, most: self._sources.clear())


SLOW_LINK = {"h2d_gb_per_s": 1e-3, "pageable_gb_per_s": 1e-3}  # 4 ms for a batch
FAST_LINK: dict[str, float] = {}


@pytest.mark.parametrize(
    ("fault", "link", "seconds"),
    [
        (without_waiting, SLOW_LINK, 0.0),
        (without_keeping_sources, SLOW_LINK, 0.0),
        (without_recording_streams, FAST_LINK, 0.005),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_planted_fault_gives_wrong_values(fault, link, seconds, monkeypatch):
    with SimulatedDevice(**link, launch_us=0) as device:
        assert run_an_epoch(device, batches=30, seconds=seconds) == list(range(30))
        fault(monkeypatch)
        found: list[float] = []
        with suppress(RuntimeError):  # the arena went while its last copies were under way
            found = run_an_epoch(device, batches=30, seconds=seconds)
        assert found != list(range(30))


@pytest.mark.parametrize(("copy_ms", "step_ms"), [(20, 30), (30, 20), (25, 25)])
def test_copies_and_steps_overlap_to_within_5_percent_of_the_longer(copy_ms, step_ms):
    """By the device's own clock. A busy machine issues late, and that only takes longer: the best
    of a few epochs counts.
    """
    n, nbytes = 12, Numbered(1)[0].nbytes
    least = min(copy_ms, step_ms) / 1000  # before the first step, or after the last copy
    limit = n * max(copy_ms, step_ms) / 1000
    with SimulatedDevice(h2d_gb_per_s=nbytes / (copy_ms * 1e6), launch_us=0) as device:
        preloader = Preloader([device.pin(Numbered(n)[k]) for k in range(n)], device)
        took = []
        while not took or (min(took) > 1.05 * limit + least and len(took) < 5):
            log: list[Operation] = []
            device.on_operation[:] = [log.append]
            step = Step(device, step_ms / 1000)
            for batch in preloader:
                step(batch)
            assert step.found() == list(range(n))
            ends = [o.end for o in log if o.kind == "step"]
            starts = [o.start for o in log if o.engine == TO_DEVICE]
            took.append(max(ends) - min(starts))
    assert limit <= min(took) <= 1.05 * limit + least


def test_a_consumer_that_runs_ahead_of_the_device_does_not_fill_its_memory(device):
    step, nbytes = Step(device, 0.003), Numbered(1)[0].nbytes
    for batch in Preloader(labkit.DataLoader(Numbered(60), batch_size=1), device, queue_size=2):
        step(batch)
        del batch
    assert step.found() == list(range(60))
    results = 60 * 512  # of 4 bytes each, in blocks of 512
    assert device.max_memory_reserved() - results <= 9 * (nbytes + 512)


def test_a_consumer_that_waits_for_nothing_is_given_as_many_in_advance_as_the_queue_holds(device):
    """It empties the queue at once, so the queue's size must count what the device has to do."""
    taken, opened = [], threading.Event()

    def loader():
        for i in range(40):
            taken.append(i)
            yield torch.full((1000,), float(i))

    device.run(lambda: float(opened.wait(60)), seconds=0)  # the device does nothing until then
    step = Step(device, 0)

    def consume():
        for batch in Preloader(loader(), device, queue_size=8):
            step(batch)

    consumer = threading.Thread(target=consume)
    consumer.start()
    deadline = time.monotonic() + 20
    while len(taken) < 10 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)  # for those that should not be taken
    in_advance = len(taken)
    opened.set()
    consumer.join()
    assert 10 <= in_advance <= 14
    assert step.found() == list(range(40))


@pytest.mark.parametrize("breaks", [False, True])
def test_short_epochs_of_a_consumer_that_runs_ahead_do_not_fill_the_memory(device, breaks):
    step, source = Step(device, 0.01), device.pin(Numbered(1)[0])
    preloader = Preloader([source] * 2, device, queue_size=1)
    for _ in range(15):
        for batch in preloader:
            step(batch)
            if breaks:
                break
    results = len(step.found()) * 512  # of 4 bytes each, in blocks of 512
    assert device.max_memory_reserved() - results <= 6 * (source.nbytes + 512)


def test_what_the_consumer_takes_while_the_thread_counts_is_not_left_out(device):
    class Undone:
        def query(self):
            return False

        def synchronize(self):
            pass

    class Taken(queue.Queue):
        def qsize(self):
            with suppress(queue.Empty):
                while True:
                    epoch.steps.append((self.get_nowait(), []))
            return super().qsize()

    epoch = preload_thread.Epoch(2, Source(max_depth=0), deque([(Undone(), [])] * 3))
    epoch.queue = Taken()
    for _ in range(2):
        epoch.queue.put(Undone())
    preload_thread.Carrier(epoch, device, device.new_stream())._wait_for_room()
    assert len(epoch.steps) == 2 + preload_thread._STEPS_AHEAD


def test_forty_epochs_take_one_stream_and_no_more_memory(device):
    streams = []
    make, device.new_stream = device.new_stream, lambda: streams.append(1) or make()
    preloader = Preloader([torch.ones(1000)] * 4, device)
    reserved = []
    for _ in range(40):
        assert len([batch.cpu() for batch in preloader]) == 4
        reserved.append(device.max_memory_reserved())
    assert len(streams) == 1
    assert reserved[-1] <= 9 * 4608


# Page-locked memory


class Locker:
    """Notes what the simulated device is asked to page-lock."""

    def __init__(self, device, refuse=False):
        self.locked, self.unlocked, self.pinned = [], [], 0
        lock, unlock, pin = device.lock_pages, device.unlock_pages, device.pin

        def note_lock(address, nbytes):
            if refuse:
                return False
            self.locked.append(address)
            return lock(address, nbytes)

        def note_unlock(address):
            self.unlocked.append(address)
            unlock(address)

        def note_pin(tensor):
            self.pinned += 1
            return pin(tensor)

        device.lock_pages, device.unlock_pages, device.pin = note_lock, note_unlock, note_pin


@pytest.mark.parametrize("persistent", [False, True])
def test_the_arena_is_page_locked_once_and_no_batch_is_copied_on_the_host(device, persistent):
    locker = Locker(device)
    loader = labkit.DataLoader(
        Numbered(400), batch_size=4, num_workers=2, persistent_workers=persistent
    )
    for _ in range(2):
        assert len([values(batch) for batch in Preloader(loader, device)]) == 100
    assert locker.pinned == 0
    assert 2 <= len(locker.locked) <= 8 * (1 if persistent else 2)
    loader.close()
    gc.collect()
    assert sorted(locker.unlocked) == sorted(locker.locked)


def test_persistent_workers_that_ran_without_a_device_are_started_anew_for_it(device):
    locker = Locker(device)
    loader = labkit.DataLoader(Numbered(8), num_workers=1, persistent_workers=True)
    assert len(list(loader)) == 8
    assert locker.locked == []
    assert len([values(batch) for batch in Preloader(loader, device)]) == 8
    assert locker.locked
    loader.close()


def test_where_page_locking_is_refused_batches_are_pinned_by_copying_and_the_report_says_so(device):
    locker = Locker(device, refuse=True)
    loader = labkit.DataLoader(Numbered(20), num_workers=1)
    iterator = iter(Preloader(loader, device))
    got = [values(batch) for batch in itertools.islice(iterator, 10)]
    (worker,) = labkit.sharing.report().workers
    assert worker.refused_bytes > 0
    assert "page-locking was refused" in str(labkit.sharing.report())
    got += [values(batch) for batch in iterator]
    assert got == [[[float(i)] * 1000] for i in range(20)]
    assert locker.pinned == 20
    assert locker.unlocked == []


def test_the_workers_are_told_to_keep_the_pages(device, monkeypatch):
    """A hole in the file would part what the device reads from what the worker writes."""
    told = []
    pool = labkit.multiprocess.WorkerPool

    def noted(startup, *arguments, **named):
        told.append(startup.keeps_pages)
        return pool(startup, *arguments, **named)

    monkeypatch.setattr(labkit.multiprocess, "WorkerPool", noted)
    loader = labkit.DataLoader(Numbered(2), num_workers=1)
    list(loader)
    list(Preloader(loader, device))
    assert told == [False, True]


# Errors and ends


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_error_comes_after_the_batches_before_it(device, num_workers):
    loader = labkit.DataLoader(Failing(8), batch_size=2, num_workers=num_workers)
    iterator, got = iter(Preloader(loader, device)), []
    with pytest.raises(LookupError, match="sample 5 is broken"):
        got.extend(values(batch)[0][0] for batch in iterator)
    assert got == [0, 2]
    with pytest.raises(StopIteration):
        next(iterator)


def test_what_cannot_be_copied_is_told_and_ends_the_epoch(device):
    sparse = torch.eye(2).to_sparse()
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        list(Preloader([torch.ones(1), sparse], device))


@pytest.mark.parametrize("kind", ["labkit, workers", "labkit, persistent", "labkit", "PyTorch"])
def test_leaving_early_fifty_times_leaves_nothing_and_begins_anew(kind, device):
    loader = LOADERS[kind]()
    preloader, before = Preloader(loader, device, queue_size=1), threading.active_count()
    for _ in range(50 if kind == "labkit" else 5):
        for batch in preloader:
            assert values(batch)[0][0] == 0
            break
    del batch
    gc.collect()
    assert threading.active_count() == before
    if hasattr(loader, "close"):
        loader.close()


def test_a_new_epoch_ends_the_one_before(device):
    preloader = Preloader(labkit.DataLoader(Numbered(4)), device)
    first = iter(preloader)
    next(first)
    second = iter(preloader)
    with pytest.raises(StopIteration):
        next(first)
    assert len(list(second)) == 4


def test_persistent_workers_stay_from_epoch_to_epoch_and_after_leaving_early():
    loader = LOADERS["labkit, persistent"]()
    preloader = Preloader(loader, "cpu")
    assert len(list(preloader)) == 5
    workers = {worker.pid for worker in multiprocessing.active_children()}
    for _ in range(2):
        for batch in preloader:
            assert values(batch)[0][0] == 0
            break
        assert [values(batch)[0][0] for batch in preloader] == [0, 2, 4, 6, 8]
    assert {worker.pid for worker in multiprocessing.active_children()} == workers
    loader.close()


def test_closing_ends_a_next_that_waits_in_another_thread(device):
    asked, goes_on, got = threading.Event(), threading.Event(), []

    def late():
        asked.set()
        goes_on.wait(60)
        yield torch.ones(1)

    iterator = iter(Preloader(late(), device))
    (carrier,) = [t for t in threading.enumerate() if t.name == "preloader"]
    consumer = threading.Thread(target=lambda: got.append(list(iterator)))
    consumer.start()
    asked.wait(60)
    threading.Timer(0.2, goes_on.set).start()
    iterator.close()
    consumer.join(30)
    carrier.join(30)
    assert got == [[]]


def test_all_threads_that_wait_for_the_same_epoch_are_told_of_its_end(device):
    goes_on = threading.Event()

    def none():
        goes_on.wait(60)
        yield from ()

    iterator = iter(Preloader(none(), device))
    consumers = [threading.Thread(target=next, args=(iterator, None)) for _ in range(4)]
    for consumer in consumers:
        consumer.start()
    goes_on.set()
    for consumer in consumers:
        consumer.join(30)
    assert not any(consumer.is_alive() for consumer in consumers)


def test_a_forked_child_is_told_that_the_thread_is_not_there():
    iterator = iter(Preloader([torch.ones(1)] * 50, "cpu"))
    next(iterator)
    ours, theirs = multiprocessing.Pipe(duplex=False)

    def child() -> None:
        with pytest.raises(RuntimeError, match="belongs to process"):
            next(iterator)
        theirs.send("told")

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    theirs.close()
    assert ours.poll(30)
    assert ours.recv() == "told"
    process.join()
    iterator.close()


def test_an_error_keeps_no_iterator_alive():
    iterator = iter(Preloader(labkit.DataLoader(Failing(8)), "cpu"))
    alive = weakref.ref(iterator)
    gc.disable()
    try:
        with pytest.raises(LookupError):
            for _ in iterator:
                pass
        del iterator
        assert alive() is None
    finally:
        gc.enable()


def test_an_error_that_is_kept_keeps_nothing_of_the_loader(device):
    class Source:
        def __next__(self):
            return torch.eye(2).to_sparse()

        def __iter__(self):
            return self

    source = Source()
    alive = weakref.ref(source)
    with pytest.raises(TypeError, match="dense host tensors") as caught:
        next(iter(Preloader(iter(source), device)))
    del source
    gc.collect()
    assert alive() is None
    assert caught.value.__traceback__ is not None


def test_after_an_error_in_a_batch_its_copies_end_before_its_memory_goes():
    def half(samples):
        return torch.stack(samples), torch.eye(2).to_sparse()

    loader = labkit.DataLoader(Numbered(4), batch_size=4, num_workers=1, collate_fn=half)
    with SimulatedDevice(launch_us=0, slow_motion=1e6) as device:
        with pytest.raises(TypeError, match="dense host tensors"):
            list(Preloader(loader, device))
        device.synchronize()  # tells of a source that went away under a copy


def test_a_ctrl_c_with_a_batch_in_hand_ends_the_epoch(device, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    iterator = iter(Preloader([torch.ones(1)] * 5, device))
    next(iterator)
    with monkeypatch.context() as patch:
        patch.setattr(preload.PreloadIterator, "_await", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
    assert list(iterator) == []  # and not the third batch, as if there had been no second


def test_closing_does_not_wait_for_a_batch_that_is_not_made(device):
    class Stuck(Numbered):
        def __getitem__(self, index):
            if index == 3:
                time.sleep(600)
            return super().__getitem__(index)

    loader = labkit.DataLoader(Stuck(8), num_workers=1)
    iterator = iter(Preloader(loader, device))
    assert [values(next(iterator))[0][0] for _ in range(3)] == [0, 1, 2]
    iterator.close()
    gc.collect()
    assert not [t for t in threading.enumerate() if t.name == "preloader"]


def test_an_iterator_that_is_dropped_ends_its_thread(device):
    iterator = iter(Preloader(itertools.repeat(torch.ones(1)), device))
    next(iterator)
    del iterator
    gc.collect()
    assert not [t for t in threading.enumerate() if t.name == "preloader"]


def test_with_closes_it(device):
    with iter(Preloader(itertools.repeat(torch.ones(1)), device)) as iterator:
        next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


def test_ctrl_c_ends_it(device, monkeypatch):
    monkeypatch.setattr(preload, "_END_SECONDS", 0.1)
    goes_on = threading.Event()

    def late():
        goes_on.wait(60)
        yield torch.ones(1)

    iterator = iter(Preloader(late(), device))
    (thread,) = [t for t in threading.enumerate() if t.name == "preloader"]
    # To the thread that waits: a signal to the timer's own would not wake it.
    main = threading.main_thread().ident
    ctrl_c = threading.Timer(0.2, signal.pthread_kill, [main, signal.SIGINT])
    ctrl_c.start()
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    assert thread.is_alive()  # it was the signal that ended the wait, and not a batch
    goes_on.set()
    thread.join(10)
    ctrl_c.join()
    assert not thread.is_alive()


def test_the_death_of_a_worker_is_told(device):
    class Deadly(Numbered):
        def __getitem__(self, index):
            if index == 4:
                os._exit(3)
            return super().__getitem__(index)

    with pytest.raises(RuntimeError, match=r"exited unexpectedly|exit code 3"):
        list(Preloader(labkit.DataLoader(Deadly(8), num_workers=1), device))


def test_an_object_with_a_method_to_is_asked_on_an_accelerator_only(device):
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2)])
    (got,) = Preloader([packed])
    assert got is packed
    (arrays,) = Preloader([{"a": np.ones(2)}], device)
    assert type(arrays["a"]) is np.ndarray


def test_a_trace_shows_the_threads_copies_beside_the_consumers_waits(device):
    loader = labkit.DataLoader(Numbered(6), batch_size=2)
    with labkit.trace() as trace:
        list(Preloader(loader, device))
    by_lane = defaultdict(set)
    for span in trace.spans:
        by_lane[span.lane].add(span.layer)
    assert {"copy", "fetch"} <= by_lane["preloader"]
    assert "wait" in by_lane["main"]
    assert by_lane["copies (simulated device)"] == {"copy"}
    assert by_lane["steps (simulated device)"] == {"step"}


def test_a_trace_tells_when_the_device_copied_and_computed(device):
    """On one clock: a copy lies between its being issued and its batch's step."""
    step = Step(device, 0.004)
    with labkit.trace() as trace:
        for batch in Preloader([torch.full((1000,), float(i)) for i in range(6)], device):
            step(batch)
    spans = {(s.layer, s.batch): s for s in trace.spans if "simulated" in s.lane}
    issued = {s.batch: s for s in trace.spans if s.lane == "preloader" and s.layer == "copy"}
    assert set(spans) == {(layer, batch) for layer in ("copy", "step") for batch in range(6)}
    for batch in range(6):
        copy, done = spans["copy", batch], spans["step", batch]
        assert issued[batch].start <= copy.start + 1e-3
        assert copy.end <= done.start + 1e-3
        assert done.end - done.start >= 0.0039


def test_a_trace_of_a_device_that_was_closed_keeps_what_it_knows():
    trace = labkit.trace()

    def closed_in_a_step() -> None:
        with trace, SimulatedDevice() as device:
            step = Step(device, seconds=30)
            for batch in Preloader([torch.ones(1)], device):
                step(batch)

    with pytest.warns(UserWarning, match="lacks some work of the simulated device"):
        closed_in_a_step()
    assert [span.layer for span in trace.spans if "simulated" in span.lane] == ["copy"]


def test_two_preloaders_over_the_same_persistent_workers_end_one_another_with_an_error(device):
    """Neither hangs, and none gets batches of the other's epoch."""
    loader = labkit.DataLoader(Numbered(40), num_workers=1, persistent_workers=True)
    first, second = iter(Preloader(loader, device, 1)), iter(Preloader(loader, device, 1))
    with pytest.raises(RuntimeError, match="another one that has begun with the same persistent"):
        list(first)
    assert [values(batch)[0][0] for batch in second] == list(range(40))
    assert [values(batch)[0][0] for batch in Preloader(loader, device)] == list(range(40))
    loader.close()


def test_a_dropped_epoch_of_persistent_workers_does_not_end_the_next_one(device):
    loader = labkit.DataLoader(Numbered(40), num_workers=2, persistent_workers=True)
    abandoned = iter(Preloader(loader, device))
    next(abandoned)
    running = iter(Preloader(loader, device))
    got = [values(next(running))[0][0] for _ in range(3)]
    abandoned.close()
    del abandoned
    got += [values(batch)[0][0] for batch in running]
    assert got == list(range(40))
    loader.close()
