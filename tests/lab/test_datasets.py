"""The lab's datasets give what they say, at the cost that they say, in every worker."""

import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import default_collate

import labkit
from labkit.lab.datasets import Indices, LoadedBy, Payload, Stream, Waiting, Working


@given(st.integers(0, 50))
def test_the_value_of_a_sample_is_its_index(length):
    dataset = Indices(length)
    assert [dataset[i] for i in range(len(dataset))] == list(range(length))


@given(st.integers(1, 300), st.integers(1, 5000), st.integers(1, 300))
def test_a_payload_has_its_bytes_and_holds_no_more_samples_than_it_gives(length, nbytes, distinct):
    dataset = Payload(length, nbytes, distinct)
    assert len(dataset.samples) == min(length, distinct)
    for index in {0, length // 2, length - 1}:
        sample = dataset[index]
        assert (sample.dtype, sample.shape, sample.nbytes) == (torch.uint8, (nbytes,), nbytes)
        assert sample.unique().tolist() == [index % min(length, distinct) % 256]


def test_a_sample_tells_which_worker_loaded_it():
    assert [int(worker) for worker in labkit.DataLoader(LoadedBy(2))] == [-1, -1]
    loader = labkit.DataLoader(
        LoadedBy(4), num_workers=2, multiprocessing_context="fork", collate_fn=default_collate
    )
    assert [int(worker) for worker in loader] == [0, 1, 0, 1]


def test_every_workers_copy_of_a_stream_gives_all_of_it():
    loader = labkit.DataLoader(Stream(3), num_workers=2, multiprocessing_context="fork")
    assert len(Stream(3)) == 3
    with pytest.warns(UserWarning, match="every sample may have come from each of them"):
        assert sorted(int(value) for value in loader) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("costly", [Waiting, Working])
def test_a_costly_sample_takes_its_time_and_only_where_it_is_asked_to(costly):
    dataset = costly(Indices(8), seconds=0.02, every=4)
    assert len(dataset) == 8
    started = time.perf_counter()
    assert [dataset[i] for i in range(8)] == list(range(8))  # two of them cost
    assert time.perf_counter() - started >= 0.04
    costly(Indices(8), seconds=1000, every=4)[3]  # would not come back


def test_working_takes_a_cores_time_and_waiting_does_not():
    started = time.thread_time()
    Working(Indices(1), seconds=0.02)[0]
    assert time.thread_time() - started >= 0.02
    started = time.thread_time()
    Waiting(Indices(1), seconds=0.2)[0]
    assert time.thread_time() - started < 0.2


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Indices(-1), "0 samples or more"),
        (lambda: Payload(1, 0), "numbers of 1 or more"),
        (lambda: Payload(1, 1, distinct=0), "numbers of 1 or more"),
        (lambda: Waiting(Indices(1), -1), "0 seconds or more"),
        (lambda: Working(Indices(1), 1, every=0), "every=1"),
    ],
)
def test_what_makes_no_dataset_is_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make()


@pytest.mark.parametrize("dataset", [Indices(2), Payload(2, 1), LoadedBy(2)])
@pytest.mark.parametrize("index", [-1, 2])
def test_there_is_no_sample_beyond_the_last(dataset, index):
    with pytest.raises(IndexError, match="there are 2"):
        dataset[index]
