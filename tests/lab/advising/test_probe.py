"""What samples and a batch are like is known before anything else runs; what is wrong is told."""

import dataclasses

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset

import labkit
from labkit.lab.advising.contents import bytes_of, kinds_of
from labkit.lab.advising.probe import probe
from labkit.lab.advising.subject import NoAdvice, subject_of
from tests.lab.advising import samples
from tests.lab.advising.samples import Computing, Plain, Sleeping, Thing

ROOM = 10**9


def test_bytes_and_kinds_of_a_batch_are_those_of_all_its_parts():
    @dataclasses.dataclass
    class Pair:
        image: torch.Tensor
        label: np.ndarray

    batch = {"pair": Pair(torch.zeros(4, 5), np.zeros(4, np.int16)), "list": [torch.zeros(2)]}
    assert bytes_of(batch) == 80 + 8 + 8
    assert list(kinds_of(batch)) == [
        "tensor (4, 5) float32",
        "array (4,) int16",
        "tensor (2,) float32",
    ]
    assert bytes_of([Thing()]) > 0


def test_a_probe_knows_the_batch():
    found = probe(subject_of(Plain(200), batch_size=8), ROOM, seconds=1)
    assert (found.batch_bytes, found.batch_samples, found.batches) == (320, 8, 25)
    found = probe(subject_of(samples.Endless(), batch_size=4), ROOM, seconds=0.01)
    assert (found.batch_bytes, found.batch_samples, found.batches) == (160, 4, None)
    found = probe(subject_of(labkit.DataLoader(Plain(3), batch_size=None)), ROOM, seconds=1)
    assert (found.batch_bytes, found.batch_samples, found.batches) == (40, 1, 3)


def test_waiting_and_computing_are_told_apart():
    waits = probe(subject_of(Sleeping(), batch_size=8), ROOM, seconds=5)
    computes = probe(subject_of(Computing(), batch_size=8), ROOM, seconds=5)
    assert waits.core_share < 0.5 < computes.core_share
    assert waits.sample_seconds >= 0.005


class NoIterator(IterableDataset):
    def __iter__(self):
        return None


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (NoIterator(), "raised TypeError for iter(dataset): iter() returned non-iterator"),
        (samples.Broken(18), "raised ValueError for index 17: cannot read image 17"),
        (samples.Ragged(), "dataset["),
        (samples.Ragged(), "--collate module:function"),
        (samples.Things(), "found <class 'tests.lab.advising.samples.Thing'>"),
        ([None] * 4, "returned None, which cannot be collated"),
    ],
)
def test_a_dataset_that_gives_no_batch_is_told_what_to_mend(dataset, words):
    with pytest.raises(NoAdvice) as raised:
        probe(subject_of(dataset), ROOM, seconds=1)
    assert words in str(raised.value)


def test_a_batch_that_takes_too_much_memory_is_told_before_any_worker_has_one():
    subject = subject_of(Plain(200, width=25_000), batch_size=10)
    assert probe(subject, 4_000_000, seconds=1).batch_bytes == 1_000_000
    with pytest.raises(NoAdvice, match=r"a batch takes 1 MB, and with a worker 4 of them"):
        probe(subject, 3_999_999, seconds=1)


def test_a_dataset_too_small_for_a_full_batch_is_told():
    with pytest.raises(NoAdvice, match="no batch is full"):
        probe(subject_of(labkit.DataLoader([1, 2], batch_size=3, drop_last=True)), ROOM, 1)
