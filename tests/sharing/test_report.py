"""`labkit.sharing.report()`: what is held, for how long, and by whom."""

import gc
import re
import time

import pytest
import torch

import labkit
from labkit.sharing import report
from labkit.sharing.arena import slot_size
from tests.datasets import Mapped

BATCH_BYTES = 4 * 100_000


def image(index):
    return torch.full((100_000,), index, dtype=torch.uint8)


def loader(num_workers=1, length=400):
    method = "fork" if num_workers else None
    return labkit.DataLoader(
        Mapped(image, length),
        batch_size=4,
        num_workers=num_workers,
        multiprocessing_context=method,
        sharing_strategy="arena",
    )


@pytest.fixture(autouse=True)
def no_cycle_keeps_an_arena_of_another_test():
    gc.collect()


def test_without_a_loader_there_is_nothing_to_report():
    assert report().workers == report().own == []
    assert str(report()) == "no arena is in use in this process"
    assert report().held_bytes == 0


def test_held_batches_show_with_their_bytes_and_dropping_them_empties_it():
    iterator = iter(loader())
    kept = [next(iterator) for _ in range(5)]
    (worker,) = report().workers
    assert len(worker.held) >= 5  # and those that have come and are not taken yet
    assert {slot.nbytes for slot in worker.held} == {slot_size(BATCH_BYTES)}
    assert worker.held_bytes == len(worker.held) * slot_size(BATCH_BYTES) == report().held_bytes
    assert worker.mapped_bytes >= worker.held_bytes
    iterator.close()
    assert len(report().workers[0].held) == 5  # the loader is gone, they are not
    del kept
    assert report().workers == []


def test_the_report_says_which_slot_of_which_segment_a_batch_lies_in():
    iterator = iter(loader())
    kept = [next(iterator) for _ in range(4)]
    (worker,) = report().workers
    address = {slot.address: slot for slot in worker.held}
    slots = [address[batch.data_ptr()] for batch in kept]
    assert len({slot.key for slot in slots}) == 4
    for segment, offset in (slot.key for slot in slots):
        assert offset + slot_size(BATCH_BYTES) <= worker.segment_bytes[segment]
    iterator.close()


def test_a_dropped_batch_is_on_its_way_back_until_the_worker_has_its_next_task():
    iterator = iter(loader())
    kept = [next(iterator) for _ in range(3)]
    keys = {slot.address: slot.key for slot in report().workers[0].held}
    key = keys[kept[0].data_ptr()]
    assert report().workers[0].returning == []
    del kept[0]
    assert report().workers[0].returning == [key]
    assert key not in [slot.key for slot in report().workers[0].held]
    kept.append(next(iterator))
    assert report().workers[0].returning == []
    iterator.close()


def test_a_view_keeps_its_batch_in_the_report():
    iterator = iter(loader())
    view = next(iterator)[0, :1].numpy()
    iterator.close()
    assert [slot.nbytes for slot in report().workers[0].held] == [slot_size(BATCH_BYTES)]
    del view
    assert report().held_bytes == 0


def test_the_age_of_a_held_batch_grows_and_the_oldest_comes_first():
    iterator = iter(loader())
    first = next(iterator)
    time.sleep(0.2)
    later = next(iterator)
    ages = [slot.held_seconds for slot in report().workers[0].held]
    assert ages == sorted(ages, reverse=True)
    assert ages[0] >= 0.2
    time.sleep(0.1)
    assert report().workers[0].held[0].held_seconds >= ages[0] + 0.1
    del first, later
    iterator.close()


def test_each_worker_has_its_line_and_its_name():
    iterator = iter(loader(num_workers=2))
    kept = [next(iterator), next(iterator)]
    text = str(report())
    assert re.fullmatch(
        r"worker 0 \(pid \d+\): \d+ segments, [\d.]+ MB mapped, \d+ slots held with [\d.]+ MB, "
        r"the oldest for \d\.\d s\n"
        r"worker 1 \(pid \d+\): .*",
        text,
    )
    for number, worker in enumerate(report().workers):
        assert worker.worker == f"worker {number} (pid {iterator._pool.pid(number)})"
    del kept
    iterator.close()


def test_the_arena_of_this_process_shows_without_workers():
    batches = loader(num_workers=0)
    kept = [batch for _, batch in zip(range(3), batches, strict=False)]
    (own,) = report().own
    assert own.slot_bytes == slot_size(BATCH_BYTES)
    assert (own.building, own.lent) == (3, 0)
    assert report().held_bytes == 3 * slot_size(BATCH_BYTES)
    assert re.fullmatch(r"this process: \d slots of 0\.4 MB, 3 held, \d free, \d in memory",
                        str(report()))  # fmt: skip
    del kept
    (own,) = report().own
    assert (own.building, own.free) == (0, own.slots)
    assert report().held_bytes == 0
    del batches


def test_a_report_holds_nothing_itself():
    iterator = iter(loader())
    batch = next(iterator)
    kept_report = report()
    iterator.close()
    del batch
    assert kept_report.held_bytes > 0
    assert report().held_bytes == 0
