"""`labkit.lab.copies`: how often a byte is written, from what the system and torch tell."""

import ctypes
import os
from collections import namedtuple

import numpy as np
import pytest
import torch
import torch.utils.data
from torch.nn.utils.rnn import pad_sequence

import labkit
from labkit.lab.copies import Writes, follow, place_of
from labkit.lab.stacking import COLLATES, stack, stack_into_shared
from labkit.sharing import Segment, building_in, make_sender

SAMPLES = [torch.full((100,), float(i)) for i in range(4)]
PAIR = namedtuple("PAIR", "x y")


@pytest.mark.parametrize("strategy", ["arena", "file_descriptor", "file_system"])
def test_labkits_default_and_shm_aware_collate_write_each_byte_once(strategy):
    for collate_fn in (None, stack_into_shared):
        found = follow(labkit.DataLoader, SAMPLES, collate_fn, sharing_strategy=strategy)
        assert (found.times, found.built_in_shared, found.is_same_memory) == (1, True, True)
        assert found.batch_bytes == found.collate_bytes == 4 * 100 * 4


@pytest.mark.parametrize("strategy", ["arena", "file_descriptor", "copy"])
def test_a_naive_collate_writes_each_byte_twice(strategy):
    found = follow(labkit.DataLoader, SAMPLES, stack, sharing_strategy=strategy)
    assert (found.by_collate, found.times) == (1, 2)
    assert not found.built_in_shared
    assert not found.is_same_memory


def test_pytorchs_default_collate_writes_once_and_every_other_twice():
    times = [follow(torch.utils.data.DataLoader, SAMPLES, fn).times for fn in COLLATES.values()]
    assert times == [1, 2, 2]


def test_a_batch_that_is_built_in_one_shared_memory_and_received_in_another_was_copied():
    def moved(samples):
        return torch.stack(samples).share_memory_()

    found = follow(labkit.DataLoader, SAMPLES, moved)
    assert found.built_in_shared
    assert not found.is_same_memory
    assert found.times == 3  # stacked, moved by PyTorch, copied by the pickler


@pytest.mark.parametrize("loader", [labkit.DataLoader, torch.utils.data.DataLoader])
def test_without_a_worker_nothing_is_copied(loader):
    found = follow(loader, SAMPLES, num_workers=0, multiprocessing_context=None)
    assert (found.times, found.built_in_shared, found.is_same_memory) == (1, False, True)
    assert str(found) == "collate writes 1× into private memory, received there: 1× in all"


def test_what_torch_does_not_see_is_not_told_as_nothing():
    def by_numpy(samples):
        return torch.from_numpy(np.stack([sample.numpy() for sample in samples]))

    found = follow(labkit.DataLoader, SAMPLES, by_numpy)
    assert "writes at least 0× (that torch sees) into private" in str(found)
    assert str(found).endswith("copied once more: at least 1× in all")


def test_padding_is_written_too_and_lists_tuples_and_dicts_are_looked_into():
    ragged = [torch.ones(n) for n in (1, 3)]

    def padded(samples):
        return {"x": [pad_sequence(samples, batch_first=True)], "y": (torch.ones(2),)}

    found = follow(labkit.DataLoader, ragged, padded)
    assert found.batch_bytes == 4 * (6 + 2)
    assert found.collate_bytes == 4 * (6 + 4 + 2)
    assert "2.5× in all" in str(found)


def test_a_batch_without_tensors_cannot_be_counted():
    with pytest.raises(ValueError, match="has no tensor whose bytes"):
        follow(labkit.DataLoader, ["a", "b"])


def test_one_memory_has_one_place_in_every_mapping_and_private_memory_has_none():
    segment = Segment.create(8192)
    one = segment.exporter(4096, 100)
    again = Segment(os.dup(segment.fd), 8192)
    two = again.exporter(0, 8192)
    place = place_of(ctypes.addressof(one))
    assert place.is_shared
    assert place == place_of(ctypes.addressof(two) + 4096)
    assert place != place_of(ctypes.addressof(two))
    assert not place_of(torch.ones(3).data_ptr()).is_shared
    assert not place_of(ctypes.addressof(Segment.private(4096).exporter(0, 10))).is_shared
    with pytest.raises(ValueError, match="nothing is mapped at 0x0"):
        place_of(0)
    segment.close()
    again.close()


def test_operations_write_their_new_results_and_what_they_change_and_views_write_nothing():
    base, source = torch.zeros(10), torch.ones(4)
    for operation, nbytes in (
        (lambda: base[2:6].view(2, 2).t(), 0),
        (lambda: base[:4].copy_(source), 16),
        (lambda: base.fill_(3), 40),
        (lambda: torch.stack([source, source]), 32),
        (lambda: torch.stack([source, source], out=torch.empty(2, 4)), 32),
        (lambda: torch.empty(100), 0),
        (lambda: torch._foreach_copy_([base[:4], base[4:8]], [source, source]), 32),
        (lambda: torch.split(base, 5), 0),
        (lambda: torch.aminmax(base), 8),
    ):
        with Writes() as writes:
            operation()
        assert writes.nbytes == nbytes


def test_what_is_written_elsewhere_is_told_apart():
    sender = make_sender("arena")
    with building_in(sender.allocate), Writes() as writes:
        batch = stack_into_shared(SAMPLES)
    assert writes.outside(batch) == 0
    with building_in(sender.allocate), Writes() as writes:
        batch = labkit.empty_shared((4, 100)).copy_(stack(SAMPLES))
    assert writes.outside(batch) == batch.nbytes
    sender.close()
