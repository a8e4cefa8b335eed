"""A loader's arguments are the starting point; what is no dataset is refused in words."""

import pytest
import torch.utils.data
from torch.utils.data import RandomSampler, TensorDataset, WeightedRandomSampler

import labkit
from labkit.lab.advising.setting import Setting
from labkit.lab.advising.subject import NoAdvice, subject_of
from tests.lab.advising.samples import Endless, Plain, stacked

dataset = Plain()


def test_a_bare_dataset_is_shuffled_in_batches_of_32_without_workers():
    subject = subject_of(dataset)
    assert subject.is_bare
    assert subject.current == Setting()
    assert subject.line(Setting()) == "labkit.DataLoader(dataset, batch_size=32, shuffle=True)"


@pytest.mark.parametrize("make", [torch.utils.data.DataLoader, labkit.DataLoader])
def test_a_loaders_arguments_are_where_it_starts_from(make):
    loader = make(
        dataset,
        batch_size=16,
        shuffle=True,
        num_workers=1,
        collate_fn=stacked,
        drop_last=True,
        prefetch_factor=3,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    subject = subject_of(loader)
    current = subject.current
    assert (current.num_workers, current.prefetch_factor, current.method) == (1, 3, "spawn")
    assert current.persistent_workers
    assert subject.has_own_collate
    line = subject.line(current)
    assert line == (
        f"{make.__module__.removesuffix('.dataloader').removesuffix('.loader')}.DataLoader("
        "dataset, batch_size=16, shuffle=True, drop_last=True, collate_fn=stacked, num_workers=1, "
        "prefetch_factor=3, multiprocessing_context='spawn', persistent_workers=True)"
    )
    again = eval(line, {"labkit": labkit, "torch": torch, "dataset": dataset, "stacked": stacked})
    assert isinstance(again.sampler, RandomSampler)
    assert subject_of(again).current == current


@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        ({"sampler": WeightedRandomSampler([1.0] * 200, 50)}, "sampler=sampler"),
        ({"batch_sampler": [[0, 1], [2]]}, "batch_sampler=batch_sampler"),
        ({"batch_size": None}, "batch_size=None"),
        ({"batch_size": 4, "worker_init_fn": print}, "worker_init_fn=print"),
    ],
)
def test_what_decides_on_the_batches_stays(arguments, written):
    loader = labkit.DataLoader(dataset, **arguments)
    subject = subject_of(loader)
    assert written in subject.line(subject.current)
    again = subject.loader(Setting())
    assert again.batch_size == loader.batch_size
    assert len(again) == len(loader)


def test_an_iterable_dataset_keeps_its_order():
    subject = subject_of(Endless(), batch_size=4)
    assert next(iter(subject.loader(Setting()))).shape == (4, 10)
    assert "shuffle" not in subject.line(Setting())


class NoLength:
    def __getitem__(self, index):
        return index


class NoDisk(Plain):
    def __len__(self):
        raise OSError("no disk")


class Minus(Plain):
    def __len__(self):
        return -3


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (5, "a int is no dataset: give an object with __getitem__"),
        ("images", "a str is no dataset"),
        (Plain, "Plain is a class: give an object of it, such as Plain(…)"),
        (iter([1]), "can be run through once only"),
        ([], "the dataset is empty"),
        (NoLength(), "has no __len__: add one"),
        (NoDisk(3), "raised OSError: no disk. Let its __len__ return"),
        (Minus(3), "raised ValueError: __len__() should return >= 0. Let its __len__ return"),
        (labkit.Preloader(labkit.DataLoader(dataset)), "advise(preloader.loader)"),
        (labkit.DataLoader(TensorDataset(torch.ones(0))), "the dataset is empty"),
    ],
)
def test_what_is_no_dataset_is_refused_with_what_to_give(data, words):
    with pytest.raises(NoAdvice) as raised:
        subject_of(data)
    assert words in str(raised.value)


def test_a_loader_with_another_batch_size_is_refused():
    with pytest.raises(NoAdvice, match="a loader has its batch_size"):
        subject_of(labkit.DataLoader(dataset, batch_size=4), batch_size=8)
    with pytest.raises(NoAdvice, match="batch_size is a whole number of 1 or more"):
        subject_of(dataset, batch_size=0)
    with pytest.raises(NoAdvice, match="give a function that makes a batch"):
        subject_of(dataset, collate_fn="pad")
