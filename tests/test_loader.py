"""DataLoader's arguments: what is refused and with which words, what can be read and set."""

import inspect
import multiprocessing
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import (
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    TensorDataset,
)
from torch.utils.data import default_collate as torch_default_collate
from torch.utils.data import default_convert as torch_default_convert

import labkit
from tests.datasets import Samples, ShardedStream, SizedStream, Stream

MAP = Samples(8)
STREAM = Stream(8)
ORDER = SequentialSampler(MAP)
BATCHES = [[0, 1], [2, 3]]

# id: (error, dataset, arguments, what the message names, what it says to write instead)
REFUSED: dict[str, tuple[type[Exception], Any, dict[str, Any], str, str]] = {
    "prefetch_factor=0": (
        ValueError, MAP, {"num_workers": 1, "prefetch_factor": 0},
        "prefetch_factor", "at least 1",
    ),
    "prefetch_factor=-1": (
        ValueError, MAP, {"num_workers": 1, "prefetch_factor": -1},
        "prefetch_factor", "at least 1",
    ),
    "prefetch_factor=1.5": (
        TypeError, MAP, {"num_workers": 1, "prefetch_factor": 1.5},
        "prefetch_factor", "int",
    ),
    "prefetch_factor without workers": (
        ValueError, MAP, {"prefetch_factor": 2},
        "prefetch_factor", "num_workers > 0",
    ),
    "persistent_workers without workers": (
        ValueError, MAP, {"persistent_workers": True},
        "persistent_workers", "num_workers > 0",
    ),
    "timeout without workers": (
        ValueError, MAP, {"timeout": 1},
        "timeout", "num_workers > 0",
    ),
    "timeout=-1": (
        ValueError, MAP, {"num_workers": 1, "timeout": -1},
        "timeout", "write 0",
    ),
    "num_workers=-1": (
        ValueError, MAP, {"num_workers": -1},
        "num_workers", "num_workers=0",
    ),
    "num_workers=1.5": (
        TypeError, MAP, {"num_workers": 1.5},
        "num_workers", "num_workers=2",
    ),
    "num_workers='2'": (
        TypeError, MAP, {"num_workers": "2"},
        "num_workers", "num_workers=2",
    ),
    "batch_sampler with batch_size": (
        ValueError, MAP, {"batch_sampler": BATCHES, "batch_size": 2},
        "batch_size", "leave those out",
    ),
    "batch_sampler with shuffle": (
        ValueError, MAP, {"batch_sampler": BATCHES, "shuffle": True},
        "shuffle", "leave those out",
    ),
    "batch_sampler with sampler": (
        ValueError, MAP, {"batch_sampler": BATCHES, "sampler": ORDER},
        "sampler", "leave those out",
    ),
    "batch_sampler with drop_last": (
        ValueError, MAP, {"batch_sampler": BATCHES, "drop_last": True},
        "drop_last", "leave those out",
    ),
    "batch_size=None with drop_last": (
        ValueError, MAP, {"batch_size": None, "drop_last": True},
        "drop_last", "set a batch_size",
    ),
    "batch_size=0": (
        ValueError, MAP, {"batch_size": 0},
        "batch_size", "positive",
    ),
    "batch_size=1.5": (
        ValueError, MAP, {"batch_size": 1.5},
        "batch_size", "integer",
    ),
    "batch_size=0, iterable": (
        ValueError, STREAM, {"batch_size": 0},
        "batch_size", "positive",
    ),
    "sampler with shuffle": (
        ValueError, MAP, {"sampler": ORDER, "shuffle": True},
        "shuffle", "leave shuffle out",
    ),
    "iterable with shuffle": (
        ValueError, STREAM, {"shuffle": True},
        "shuffle", "leave shuffle out",
    ),
    "iterable with sampler": (
        ValueError, STREAM, {"sampler": ORDER},
        "sampler", "leave sampler out",
    ),
    "iterable with batch_sampler": (
        ValueError, STREAM, {"batch_sampler": BATCHES},
        "batch_sampler", "leave batch_sampler out",
    ),
    "empty dataset with shuffle": (
        ValueError, Samples(0), {"shuffle": True},
        "dataset is empty", "shuffle=False",
    ),
    "unknown start method": (
        ValueError, MAP, {"num_workers": 1, "multiprocessing_context": "thread"},
        "multiprocessing_context", "'spawn'",
    ),
    "a context that is none": (
        TypeError, MAP, {"num_workers": 1, "multiprocessing_context": 3},
        "multiprocessing_context", "start method",
    ),
    "multiprocessing_context without workers": (
        ValueError, MAP, {"multiprocessing_context": "spawn"},
        "multiprocessing_context", "num_workers > 0",
    ),
    "unknown sharing strategy": (
        ValueError, MAP, {"num_workers": 1, "sharing_strategy": "telepathy"},
        "sharing_strategy", "'copy'",
    ),
    "unknown sharing strategy without workers": (
        ValueError, MAP, {"sharing_strategy": "telepathy"},
        "sharing_strategy", "'copy'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_bad_arguments_are_refused_with_what_to_write_instead(case, capfd):
    """Arguments: refused at construction, and nothing on stderr."""
    error, dataset, arguments, name, way_out = REFUSED[case]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(error) as caught:
            labkit.DataLoader(dataset, **arguments)
    assert name in str(caught.value)
    assert way_out in str(caught.value)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "name", ["batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"]
)
def test_what_decides_on_the_batches_cannot_be_set_later(name):
    """Arguments: setting batch_size, sampler, dataset … after construction."""
    loader = labkit.DataLoader(MAP)
    with pytest.raises(ValueError, match=f"{name} .*make a new loader"):
        setattr(loader, name, getattr(loader, name))


@pytest.mark.parametrize("name", ["num_workers", "timeout", "collate_fn", "generator"])
def test_what_pytorch_lets_be_set_later_can_be_set(name):
    loader = labkit.DataLoader(MAP)
    setattr(loader, name, getattr(loader, name))


def test_an_unknown_strategy_cannot_be_made_the_default():
    before = labkit.get_sharing_strategy()
    with pytest.raises(ValueError, match="'copy'"):
        labkit.set_sharing_strategy("telepathy")
    assert labkit.get_sharing_strategy() == before


def test_arguments_have_pytorchs_names_order_and_defaults():
    ours = inspect.signature(labkit.DataLoader).parameters
    theirs = inspect.signature(TorchDataLoader).parameters
    assert list(ours)[: len(theirs)] == list(theirs)
    for name in theirs:
        assert ours[name].default == theirs[name].default, name
        assert ours[name].kind == theirs[name].kind, name
    own = [parameter for name, parameter in ours.items() if name not in theirs]
    assert {parameter.kind for parameter in own} == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"batch_size": 3},
        {"batch_size": None},
        {"batch_size": 3, "drop_last": True},
        {"shuffle": True},
        {"batch_sampler": BATCHES},
        {"num_workers": 1},
        {"num_workers": 1, "prefetch_factor": 5, "persistent_workers": True},
        {"num_workers": 1, "timeout": 3.5},
        {"pin_memory": True, "pin_memory_device": "cuda"},
    ],
    ids=str,
)
def test_attributes_read_as_pytorchs(arguments):
    ours, theirs = labkit.DataLoader(MAP, **arguments), TorchDataLoader(MAP, **arguments)
    for name in (
        "dataset", "batch_size", "drop_last", "num_workers", "prefetch_factor", "timeout",
        "persistent_workers", "pin_memory", "pin_memory_device", "in_order", "generator",
        "worker_init_fn", "multiprocessing_context",
    ):  # fmt: skip
        assert getattr(ours, name) == getattr(theirs, name), name
    for name in ("sampler", "batch_sampler"):
        assert type(getattr(ours, name)) is type(getattr(theirs, name)), name
    assert len(ours) == len(theirs)


def test_integers_may_be_numpys_as_in_pytorch():
    loader = labkit.DataLoader(
        MAP, batch_size=2, num_workers=np.int64(1), prefetch_factor=np.int64(2)
    )
    assert len(list(loader)) == 4


def test_a_context_can_be_given_as_an_object():
    context = multiprocessing.get_context("fork")
    loader = labkit.DataLoader(MAP, 4, num_workers=1, multiprocessing_context=context)
    assert loader.multiprocessing_context is context
    assert len(list(loader)) == 2


def test_more_workers_than_cores_are_warned_of_in_the_users_line():
    with pytest.warns(UserWarning, match="will create 4096 worker processes") as caught:
        labkit.DataLoader(MAP, num_workers=4096)
    assert [warning.filename for warning in caught] == [__file__]


def test_the_generic_alias_can_be_written():
    """A loader's type names its batches: `DataLoader[Batch]`."""
    loader: labkit.DataLoader[int] = labkit.DataLoader[int](MAP, batch_size=None)
    assert list(loader) == list(range(8))
    assert inspect.signature(labkit.DataLoader[torch.Tensor]) is not None


def test_a_subclass_may_have_attributes_and_arguments_of_its_own():
    class Loader(labkit.DataLoader):
        def __init__(self, dataset, name, **arguments):
            self.name = name
            super().__init__(dataset, **arguments)

        def __iter__(self):
            return map(self.named, super().__iter__())

        def named(self, batch):
            return self.name, batch

    loader = Loader(MAP, "train", batch_size=None, num_workers=1)
    assert list(loader) == [("train", i) for i in range(8)]


@pytest.mark.parametrize("ours", [labkit.default_collate, torch_default_collate, None])
def test_pytorchs_default_collate_is_ours(ours):
    loader = labkit.DataLoader(MAP, collate_fn=ours)
    assert loader.collate_fn is labkit.default_collate


@pytest.mark.parametrize("ours", [labkit.default_convert, torch_default_convert, None])
def test_pytorchs_default_convert_is_ours(ours):
    loader = labkit.DataLoader(MAP, batch_size=None, collate_fn=ours)
    assert loader.collate_fn is labkit.default_convert


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("length", [0, 1, 4, 9])
def test_the_length_is_the_number_of_batches(length, drop_last, num_workers):
    loader = labkit.DataLoader(
        Samples(length), batch_size=4, drop_last=drop_last, num_workers=num_workers
    )
    assert len(loader) == len(list(loader)) == len(iter(loader))


@pytest.mark.parametrize("arguments", [{}, {"batch_size": 3}, {"batch_size": None}], ids=str)
def test_the_length_of_an_iterable_dataset_is_pytorchs_guess(arguments):
    ours, theirs = (
        loader(SizedStream(8), **arguments) for loader in (labkit.DataLoader, TorchDataLoader)
    )
    assert len(ours) == len(theirs)


def test_a_dataset_without_a_length_gives_a_loader_without_one():
    with pytest.raises(TypeError):
        len(labkit.DataLoader(STREAM))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_warning_about_an_iterable_datasets_length_counts_samples(num_workers):
    """PyTorch compares the number of batches with that of samples, and warns too late."""

    class Understated(ShardedStream):
        def __len__(self):
            return 4

    loader = labkit.DataLoader(Understated(8), batch_size=2, num_workers=num_workers)
    assert len(loader) == 2
    batches = iter(loader)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        next(batches), next(batches)
    with pytest.warns(UserWarning, match=r"reported to be 4.*but 6 samples have been fetched"):
        next(batches)
    with pytest.warns(UserWarning, match="but 8 samples"):
        next(batches)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_iterable_dataset_that_keeps_its_word_is_not_warned_of(num_workers):
    class Exact(ShardedStream):
        def __len__(self):
            return self.length

    loader = labkit.DataLoader(Exact(9), batch_size=2, num_workers=num_workers)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        len(loader)
        assert sum(len(batch) for batch in loader) == 9


def test_a_loader_can_be_pickled_while_it_has_workers():
    loader = labkit.DataLoader(MAP, 4, num_workers=1, persistent_workers=True)
    next(iter(loader))
    again = pickle.loads(pickle.dumps(loader))
    assert [batch.tolist() for batch in again] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    again.close()
    loader.close()


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_iterator_cannot_be_pickled_and_says_what_can(num_workers):
    iterator = iter(labkit.DataLoader(MAP, num_workers=num_workers))
    with pytest.raises(TypeError, match="pickle the DataLoader"):
        pickle.dumps(iterator)
    iterator.close()


def test_shuffle_draws_anew_each_epoch():
    loader = labkit.DataLoader(Samples(100), batch_size=None, shuffle=True)
    one, other = list(loader), list(loader)
    assert one != other
    assert sorted(one) == sorted(other) == list(range(100))
    assert isinstance(loader.sampler, RandomSampler)


def test_a_sampler_may_yield_anything_the_dataset_understands():
    words = {"a": 1, "b": 2}

    class Words(Sampler[str]):
        def __iter__(self):
            return iter("abba")

    loader = labkit.DataLoader(words, batch_size=2, sampler=Words(), num_workers=1)
    assert [batch.tolist() for batch in loader] == [[1, 2], [2, 1]]


def test_pinning_without_an_accelerator_is_said_and_left_out():
    if torch.accelerator.is_available():
        pytest.skip("there is an accelerator: what it does is tested with it")
    loader = labkit.DataLoader(TensorDataset(torch.arange(4.0)), 2, pin_memory=True)
    with pytest.warns(UserWarning, match="no accelerator is found"):
        batches = list(loader)
    assert not batches[0][0].is_pinned()


def test_an_iterable_dataset_is_known_by_its_class():
    class OnlyIterable:
        def __iter__(self):
            return iter(range(3))

    with pytest.raises(TypeError):
        list(labkit.DataLoader(OnlyIterable()))
    assert isinstance(STREAM, IterableDataset)
