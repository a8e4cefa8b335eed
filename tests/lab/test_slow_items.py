"""The notebook's datasets for starting workers: slow items, and samples behind a lock."""

import multiprocessing
import threading

import pytest
import torch.utils.data

import labkit
from labkit.errors import LoaderTimeout
from labkit.lab import locked, slow_items

LOADERS = {"labkit": labkit.DataLoader, "PyTorch": torch.utils.data.DataLoader}
forks = pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="there is no fork"
)


def load(loader_class, workers):
    return list(
        loader_class(
            slow_items.SlowItems(6),
            collate_fn=slow_items.unwrap,
            worker_init_fn=slow_items.seed_worker,
            num_workers=workers,
            multiprocessing_context="fork" if workers else None,
        )
    )


@forks
@pytest.mark.parametrize("workers", [1, 2])
def test_both_loaders_give_the_same_items_and_the_same_noise(workers):
    ours, theirs = (load(loader_class, workers) for loader_class in LOADERS.values())
    assert ours == theirs
    assert [item.index for item in ours] == list(range(6))
    assert [item.worker for item in ours] == [i % workers for i in range(6)]
    assert len({item.noise for item in ours}) == 6


def test_without_workers_the_main_process_loads():
    assert {item.worker for item in load(labkit.DataLoader, 0)} == {-1}


@forks
def test_a_worker_that_is_started_by_hand_gives_what_a_loader_gives():
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    items = slow_items.SlowItems(6)
    worker = context.Process(target=slow_items.load, args=(items, results))
    worker.start()
    loaded = [results.get() for _ in range(6)]
    worker.join()
    worker.close()
    results.close()
    assert loaded == load(labkit.DataLoader, 1)


def test_a_batch_of_more_than_one_cannot_be_unwrapped():
    with pytest.raises(ValueError, match="too many values"):
        slow_items.unwrap([slow_items.Item(0, 0, 0.0)] * 2)


@forks
def test_a_worker_forked_while_a_thread_holds_the_lock_is_stuck_and_later_ones_are_not():
    options = {"num_workers": 1, "multiprocessing_context": "fork"}
    with locked.held_by_a_thread():
        assert locked.lock.locked()
        with pytest.raises(LoaderTimeout, match=r"locked\.py.* in __getitem__"):
            list(labkit.DataLoader(locked.Locked(2), timeout=0.5, **options))
    assert not locked.lock.locked()
    assert list(map(int, labkit.DataLoader(locked.Locked(2), **options))) == [0, 1]


def test_the_thread_that_held_the_lock_is_gone():
    with pytest.raises(KeyError), locked.held_by_a_thread():
        raise KeyError
    assert "holds the lock" not in {thread.name for thread in threading.enumerate()}
