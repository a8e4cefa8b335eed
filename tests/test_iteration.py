"""Epochs: how they begin, go on after an error, end; in which order; in what they work."""

import copy
import gc
import multiprocessing
import os
import random
import signal
import threading
import time
import warnings
import weakref

import numpy as np
import psutil
import pytest
import torch
from torch.utils.data import (
    ConcatDataset,
    Dataset,
    DistributedSampler,
    IterableDataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import get_worker_info as torch_get_worker_info

import labkit
from labkit.errors import WorkerDied, WorkerTraceback
from tests.comparison import differences
from tests.datasets import Mapped, Recipe, Samples, ShardedStream, Stream, draws
from tests.scripts import alive, family_of, run_script, seconds_until, started

METHODS = ["fork", "spawn", "forkserver"]
WORKERS = [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}]


def ids(options: dict[str, object]) -> str:
    count = options.get("num_workers", 0)
    return f"{count} workers" + (", persistent" if options.get("persistent_workers") else "")


def numbers(loader) -> list[int]:
    return [int(number) for batch in loader for number in batch]


# Random numbers of the main process


@pytest.mark.parametrize("generator", [False, True], ids=["", "generator"])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_epoch_moves_the_main_processs_random_state_as_pytorchs(num_workers, generator):
    """W12: an unshuffled loader draws a base seed, and nothing else."""
    states = []
    for loader_class in (labkit.DataLoader, TorchDataLoader):
        torch.manual_seed(3)
        random.seed(3)
        np.random.seed(3)
        own = torch.Generator() if generator else None
        loader = loader_class(Samples(8), 2, num_workers=num_workers, generator=own)
        list(loader)
        list(loader)
        states.append([draws(), own.get_state() if own is not None else None])
    assert list(differences(*states)) == []


# Iterable datasets


class Pausing(IterableDataset):
    """Sharded; pauses of random length, and random numbers as samples."""

    def __iter__(self):
        info = torch_get_worker_info()
        pauses = random.Random()  # of the system's own randomness: another one each run
        for index in range(info.id, 9 + info.id * 2, info.num_workers):
            time.sleep(pauses.random() / 200)
            yield index, draws()


def test_three_epochs_of_persistent_workers_are_the_same_in_ten_runs():
    """W13: whatever the workers' speed."""

    def run():
        torch.manual_seed(5)
        loader = labkit.DataLoader(Pausing(), 2, num_workers=3, persistent_workers=True)
        epochs = [list(loader) for _ in range(3)]
        loader.close()
        return epochs

    first = run()
    assert len(first[0]) > 3
    for _ in range(9):
        assert list(differences(run(), first)) == []


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("dataset", [Stream, ShardedStream])
@pytest.mark.parametrize("length", [1, 5, 8])
def test_iterable_datasets_give_pytorchs_batches(length, dataset, drop_last):
    """W14: unsharded and sharded, shards shorter than a batch, drop_last."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, theirs = (
            list(loader(dataset(length), 3, num_workers=2, drop_last=drop_last))
            for loader in (labkit.DataLoader, TorchDataLoader)
        )
    assert list(differences(ours, theirs)) == []


def test_a_dataset_that_never_asks_who_it_is_gets_a_hint_once_an_epoch():
    """W14: every sample comes twice."""
    loader = labkit.DataLoader(Stream(4), 2, num_workers=2)
    with pytest.warns(UserWarning, match="never asked which worker it is in") as caught:
        assert sorted(numbers(loader)) == [0, 0, 1, 1, 2, 2, 3, 3]
    (hint,) = [w for w in caught if w.category is UserWarning]  # Python 3.12 warns at forks, too
    assert hint.filename == __file__
    assert "get_worker_info" in str(hint.message)


@pytest.mark.parametrize(
    "loader",
    [
        labkit.DataLoader(ShardedStream(4), num_workers=2),
        labkit.DataLoader(Stream(4), num_workers=1),
        labkit.DataLoader(Stream(4)),
        labkit.DataLoader(Samples(4), num_workers=2),
        labkit.DataLoader(Stream(4), num_workers=2, worker_init_fn=lambda worker_id: None),
    ],
    ids=["sharded", "one worker", "no worker", "map-style", "sharded by worker_init_fn"],
)
def test_there_is_no_hint_where_it_would_be_wrong(loader):
    """W14."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(loader)


def test_a_hint_that_is_made_an_error_leaves_the_epoch_to_be_gone_on_with():
    """W14: with `-W error` too, nothing waits for ever."""
    loader = labkit.DataLoader(Stream(4), 2, num_workers=2, timeout=5)
    batches = iter(loader)
    given, raised = [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(10):
            try:
                given += next(batches).tolist()
            except StopIteration:
                break
            except UserWarning:
                raised += 1
    assert (sorted(given), raised) == ([0, 0, 1, 1, 2, 2, 3, 3], 1)


@pytest.mark.parametrize("options", WORKERS, ids=ids)
def test_the_number_of_dropped_samples_can_be_read(options):
    """W14: of the latest epoch; each worker drops its own incomplete batch."""
    loader = labkit.DataLoader(ShardedStream(10), 3, drop_last=True, **options)
    for _ in range(2):
        given = len(numbers(loader))
        assert loader.dropped_samples == 10 - given == (1 if not options else 4)
    loader.close()
    assert labkit.DataLoader(ShardedStream(10), 3).dropped_samples == 0


class Rewinding(IterableDataset):
    """Its iterator counts how often it is called, and begins anew after its end."""

    def __init__(self, length):
        self.length = length

    def __iter__(self):
        self.calls = 0
        return self

    def __next__(self):
        self.calls += 1
        if self.calls % (self.length + 1) == 0:
            raise StopIteration
        return self.calls


@pytest.mark.parametrize("length", [0, 3, 4])
@pytest.mark.parametrize("batch_size", [None, 2])
def test_an_iterator_is_called_once_past_its_end(batch_size, length):
    """W15: also where its end falls into a batch."""
    data = Rewinding(length)
    batches = iter(labkit.DataLoader(data, batch_size))
    taken = list(batches)
    assert sum(torch.as_tensor(batch).numel() for batch in taken) == length
    assert list(batches) == []
    assert data.calls == length + 1


@pytest.mark.parametrize("length", [0, 3, 4])
@pytest.mark.parametrize("persistent", [False, True])
def test_in_a_worker_an_iterator_is_called_once_past_its_end(persistent, length):
    """W15: however many tasks the worker has left."""

    class Counted(Rewinding):
        def __next__(self):
            self.calls += 1
            with total.get_lock():
                total.value += 1
            if self.calls % (self.length + 1) == 0:
                raise StopIteration
            return self.calls

    total = multiprocessing.Value("i", 0)
    loader = labkit.DataLoader(
        Counted(length), 2, num_workers=1, prefetch_factor=4, persistent_workers=persistent
    )
    for epoch in (1, 2):
        assert numbers(loader) == list(range(1, length + 1))
        assert total.value == epoch * (length + 1)
    loader.close()


# Exceptions


class TwoArguments(Exception):
    def __init__(self, code, text):
        super().__init__(code, text)


class KeywordOnly(Exception):
    def __init__(self, *, code):
        super().__init__(f"code {code}")


class Formatted(Exception):
    def __init__(self, code):
        super().__init__(f"code {code:d}")


class WithoutWords(Exception):
    def __str__(self):
        raise AttributeError("no words")


RAISED = {
    "ValueError": (lambda: ValueError("words"), ValueError, "words"),
    "KeyError": (lambda: KeyError("words"), KeyError, "words"),
    "two arguments": (lambda: TwoArguments(3, "words"), RuntimeError, "(3, 'words')"),
    "keyword-only": (lambda: KeywordOnly(code=3), RuntimeError, "code 3"),
    "formatted": (lambda: Formatted(3), RuntimeError, "code 3"),
    "OSError": (lambda: FileNotFoundError(2, "words", "f"), FileNotFoundError, "words: 'f'"),
    "UnicodeDecodeError": (
        lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "words"), RuntimeError, "words",
    ),
    "without words": (WithoutWords, WithoutWords, ""),
}  # fmt: skip


@pytest.mark.parametrize("kind", RAISED)
def test_an_exception_keeps_its_class_where_it_can_be_built(kind):
    """W18: else a RuntimeError; name, message and the worker's traceback can always be read."""
    make, expected, words = RAISED[kind]

    def fail(index):
        raise make()

    batches = iter(labkit.DataLoader(Mapped(fail, 4), 2, num_workers=1))
    with pytest.raises(expected) as caught:
        next(batches)
    name = type(make()).__name__
    cause = caught.value.__cause__
    assert isinstance(cause, WorkerTraceback)
    assert (cause.type_name, cause.worker_id, cause.indices) == (name, 0, [0, 1])
    assert psutil.pid_exists(cause.pid)
    assert words in cause.message
    assert "in fail" in str(cause)
    if kind != "without words":
        assert str(caught.value).startswith(f"Caught {name} in DataLoader worker process 0.\n")
        assert "in fail" in str(caught.value)
        assert words in str(caught.value)
    batches.close()


def test_an_exception_whose_class_cannot_be_pickled_is_told_by_name():
    """W18."""

    def fail(index):
        class Local(Exception):
            def __reduce__(self):
                raise TypeError("never")

            lock = threading.Lock()

        raise Local("words")

    with pytest.raises(Exception, match=r"Caught Local [^$]*words"):
        list(labkit.DataLoader(Mapped(fail, 4), 2, num_workers=1))


@pytest.mark.parametrize("options", WORKERS, ids=ids)
def test_iteration_may_go_on_after_an_exception(options):
    loader = labkit.DataLoader(Samples(8, Recipe(fails_at=2)), 2, **options)
    for _ in range(2):
        batches, given = iter(loader), []
        given += next(batches).tolist()
        with pytest.raises(FileNotFoundError):
            next(batches)
        assert given + numbers(batches) == [0, 1, 4, 5, 6, 7]
    loader.close()


@pytest.mark.parametrize("where", ["worker_init_fn", "__iter__"])
@pytest.mark.parametrize("num_workers", [1, 2])
def test_an_exception_while_a_worker_begins_is_raised_in_the_main_process(where, num_workers):
    def fail(*anything):
        raise LookupError("cannot begin")

    class Unwilling(Stream):
        __iter__ = fail if where == "__iter__" else Stream.__iter__

    init = fail if where == "worker_init_fn" else None
    loader = labkit.DataLoader(Unwilling(4), num_workers=num_workers, worker_init_fn=init)
    with pytest.raises(LookupError, match="cannot begin"):
        list(loader)


def stop(index):
    raise StopIteration


@pytest.mark.parametrize("arguments", [{"batch_size": 2}, {"batch_size": None}], ids=str)
@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_stop_iteration_from_a_map_style_dataset_is_an_error(num_workers, arguments):
    """W19: PyTorch ends the epoch, silently."""
    loader = labkit.DataLoader(Mapped(stop), num_workers=num_workers, **arguments)
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(loader)


@pytest.mark.parametrize("data", [Samples(4), Stream(4)], ids=["map", "iterable"])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_stop_iteration_from_the_collate_function_is_an_error(num_workers, data):
    """W19."""
    loader = labkit.DataLoader(data, 2, num_workers=num_workers, collate_fn=stop)
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(loader)


class CannotBeUnpickled:
    def __reduce__(self):
        return refuse, ()


def refuse():
    raise ZeroDivisionError("cannot arrive")


def test_batches_that_come_together_with_one_that_cannot_be_unpickled_are_given():
    data = Mapped(lambda index: CannotBeUnpickled() if index == 2 else index, 8)
    batches = iter(labkit.DataLoader(data, None, num_workers=1, prefetch_factor=4))
    time.sleep(1)  # all four have come
    assert [next(batches), next(batches)] == [0, 1]
    with pytest.raises(ZeroDivisionError, match="cannot arrive") as raised:
        next(batches)
    assert "refuse" in [entry.name for entry in raised.traceback]
    with pytest.raises(ZeroDivisionError, match="cannot arrive"):
        next(batches)
    batches.close()


def test_batches_that_come_together_with_a_death_are_given():
    """Out of order: worker 1 has made its two when worker 0 dies over its second one."""

    def make(index: int) -> int:
        if index == 2:
            time.sleep(0.5)  # what it made before is sent
            os._exit(3)
        return index

    loader = labkit.DataLoader(Mapped(make), None, num_workers=2, in_order=False)
    batches = iter(loader)
    time.sleep(1.5)  # all that will come has come
    given = [next(batches) for _ in range(3)]
    with pytest.raises(WorkerDied, match=r"worker 0 .* on batch 2"):
        next(batches)
    assert sorted(given) == [0, 1, 3]


@pytest.mark.parametrize("persistent", [False, True])
def test_who_waits_for_a_batch_when_another_thread_closes_has_reached_the_end(persistent):
    def make(index: int) -> int:
        time.sleep(0.5 if index >= 3 else 0)
        return index

    loader = labkit.DataLoader(Mapped(make), None, num_workers=2, persistent_workers=persistent)
    batches = iter(loader)
    given: list[int | str] = []

    def take() -> None:
        given.extend(batches)
        given.append("end")

    thread = threading.Thread(target=take)
    thread.start()
    seconds_until(lambda: len(given) == 3)
    batches.close()
    thread.join(10)
    assert given == [*range(len(given) - 1), "end"]
    loader.close()


@pytest.mark.parametrize("in_order", [True, False])
def test_after_a_batch_that_cannot_be_unpickled_nobody_waits_for_it(in_order):
    """The main process's failure to read a message is told, and told again."""
    data = Mapped(lambda index: CannotBeUnpickled() if index == 2 else index, 8)
    batches = iter(labkit.DataLoader(data, None, num_workers=1, in_order=in_order))
    assert [next(batches), next(batches)] == [0, 1]
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="cannot arrive"):
            list(batches)
    batches.close()


# Order


def test_batches_come_in_the_samplers_order_whatever_the_workers_speed():
    data = Mapped(lambda index: time.sleep(0.2 if index == 0 else 0) or index, 12)
    loader = labkit.DataLoader(data, 2, num_workers=3)
    assert numbers(loader) == list(range(12))


def test_out_of_order_a_slow_batch_holds_up_nobody():
    data = Mapped(lambda index: time.sleep(1 if index == 0 else 0) or index, 12)
    loader = labkit.DataLoader(data, 2, num_workers=2, in_order=False, prefetch_factor=1)
    given = numbers(loader)
    assert given[-2:] == [0, 1]
    assert sorted(given) == list(range(12))


@pytest.mark.parametrize("prefetch_factor", [1, 2, 5])
def test_no_more_than_prefetch_factor_batches_a_worker_are_made_in_advance(prefetch_factor):
    made = multiprocessing.Value("i", 0)

    def count(index):
        with made.get_lock():
            made.value += 1
        return index

    batches = iter(
        labkit.DataLoader(Mapped(count, 30), None, num_workers=2, prefetch_factor=prefetch_factor)
    )
    seconds_until(lambda: made.value >= 2 * prefetch_factor)
    time.sleep(0.1)
    assert made.value == 2 * prefetch_factor
    next(batches)
    seconds_until(lambda: made.value >= 2 * prefetch_factor + 1)
    time.sleep(0.1)
    assert made.value == 2 * prefetch_factor + 1
    batches.close()


@pytest.mark.parametrize("dataset", [Samples, ShardedStream])
def test_two_iterators_of_persistent_workers_are_one(dataset):
    """W21: `zip(loader, loader)` gives pairs of neighbours, every time the same, and documented."""
    loader = labkit.DataLoader(dataset(8), None, num_workers=2, persistent_workers=True)
    for _ in range(3):
        assert list(zip(loader, loader, strict=False)) == [(0, 1), (2, 3), (4, 5), (6, 7)]
    loader.close()
    assert "`zip(loader, loader)` gives pairs of neighbours" in labkit.DataLoader.__doc__


def test_two_iterators_of_passing_workers_are_two():
    """W21."""
    loader = labkit.DataLoader(Samples(4), None, num_workers=1)
    assert list(zip(loader, loader, strict=True)) == [(i, i) for i in range(4)]


@pytest.mark.parametrize("strategy", sorted(labkit.get_all_sharing_strategies()))
def test_persistent_workers_stay_the_same_processes(strategy):
    loader = labkit.DataLoader(
        Mapped(lambda i: os.getpid(), 4), None, num_workers=2, persistent_workers=True,
        sharing_strategy=strategy,
    )  # fmt: skip
    assert list(loader) == list(loader)
    loader.close()


def test_after_a_break_persistent_workers_begin_at_the_first_batch():
    loader = labkit.DataLoader(Samples(8), 2, num_workers=2, persistent_workers=True)
    for stop_after in (1, 2, 3, 4, 5):
        given = [batch.tolist() for batch, _ in zip(loader, range(stop_after), strict=False)]
        assert given == [[0, 1], [2, 3], [4, 5], [6, 7]][:stop_after]
    loader.close()


# Ends


@pytest.fixture
def workers_end():
    """Nothing runs after the test, and at once: the fixture for all tests waits a while."""
    before = family_of(os.getpid())
    yield
    left = [p.pid for p in family_of(os.getpid()) if p not in before and "worker" in p.name()]
    assert left == []
    assert multiprocessing.active_children() == []


def loader_of(options, **more):
    return labkit.DataLoader(Samples(20), 2, **options, **more)


@pytest.mark.usefixtures("workers_end")
@pytest.mark.parametrize("options", WORKERS, ids=ids)
class TestWorkersEnd:
    def test_when_the_epoch_is_exhausted(self, options):
        loader = loader_of(options)
        batches = iter(loader)
        assert len(list(batches)) == 10
        for _ in range(2):
            with pytest.raises(StopIteration):
                next(batches)
        if options.get("persistent_workers"):
            assert len(multiprocessing.active_children()) == 2
            loader.close()
        assert multiprocessing.active_children() == []

    def test_at_a_break(self, options):
        for batch in loader_of(options):
            assert batch.tolist() == [0, 1]
            break

    def test_at_an_exception_in_the_loop(self, options):
        with pytest.raises(ZeroDivisionError):
            for _ in loader_of(options):
                raise ZeroDivisionError

    def test_when_the_iterator_is_garbage_in_a_cycle(self, options):
        class Holder:
            pass

        holder = Holder()
        holder.itself, holder.batches = holder, iter(loader_of(options))
        next(holder.batches)
        gone = weakref.ref(holder)
        del holder
        gc.collect()
        assert gone() is None

    def test_at_close_which_may_be_repeated(self, options):
        batches = iter(loader_of(options))
        next(batches)
        for _ in range(2):
            batches.close()
            assert multiprocessing.active_children() == []
        assert list(batches) == []

    def test_at_the_end_of_a_with_block(self, options):
        with iter(loader_of(options)) as batches:
            assert next(batches).tolist() == [0, 1]
        assert multiprocessing.active_children() == []
        assert list(batches) == []

    def test_when_nothing_was_ever_taken(self, options):
        iter(loader_of(options))

    def test_at_the_loaders_close_after_which_it_begins_anew(self, options):
        loader = loader_of(options)
        for _ in range(2):
            assert len(list(loader)) == 10
            loader.close()
            loader.close()
            assert multiprocessing.active_children() == []

    def test_off_the_main_thread(self, options):
        given = []
        thread = threading.Thread(target=lambda: given.extend(loader_of(options)))
        thread.start()
        thread.join()
        assert len(given) == 10

    def test_when_a_thread_drops_what_another_one_began(self, options):
        batches = [iter(loader_of(options))]
        next(batches[0])
        thread = threading.Thread(target=batches.clear)
        thread.start()
        thread.join()


@pytest.mark.usefixtures("workers_end")
@pytest.mark.parametrize("method", METHODS)
def test_workers_end_under_every_start_method(method):
    for _ in loader_of({"num_workers": 2}, multiprocessing_context=method):
        break


@pytest.mark.usefixtures("workers_end")
def test_workers_end_in_the_middle_of_large_messages():
    data = Mapped(lambda index: bytes(20 << 20), 40)
    for strategy in labkit.get_all_sharing_strategies():
        loader = labkit.DataLoader(data, None, num_workers=2, sharing_strategy=strategy)
        start = time.monotonic()
        for batch in loader:
            assert len(batch) == 20 << 20
            break
        del batch
        assert time.monotonic() - start < 10


def test_batches_live_longer_than_their_loader():
    for strategy in labkit.get_all_sharing_strategies():
        data = TensorDataset(torch.arange(4000.0).view(4, 1000))
        kept = list(labkit.DataLoader(data, 2, num_workers=2, sharing_strategy=strategy))
        gc.collect()
        assert torch.equal(torch.cat([batch for (batch,) in kept]), data.tensors[0])


@pytest.mark.parametrize("strategy", sorted(labkit.get_all_sharing_strategies()))
def test_batches_that_were_alive_at_a_fork_leave_nothing(strategy):
    """The fixture for all tests looks for descriptors and mappings."""
    data = TensorDataset(torch.ones(4, 1000))
    kept = list(labkit.DataLoader(data, 2, num_workers=2, sharing_strategy=strategy))
    process = multiprocessing.get_context("fork").Process(target=os.getpid)
    process.start()
    process.join()
    process.close()
    assert torch.equal(torch.cat([batch for (batch,) in kept]), data.tensors[0])


EXIT = """
import multiprocessing
import os
import labkit
from tests.datasets import Samples

{top}
    loader = labkit.DataLoader(Samples(1000), 2, num_workers=2, persistent_workers={persistent},
                               multiprocessing_context={method!r})
    batches = iter(loader)
    next(batches)
    print(*[worker.pid for worker in multiprocessing.active_children()], flush=True)
    {then}

{last}
"""
GUARD = "if __name__ == '__main__':"
PLACES = {
    "at module level": {"top": GUARD, "last": ""},  # the iterator is there until the very end
    "in a function": {"top": "def run():", "last": f"{GUARD} run()"},
}


@pytest.mark.parametrize(
    ("method", "persistent", "place"),
    [
        ("fork", False, "in a function"),
        ("fork", True, "in a function"),
        ("fork", True, "at module level"),
        ("spawn", True, "at module level"),
        ("forkserver", True, "at module level"),
    ],
)
def test_the_interpreter_exits_quietly_with_a_living_iterator(method, persistent, place, tmp_path):
    script = EXIT.format(persistent=persistent, method=method, then="pass", **PLACES[place])
    done = run_script(script, tmp_path / "script.py")
    assert (done.returncode, done.stderr) == (0, "")
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2
    assert not any(map(alive, pids))


@pytest.mark.parametrize("then", ["raise SystemExit(3)", "os._exit(3)"])
def test_workers_end_with_the_program_however_it_exits(then, tmp_path):
    script = EXIT.format(persistent=True, method="fork", then=then, **PLACES["at module level"])
    done = run_script(script, tmp_path / "script.py")
    assert (done.returncode, done.stderr) == (3, "")
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2
    assert seconds_until(lambda: not any(map(alive, pids))) < 2


def test_a_terminated_program_leaves_no_worker():
    script = """
        import labkit, time
        from tests.datasets import Samples
        batches = iter(labkit.DataLoader(Samples(1000), 2, num_workers=2))
        print(next(batches), flush=True)
        time.sleep(60)
    """
    with started(script) as process:
        process.stdout.readline()
        workers = [child.pid for child in family_of(process.pid)]
        assert len(workers) == 2
        process.send_signal(signal.SIGTERM)
        assert seconds_until(lambda: not any(map(alive, workers))) < 2


@pytest.mark.parametrize("options", WORKERS[1:], ids=ids)
def test_two_loaders_in_two_threads_do_not_disturb_each_other(options):
    results = {}

    def consume(name, first):
        loader = labkit.DataLoader(Mapped(lambda i: first + i, 40), 4, **options)
        results[name] = [numbers(loader) for _ in range(3)]
        loader.close()

    threads = [threading.Thread(target=consume, args=(n, 1000 * n)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n in range(2):
        assert results[n] == [list(range(1000 * n, 1000 * n + 40))] * 3


def test_a_loader_may_be_iterated_while_another_one_is():
    inner = labkit.DataLoader(Samples(3), None, num_workers=1, persistent_workers=True)
    pairs = [(i, j) for i in labkit.DataLoader(Samples(2), None, num_workers=1) for j in inner]
    assert pairs == [(i, j) for i in range(2) for j in range(3)]
    inner.close()


def test_fifty_epochs_leave_the_number_of_descriptors_as_it_was():
    process = psutil.Process()
    loader = labkit.DataLoader(Samples(4), 2, num_workers=2)
    list(loader)
    before = process.num_fds()
    for _ in range(50):
        for batch in loader:
            del batch  # it holds its memory
            break
    assert process.num_fds() == before


# Inside what people use


def the_same(make_loader) -> None:
    """`make_loader(loader_class)` gives the same batches and types with both classes."""
    epochs = []
    for loader_class in (labkit.DataLoader, TorchDataLoader):
        torch.manual_seed(7)
        loader = make_loader(loader_class)
        epochs.append([list(loader), list(loader)])
    assert list(differences(*epochs)) == []


def table() -> TensorDataset:
    return TensorDataset(torch.arange(20.0).view(10, 2), torch.arange(10) % 3)


@pytest.mark.parametrize("options", WORKERS, ids=ids)
class TestTheSameAsWithPyTorch:
    def test_tensor_dataset(self, options):
        the_same(lambda cls: cls(table(), 3, shuffle=True, **options))

    def test_subset(self, options):
        the_same(lambda cls: cls(Subset(table(), [3, 1, 4, 1, 5]), 2, **options))

    def test_random_split(self, options):
        the_same(lambda cls: cls(random_split(table(), [7, 3])[0], 2, shuffle=True, **options))

    def test_concat_dataset(self, options):
        the_same(lambda cls: cls(ConcatDataset([table(), table()]), 4, shuffle=True, **options))

    def test_weighted_random_sampler(self, options):
        the_same(
            lambda cls: cls(
                table(), 4, sampler=WeightedRandomSampler([0.1] * 5 + [0.9] * 5, 12), **options
            )
        )

    def test_distributed_sampler(self, options):
        def make(loader_class):
            data = table()
            sampler = DistributedSampler(data, num_replicas=3, rank=1, seed=4)
            loader = loader_class(data, 2, sampler=sampler, **options)
            loader.sampler.set_epoch(2)
            return loader

        the_same(make)

    def test_an_iterable_dataset_that_shards_by_worker_info(self, options):
        the_same(lambda cls: cls(ShuffledShards(), 3, **options))

    def test_a_training_loop(self, options):
        """Only the import is another one."""
        losses = [train(cls, options) for cls in (labkit.DataLoader, TorchDataLoader)]
        assert losses[0] == losses[1]


class ShuffledShards(IterableDataset):
    """As Hugging Face's `datasets` does it: files to workers by worker info, a shuffle buffer."""

    def __init__(self):
        self.files = [list(range(10 * n, 10 * n + 7)) for n in range(3)]
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        info = torch_get_worker_info()
        files = self.files
        if info is not None:
            files = copy.deepcopy(files[info.id :: info.num_workers])
        numbers = np.random.default_rng(self.epoch)
        buffer = []
        for file in files:
            for sample in file:
                if len(buffer) == 4:
                    yield {"id": buffer.pop(numbers.integers(4)), "text": f"line {sample}"}
                buffer.append(sample)
        yield from ({"id": sample, "text": "rest"} for sample in buffer)


class Noisy(Dataset):
    """Random augmentation in the workers."""

    def __init__(self):
        self.x = torch.randn(24, 3, generator=torch.Generator().manual_seed(0))
        self.y = (self.x.sum(1) > 0).long()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return {"x": self.x[index] + 0.1 * torch.randn(3), "y": self.y[index]}


def train(DataLoader, options):  # noqa: N803 - what the import brings
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = torch.nn.CrossEntropyLoss()
    train_loader = DataLoader(Noisy(), batch_size=5, shuffle=True, drop_last=True, **options)
    losses = []
    for _ in range(3):
        for batch in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(batch["x"]), batch["y"])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert len(losses) == 3 * len(train_loader)
    return losses
