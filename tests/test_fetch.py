"""Indices → batch: the dataset is asked as PyTorch asks it, and ends where it says."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Dataset, IterableDataset
from torch.utils.data._utils.fetch import _IterableDatasetFetcher, _MapDatasetFetcher

import labkit
from labkit.errors import CollateError
from labkit.fetch import IterableFetcher, MapFetcher, make_fetcher


class Squares(Dataset):
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def __getitem__(self, i: Any) -> Any:
        self.asked.append(i)
        return i * i


class SquaresByBatch(Squares):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        self.asked.append(indices)
        return [i * i for i in indices]


class NoItems(Squares):
    __getitems__ = None


class Countdown(IterableDataset):
    """Yields n, n - 1 … 1 and counts how often it is asked past its end."""

    def __init__(self, n: int) -> None:
        self.n, self.asked_past_the_end = n, 0

    def __iter__(self) -> "Countdown":
        return self

    def __next__(self) -> int:
        if self.n == 0:
            self.asked_past_the_end += 1
            raise StopIteration
        self.n -= 1
        return self.n + 1


class EndsEarly(Dataset):
    def __getitem__(self, i: int) -> int:
        raise StopIteration


@pytest.mark.parametrize("kind", [Squares, SquaresByBatch, NoItems])
@pytest.mark.parametrize(
    ("auto_collation", "index"), [(True, [3, 1, 2]), (True, (1,)), (True, []), (False, 4)]
)
def test_a_map_style_dataset_is_asked_as_pytorch_asks_it(kind, auto_collation, index):
    ours, theirs = kind(), kind()
    fetched = MapFetcher(ours, auto_collation, repr).fetch(index)
    assert fetched.batch == _MapDatasetFetcher(theirs, auto_collation, repr, False).fetch(index)
    assert ours.asked == theirs.asked
    assert fetched.n_samples == 0


@given(
    n=st.integers(0, 10),
    batch_size=st.integers(1, 4),
    auto_collation=st.booleans(),
    drop_last=st.booleans(),
)
def test_an_iterable_dataset_gives_pytorchs_batches(n, batch_size, auto_collation, drop_last):
    drop_last = drop_last and auto_collation
    index = [None] * batch_size if auto_collation else None
    ours = IterableFetcher(Countdown(n), auto_collation, repr, drop_last)
    theirs = _IterableDatasetFetcher(Countdown(n), auto_collation, repr, drop_last)
    samples = 0
    while True:
        try:
            expected = theirs.fetch(index)
        except StopIteration:
            break
        fetched = ours.fetch(index)
        assert fetched.batch == expected
        samples += fetched.n_samples
    with pytest.raises(StopIteration):
        ours.fetch(index)
    assert samples + ours.dropped_samples == n
    assert drop_last or ours.dropped_samples == 0


def test_an_iterable_dataset_is_asked_once_past_its_end():  # W15
    dataset = Countdown(3)
    fetcher = IterableFetcher(dataset, True, list, False)
    assert fetcher.fetch([None] * 2).batch == [3, 2]
    assert fetcher.fetch([None] * 2).batch == [1]
    for _ in range(3):
        with pytest.raises(StopIteration):
            fetcher.fetch([None] * 2)
    assert dataset.asked_past_the_end == 1


def test_the_kind_of_dataset_decides():
    assert isinstance(make_fetcher(Countdown(1), True, list, False), IterableFetcher)
    assert isinstance(make_fetcher(Squares(), True, list, False), MapFetcher)


@pytest.mark.parametrize("auto_collation", [True, False])
def test_a_stop_iteration_of_a_map_style_dataset_is_an_error(auto_collation):  # W19
    fetcher = MapFetcher(EndsEarly(), auto_collation, list)
    with pytest.raises(RuntimeError, match="raised StopIteration for index"):
        fetcher.fetch([5] if auto_collation else 5)


def stop(samples: Any) -> Any:
    raise StopIteration


@pytest.mark.parametrize("dataset", [Squares(), Countdown(3)])
def test_a_stop_iteration_of_the_collate_function_is_an_error(dataset):
    fetcher = make_fetcher(dataset, True, stop, False)
    with pytest.raises(RuntimeError, match="collate function raised StopIteration"):
        fetcher.fetch([0])


class Ragged(Dataset):
    def __getitem__(self, i: int) -> Any:
        return torch.ones(i)


@pytest.mark.parametrize("indices", [[4, 9], (4, 9)], ids=repr)
def test_a_complaint_is_told_in_the_datasets_indices(indices):
    fetcher = MapFetcher(Ragged(), True, labkit.default_collate)
    with pytest.raises(CollateError, match=r"dataset\[4\] has shape \[4\], dataset\[9\] has"):
        fetcher.fetch(indices)


@pytest.mark.parametrize("kind", [iter, torch.tensor], ids=["iterator", "tensor"])
def test_a_complaint_is_told_whatever_the_indices_are(kind):
    fetcher = MapFetcher(Ragged(), True, labkit.default_collate)
    with pytest.raises(CollateError, match=r"has shape \[4\].*has shape \[9\]"):
        fetcher.fetch(kind([4, 9]))


def test_a_collate_function_of_ones_own_is_not_second_guessed():
    def pick(samples: list[Any]) -> Any:
        return labkit.default_collate(samples[1:])

    with pytest.raises(CollateError, match=r"^stack expects.* batch\[0\].* batch\[1\]"):
        MapFetcher(Ragged(), True, pick).fetch([1, 2, 3])
