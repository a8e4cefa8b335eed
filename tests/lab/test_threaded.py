"""A loader on threads gives PyTorch's batches, in order, and leaves nothing behind."""

import threading

import pytest
import torch
from torch.utils.data import DataLoader

from labkit.lab.datasets import Indices
from labkit.lab.decoding import JpegImages, TextRecords
from labkit.lab.threaded import ThreadLoader, in_threads


@pytest.mark.parametrize(("length", "batch_size", "threads"), [(10, 4, 2), (3, 8, 3), (0, 2, 1)])
def test_the_batches_are_those_of_pytorch(length, batch_size, threads):
    dataset = Indices(length)
    loader = ThreadLoader(dataset, batch_size, threads)
    expected = list(DataLoader(dataset, batch_size))
    for _ in range(2):  # another epoch is as the first
        found = list(loader)
        assert len(found) == len(expected) == len(loader)
        assert all(map(torch.equal, found, expected))


def test_batches_come_in_order_whichever_is_done_first():
    second = threading.Event()

    def fetch(task):
        if task == 0:
            assert second.wait(30)
        second.set()
        return task

    assert list(in_threads(fetch, range(5), threads=2, ahead=3)) == list(range(5))


def test_no_more_tasks_are_handed_out_than_may_be_ahead():
    taken = []
    batches = in_threads(str, (taken.append(i) or i for i in range(100)), threads=2, ahead=4)
    assert taken == []
    for given in range(1, 5):
        next(batches)
        assert len(taken) <= given + 4
    batches.close()


def test_an_error_comes_where_its_batch_was_due():
    def fetch(task):
        return 1 // (task - 2)

    batches = in_threads(fetch, range(6), threads=2, ahead=6)
    assert [next(batches), next(batches)] == [-1, -1]
    with pytest.raises(ZeroDivisionError):
        next(batches)
    assert list(batches) == []


def test_after_a_break_no_thread_is_left_and_nothing_more_is_fetched():
    begun = []
    before = threading.active_count()
    batches = in_threads(begun.append, range(100), threads=1, ahead=10)
    next(batches)
    batches.close()
    assert threading.active_count() == before
    assert len(begun) <= 11


@pytest.mark.parametrize("name", ["batch_size", "num_threads", "prefetch_factor"])
def test_numbers_below_one_are_refused(name):
    with pytest.raises(ValueError, match=name):
        ThreadLoader(Indices(3), **{name: 0})


@pytest.mark.parametrize(
    ("dataset", "shape"), [(JpegImages(10, side=32), (32, 32, 3)), (TextRecords(10, 20), (20,))]
)
def test_samples_with_work_are_the_same_each_time_and_differ_from_each_other(dataset, shape):
    assert len(dataset) == 10
    assert dataset[1].shape == shape
    assert torch.equal(dataset[1], dataset[9])
    assert not torch.equal(dataset[1], dataset[2])
    with pytest.raises(IndexError, match="there is no sample 10"):
        dataset[10]


def test_text_is_parsed_into_its_numbers():
    assert TextRecords(3, values=4)[2].tolist() == [2, 3, 4, 5]


def test_an_image_has_the_pixels_that_its_file_has():
    image = JpegImages(1, side=64)[0]
    assert image.dtype == torch.uint8
    assert image.float().std() > 10  # not of one colour
