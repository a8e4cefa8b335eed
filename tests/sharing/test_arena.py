"""The arena: what it gives out overlaps nothing, comes back, and is given back to the system."""

import ctypes
import gc
import mmap
import multiprocessing
import os
import random
import threading
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import labkit
from labkit.errors import SharedMemoryFull
from labkit.sharing import arena_strategy
from labkit.sharing.arena import Arena, slot_size
from labkit.sharing.segment import Segment
from tests.datasets import Mapped
from tests.scripts import family_of
from tests.sharing import residence

KINDS = {"shared": Segment.create, "private": Segment.private}
MB = 1 << 20


@pytest.fixture(params=KINDS)
def make_segment(request):
    return KINDS[request.param]


# Size classes


@given(st.integers(1, 1 << 40))
def test_a_slot_is_at_most_an_eighth_larger_than_wanted(nbytes):
    size = slot_size(nbytes)
    assert nbytes <= size <= max(64, nbytes + 63, nbytes + nbytes // 8)
    assert size % 64 == 0
    assert slot_size(size) == size


@given(st.integers(10, 35))
def test_an_octave_has_eight_sizes(exponent):
    octave = 1 << exponent
    sizes = {slot_size(octave + octave * k // 1000) for k in range(1, 1001)}
    assert len(sizes) == 8


# The arena against a model


class Model:
    """What is known of one slot: who sees it here, and how many messages with it are out."""

    def __init__(self, memory: ctypes.Array, wanted: int) -> None:
        self.memory: ctypes.Array | None = memory
        self.address, self.nbytes = ctypes.addressof(memory), ctypes.sizeof(memory)
        self.wanted = wanted
        self.lent = 0
        self.key: tuple[int, int] | None = None

    @property
    def in_use(self) -> bool:
        return self.memory is not None or self.lent > 0


class ArenaMachine(RuleBasedStateMachine):
    """Any order of `allocate`, drop, `lend` and `take_back`."""

    sizes = st.sampled_from([1, 64, 65, 1000, 5000, 70_000, 300_000])
    places = st.integers(0, 1000)

    @initialize(kind=st.sampled_from(sorted(KINDS)), limit=st.sampled_from([None, 500_000]))
    def begin(self, kind, limit):
        self.limit = limit
        self.arena = Arena(KINDS[kind], limit)
        self.used: list[Model] = []
        self.most = Counter()  # slots of one size that were in use at once

    def held_bytes(self) -> int:
        return sum(slot.nbytes for slot in self.used)

    @rule(wanted=sizes)
    def allocate(self, wanted):
        size, held = slot_size(wanted), self.held_bytes()
        if self.limit is not None and held + size > self.limit:
            with pytest.raises(SharedMemoryFull) as caught:
                self.arena.allocate(wanted)
            error = caught.value
            assert (error.wanted, error.held, error.free) == (size, held, self.limit - held)
            for number in (size, held, self.limit - held):
                assert f"{number:,}" in str(error)
            assert "arena_limit_bytes" in str(error)
            return
        slot = Model(self.arena.allocate(wanted), wanted)
        assert slot.nbytes == size
        assert slot.address % 64 == 0
        for other in self.used:
            assert slot.address + size <= other.address or other.address + other.nbytes <= (
                slot.address
            )
        self.used.append(slot)
        in_use = sum(other.nbytes == size for other in self.used)
        self.most[size] = max(self.most[size], in_use)

    @precondition(lambda self: self.used)
    @rule(place=places)
    def drop(self, place):
        self.used[place % len(self.used)].memory = None
        self.forget_unused()

    @precondition(lambda self: self.used)
    @rule(place=places)
    def lend(self, place):
        slot = self.used[place % len(self.used)]
        if slot.memory is not None:
            key = self.arena.lend(slot.memory).key
            assert slot.key in (None, key)
            slot.key, slot.lent = key, slot.lent + 1

    @precondition(lambda self: self.used)
    @rule(place=places)
    def take_back(self, place):
        slot = self.used[place % len(self.used)]
        if slot.lent:
            self.arena.take_back([slot.key])
            slot.lent -= 1
            self.forget_unused()

    def forget_unused(self) -> None:
        self.used = [slot for slot in self.used if slot.in_use]

    @invariant()
    def living_memory_is_found_by_its_address(self):
        for slot in self.used:
            assert self.arena.exporter_at(slot.address) is slot.memory

    @invariant()
    def the_report_counts_what_is_used(self):
        for of_size in self.arena.report():
            slots = [slot for slot in self.used if slot.nbytes == of_size.slot_bytes]
            assert of_size.building == sum(slot.memory is not None for slot in slots)
            assert of_size.lent == sum(slot.lent > 0 for slot in slots)
            assert of_size.free == of_size.slots - len(slots)
            assert of_size.slots == self.most[of_size.slot_bytes]  # no more than were ever needed

    def teardown(self):
        if hasattr(self, "arena"):
            self.arena.close()


def test_an_arena_counts_and_gives_out_as_its_model_does():
    run_state_machine_as_test(ArenaMachine, settings=settings(stateful_step_count=40))


def test_an_arena_that_frees_too_early_does_not_pass(monkeypatch):
    def take_back(self, keys):
        for key in keys:
            slot = self._slots[key]
            slot.lent -= 1
            self._classes[slot.nbytes].free.append(slot)  # though it may be used here, or lent

    monkeypatch.setattr(Arena, "take_back", take_back)
    once = settings(max_examples=200, database=None, phases=[Phase.generate], derandomize=True)
    with pytest.raises((AssertionError, Flaky)):
        run_state_machine_as_test(ArenaMachine, settings=once)


def test_threads_never_get_the_same_slot(make_segment):
    """Each stamps its memory, hands it on or keeps it a while, and looks whether it is still so."""
    arena = Arena(make_segment)
    wrong = []

    def work(number: int) -> None:
        choose = random.Random(number)
        mine: list[tuple] = []
        for turn in range(400):
            memory = arena.allocate(choose.choice([8, 100, 5000]))
            stamp = b"%d/%d" % (number, turn)
            memory[: len(stamp)] = stamp
            key = arena.lend(memory).key if choose.random() < 0.5 else None
            mine.append((memory, stamp, key))
            if len(mine) > choose.randrange(20):
                memory, stamp, key = mine.pop(choose.randrange(len(mine)))
                if memory[: len(stamp)] != stamp:
                    wrong.append(stamp)
                if key is not None:
                    arena.take_back([key])
            del memory
        for _, _, key in mine:
            if key is not None:
                arena.take_back([key])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert all(s.free == s.slots and s.building == s.lent == 0 for s in arena.report())
    arena.close()


# Growing and shrinking


@pytest.mark.parametrize("nbytes", [64, 10_000, 300_000])
def test_an_arena_grows_by_doubling(nbytes):
    sizes = []

    def make_segment(size: int) -> Segment:
        sizes.append(size)
        return Segment.private(size)

    arena = Arena(make_segment)
    held = [arena.allocate(nbytes) for _ in range(2000)]
    assert len(sizes) <= 2 + np.log2(2000)
    assert sum(sizes) <= max(2 * 2000 * slot_size(nbytes), 1 << 18)
    for k in range(1, len(sizes)):
        assert sizes[k] == sum(sizes[:k])
    del held


def test_a_slot_that_came_back_is_taken_again_before_the_arena_grows(make_segment):
    arena = Arena(make_segment)
    addresses = {ctypes.addressof(arena.allocate(100_000)) for _ in range(50)}
    assert len(addresses) == 1
    arena.close()


def test_what_a_burst_has_left_is_given_back_to_the_system(make_segment):
    arena = Arena(make_segment)
    burst = [arena.allocate(MB) for _ in range(32)]
    places = [ctypes.addressof(memory) for memory in burst]
    for memory in burst:
        ctypes.memset(memory, 1, MB)
    assert sum(residence.resident(place, MB) for place in places) == 32 * MB
    del burst, memory
    for _ in range(1000):
        ctypes.memset(arena.allocate(MB), 1, MB)
    assert sum(residence.resident(place, MB) for place in places) <= 2 * MB
    assert [s.warm for s in arena.report()] == [1]
    arena.close()


def test_pages_that_another_process_has_locked_are_kept(make_segment):
    arena = Arena(make_segment, keeps_pages=True)
    places = [ctypes.addressof(memory) for memory in [arena.allocate(MB) for _ in range(8)]]
    for place in places:
        ctypes.memset(place, 1, MB)
    for _ in range(1000):
        ctypes.memset(arena.allocate(MB), 1, MB)
    assert sum(residence.resident(place, MB) for place in places) == 8 * MB
    arena.close()


def test_a_segment_is_locked_until_it_is_unmapped_and_its_pages_are_never_discarded():
    class Locker:
        def __init__(self):
            self.calls = []

        def lock_pages(self, address, nbytes):
            self.calls.append(("lock", address, nbytes))
            return nbytes > MB

        def unlock_pages(self, address):
            self.calls.append(("unlock", address))

    locker = Locker()
    small, large = Segment.create(MB), Segment.create(2 * MB)
    assert not small.lock_pages(locker)
    assert large.lock_pages(locker)
    assert (small.is_page_locked, large.is_page_locked) == (False, True)
    memory = large.exporter(0, 2 * MB)
    place = ctypes.addressof(memory)
    ctypes.memset(memory, 1, 2 * MB)
    large.discard(0, 2 * MB)
    assert residence.resident(place, 2 * MB) == 2 * MB
    assert memory[:4] == bytes([1]) * 4
    for segment in (small, large):
        segment.close()
    del small, large, segment
    assert [call[0] for call in locker.calls] == ["lock", "lock"]
    del memory
    assert locker.calls[2:] == [("unlock", place)]


def test_slots_that_are_used_keep_their_bytes_while_others_are_given_back(make_segment):
    arena = Arena(make_segment)
    slots = [arena.allocate(100_000) for _ in range(32)]  # no whole pages: neighbours share some
    for number, memory in enumerate(slots):
        ctypes.memset(memory, number + 1, 100_000)
    kept = slots[::2]
    del slots, memory
    for _ in range(1000):
        ctypes.memset(arena.allocate(100_000), 99, 100_000)
    for number, memory in enumerate(kept):
        assert memory[:100_000] == bytes([2 * number + 1]) * 100_000
    del kept, memory
    arena.close()


# In a loader


def index_of(index: int) -> torch.Tensor:
    return torch.full((100,), index)


def megabytes_of(index: int) -> torch.Tensor:
    return torch.full((4, MB), index % 256, dtype=torch.uint8)


def loader(function=index_of, length=40, **options):
    options = {"batch_size": 4, "num_workers": 2, "sharing_strategy": "arena", **options}
    if options["num_workers"]:
        options.setdefault("multiprocessing_context", "fork")
    return labkit.DataLoader(Mapped(function, length), **options)


def indices_in(batches) -> list[int]:
    return [int(index) for batch in batches for index in batch[:, 0]]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_it_works_under_every_start_method(method):
    with loader(multiprocessing_context=method).__iter__() as batches:
        kept = list(batches)
    assert indices_in(kept) == list(range(40))
    assert all((batch == batch[:, :1]).all() for batch in kept)


def test_persistent_workers_keep_their_segments_and_need_no_more():
    batches = loader(persistent_workers=True)
    mapped = []
    for _ in range(5):
        assert indices_in(batches) == list(range(40))
        mapped.append(residence.mappings())
    assert mapped == [mapped[0]] * 5
    batches.close()


def test_it_works_with_64_workers():
    kept = list(loader(length=640, num_workers=64))
    assert indices_in(kept) == list(range(640))


def test_a_limit_that_kept_batches_meet_is_an_error_that_names_them():
    batches = loader(megabytes_of, batch_size=1, num_workers=1, arena_limit_bytes=20 * MB)
    kept = []
    with pytest.raises(SharedMemoryFull, match="arena_limit_bytes") as caught:
        for batch in batches:
            kept.append(batch)
    error = caught.value
    assert (error.wanted, error.held, error.free) == (4 * MB, 20 * MB, 0)
    assert len(kept) == 5
    assert [int(batch[0, 0, 0]) for batch in kept] == [0, 1, 2, 3, 4]


def test_dropping_batches_keeps_a_loader_within_its_limit():
    assert len([1 for _ in loader(megabytes_of, batch_size=1, arena_limit_bytes=20 * MB)]) == 40


# How often a batch is copied


def unaware(samples):
    return torch.stack(samples)


def aware(samples):
    return torch.stack(samples, out=labkit.empty_shared((len(samples), 100), torch.int64))


@pytest.mark.parametrize(
    ("collate", "copies"), [(None, 0), (aware, 0), (unaware, 10)], ids=["default", "aware", "not"]
)
def test_a_collate_that_builds_in_the_slot_costs_no_copy(monkeypatch, collate, copies):
    counts = multiprocessing.get_context("fork").Array("i", 2)
    as_block, allocate = arena_strategy.as_block, Arena.allocate

    def count_copies(memory, sender):
        block = as_block(memory, sender)
        counts[0] += block is not memory
        return block

    def count_slots(self, nbytes):
        counts[1] += 1
        return allocate(self, nbytes)

    monkeypatch.setattr(arena_strategy, "as_block", count_copies)
    monkeypatch.setattr(Arena, "allocate", count_slots)
    assert indices_in(loader(collate_fn=collate, num_workers=1)) == list(range(40))
    assert list(counts) == [copies, 10]


# What stays the same however long it runs


def usage(pids):
    """Of this process and its workers: descriptors, mappings, bytes."""
    return [
        (residence.descriptors(pid), residence.mappings(pid), residence.resident_bytes(pid))
        for pid in pids
    ]


def assert_flat(function, batches, warm_up, allowed_bytes):
    """Descriptors and mappings do not change, memory by less than `allowed_bytes` a process."""
    iterator = iter(loader(function, length=batches + 1, batch_size=1))
    window = []
    for number in range(batches):
        window = [*window[-2:], next(iterator)]
        if number == warm_up:
            pids = [None, iterator._pool.pid(0), iterator._pool.pid(1)]
            before = usage(pids)
    after = usage(pids)
    iterator.close()
    for (fds, maps, nbytes), (fds_later, maps_later, nbytes_later) in zip(
        before, after, strict=True
    ):
        assert (fds, maps) == (fds_later, maps_later)
        assert nbytes_later - nbytes < allowed_bytes


def test_10000_small_batches_take_no_more_than_the_first():
    assert_flat(index_of, batches=10_000, warm_up=1_000, allowed_bytes=6 * MB)


def test_300_large_batches_take_no_more_than_the_first():
    assert_flat(megabytes_of, batches=300, warm_up=30, allowed_bytes=32 * MB)


def test_a_burst_of_kept_batches_is_given_back_while_the_loader_runs():
    """300 batches of 1 MB are held at once, then two at a time: their memory goes back."""
    iterator = iter(loader(lambda i: torch.full((1, MB), i % 256, dtype=torch.uint8), 5000,
                           batch_size=1))  # fmt: skip
    burst = [next(iterator) for _ in range(300)]
    assert residence.shared_resident() >= 300 * MB
    del burst
    for _ in range(2 * 3 * 256):  # two workers that sweep every 256 allocations
        next(iterator)
    assert residence.shared_resident() <= 16 * MB
    iterator.close()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_when_all_is_dropped_its_memory_is_gone_at_once(num_workers):
    gc.disable()  # no cycle of references keeps it until a collection
    try:
        before, mapped = residence.resident_bytes(), residence.shared_mappings()
        batches = loader(megabytes_of, num_workers=num_workers)
        kept = list(batches)
        assert sum(int(batch.sum()) for batch in kept) > 0  # reads all pages
        assert residence.resident_bytes() - before >= 100 * MB
        del kept, batches
        assert residence.shared_mappings() == mapped
        residence.trim_malloc()  # which keeps what the samples had
        assert residence.resident_bytes() - before < 32 * MB
    finally:
        gc.enable()


def test_of_loaders_that_ended_only_the_kept_batches_stay():
    """The same variable is bound anew, as a cell that is run again does; each last batch kept."""
    before, family = len(residence.shared_mappings()), family_of(os.getpid())
    last = []
    for _ in range(5):
        batches = loader(megabytes_of, batch_size=1, length=12, persistent_workers=True)
        *_, batch = batches
        last.append(batch)
        del _, batch
    del batches
    assert family_of(os.getpid()) == family
    assert residence.shared_resident() == 5 * 4 * MB
    assert [int(batch[0, 0, 0]) for batch in last] == [11] * 5
    del last[1:]
    assert residence.shared_resident() == 4 * MB
    assert len(residence.shared_mappings()) - before == 1


NEEDS = {  # of one kept view: (descriptors, mappings)
    "arena": (1, 1),
    "file_descriptor": (1, 1),
    "file_system": (0, 1),
    "copy": (0, 0),
}


@pytest.mark.parametrize("strategy", sorted(NEEDS))
def test_of_a_kept_view_stays_what_it_needs_and_no_more(strategy):
    fds, maps = residence.descriptors(), len(residence.shared_mappings())
    iterator = iter(
        loader(sample_with_two_arrays, length=640, batch_size=64, sharing_strategy=strategy)
    )
    kept = next(iterator)["d1"].numpy()
    iterator.close()
    del iterator
    assert (kept == np.arange(64)[:, None, None]).all()
    assert residence.descriptors() - fds == NEEDS[strategy][0]
    assert len(residence.shared_mappings()) - maps == NEEDS[strategy][1]
    assert residence.shared_resident() <= slot_size(kept.nbytes) + 2 * mmap.PAGESIZE


def sample_with_two_arrays(index):
    return {"d1": np.full((50, 2), float(index)), "d2": np.zeros((500, 20))}
