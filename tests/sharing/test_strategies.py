"""What every sharing strategy promises, on memory alone, and which strategies there are."""

import ctypes
import gc
import os
import pickle
import socket
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import labkit
import labkit.sharing as sharing
from labkit.sharing import building_in, empty_shared, make_receiver, make_sender
from labkit.sharing.strategies import Parcel
from tests import leftovers

STRATEGIES = sorted(labkit.get_all_sharing_strategies())
SHARED = sorted({*STRATEGIES} - {"copy"})


class Ends:
    """Both ends of a strategy, and the way between them."""

    def __init__(self, strategy: str) -> None:
        self.sender, self.receiver = make_sender(strategy), make_receiver(strategy)

    def post(self, memory):
        """(handle as it is pickled, descriptors as they arrive)."""
        parcel = Parcel()
        handle = pickle.dumps(self.sender.handle(memory, parcel), protocol=5)
        return handle, [os.dup(fd) for fd in parcel.fds]

    def open(self, handle, fds):
        memory = self.receiver.open(pickle.loads(handle), fds)
        assert fds == []
        return memory

    def __enter__(self) -> "Ends":
        return self

    def __exit__(self, *exc_info) -> None:
        self.sender.close()
        self.receiver.close(os.getpid())
        del self.sender, self.receiver  # which an arena's segments live as long as


@pytest.fixture(params=STRATEGIES)
def ends(request):
    with Ends(request.param) as ends:
        yield ends


@pytest.fixture(params=SHARED)
def shared_ends(request):
    with Ends(request.param) as ends:
        yield ends


def test_a_block_has_at_least_the_bytes_that_were_asked_for(ends):
    for nbytes in (1, 63, 64, 65, 4096, 100_000):
        assert ctypes.sizeof(ends.sender.allocate(nbytes)) >= nbytes


def test_what_was_written_into_a_block_arrives(ends):
    block = ends.sender.allocate(10)
    block[:10] = b"0123456789"
    assert ends.open(*ends.post(block))[:10] == b"0123456789"


def test_memory_that_is_no_block_is_copied(ends):
    memory = ctypes.create_string_buffer(b"0123456789", 10)
    handle, fds = ends.post(memory)
    memory[:] = b"----------"
    assert ends.open(handle, fds)[:10] == b"0123456789"


def test_the_receiver_sees_the_block_itself(shared_ends):
    block = shared_ends.sender.allocate(4)
    block[:4] = b"old!"
    seen = shared_ends.open(*shared_ends.post(block))
    block[:4] = b"new!"
    assert seen[:4] == b"new!"
    seen[:4] = b"back"
    assert block[:4] == b"back"


def test_a_block_is_known_by_its_address_while_it_lives(shared_ends):
    block = shared_ends.sender.allocate(100)
    address = ctypes.addressof(block)
    assert shared_ends.sender.block_at(address) is block
    assert shared_ends.sender.block_at(address + 1) is None
    del block
    assert shared_ends.sender.block_at(address) is None


def test_a_block_may_be_sent_twice(ends):
    block = ends.sender.allocate(3)
    block[:3] = b"abc"
    first, second = ends.open(*ends.post(block)), ends.open(*ends.post(block))
    del block
    assert first[:3] == second[:3] == b"abc"
    del first
    gc.collect()
    again = ends.sender.allocate(3)
    again[:3] = b"xyz"
    assert second[:3] == b"abc"


def test_what_was_received_outlives_the_sender(ends):
    block = ends.sender.allocate(3)
    block[:3] = b"abc"
    handle, fds = ends.post(block)
    seen = ends.open(handle, fds)
    del block
    ends.sender.close()
    assert seen[:3] == b"abc"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_dropping_everything_leaves_nothing(strategy):
    before = leftovers.take()
    with Ends(strategy) as ends:
        for nbytes in (10, 10_000, 10):
            ends.open(*ends.post(ends.sender.allocate(nbytes)))
    assert leftovers.since(before, grace=0.5) == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_blocks_may_die_after_their_sender_was_closed(strategy):
    before = leftovers.take()
    with Ends(strategy) as ends:
        block = ends.sender.allocate(10)
        other = ends.sender.allocate(10)
    del block, other
    assert leftovers.since(before, grace=0.5) == []


@pytest.mark.parametrize("strategy", SHARED)
def test_a_message_that_is_withdrawn_leaves_nothing(strategy):
    before = leftovers.take()
    with Ends(strategy) as ends:
        parcel = Parcel()
        ends.sender.handle(ends.sender.allocate(1000), parcel)
        ends.sender.withdraw(parcel)
        del parcel
        block = ends.sender.allocate(1000)
        block[:3] = b"abc"
        assert ends.open(*ends.post(block))[:3] == b"abc"
        del block
    assert leftovers.since(before, grace=0.5) == []


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from([1, 64, 65, 5000, 70_000]), st.integers(0, 5)), max_size=30
    )
)
def test_nobodys_memory_is_overwritten(strategy, steps):
    """Blocks are filled and sent, and kept on both sides or dropped: what lives keeps its bytes."""
    with Ends(strategy) as ends:
        alive = []
        for number, (nbytes, drop) in enumerate(steps):
            ends.sender.take_back(ends.receiver.returned())
            block = ends.sender.allocate(nbytes)
            stamp = bytes([number + 1]) * nbytes
            block[:nbytes] = stamp
            seen = ends.open(*ends.post(block))
            alive.append((seen, stamp))
            if number % 3 == 0:
                alive.append((block, stamp))
            del block, seen
            if drop < len(alive):
                del alive[drop]
            assert all(memory[: len(stamp)] == stamp for memory, stamp in alive)
        alive.clear()


# Which there are.


@pytest.fixture(autouse=True)
def the_default_stays_what_it_is(monkeypatch):
    monkeypatch.setattr(sharing, "_chosen", None)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have fewer")
def test_linux_has_all_strategies_and_the_arena_is_its_default():
    assert labkit.get_all_sharing_strategies() == {
        "copy",
        "file_descriptor",
        "file_system",
        "arena",
    }
    assert labkit.get_sharing_strategy() == "arena"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_default_can_be_set(strategy):
    labkit.set_sharing_strategy(strategy)
    assert labkit.get_sharing_strategy() == strategy


def test_an_unknown_strategy_is_refused_with_what_there_is():
    with pytest.raises(ValueError, match="unknown sharing_strategy 'pigeon'") as caught:
        labkit.set_sharing_strategy("pigeon")
    for strategy in STRATEGIES:
        assert repr(strategy) in str(caught.value)
    assert labkit.get_sharing_strategy() != "pigeon"


def test_without_descriptors_that_travel_the_default_falls_back(monkeypatch):
    monkeypatch.delattr(socket, "send_fds")
    assert labkit.get_all_sharing_strategies() == {"copy", "file_system"}
    assert labkit.get_sharing_strategy() == "copy"
    with pytest.raises(ValueError, match="'copy', 'file_system'"):
        labkit.DataLoader([1], sharing_strategy="arena")


# Where a batch is built.


def test_outside_of_a_worker_empty_shared_is_plain_memory():
    tensor = empty_shared((2, 3))
    assert tensor.shape == (2, 3)
    assert not tensor.is_shared()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_in_a_worker_empty_shared_gives_the_senders_memory(strategy):
    with Ends(strategy) as ends:
        with building_in(ends.sender.allocate):
            for shape, dtype in [((2, 3), None), ((), torch.bool), ([4], torch.complex128)]:
                tensor = empty_shared(shape, dtype)
                assert tensor.shape == tuple(shape)
                assert tensor.dtype == (dtype or torch.get_default_dtype())
                assert tensor.is_contiguous()
                if strategy != "copy":
                    assert ends.sender.block_at(tensor.untyped_storage().data_ptr()) is not None
            assert empty_shared((0, 3)).shape == (0, 3)
        if strategy != "copy":
            outside = empty_shared((2,))
            assert ends.sender.block_at(outside.untyped_storage().data_ptr()) is None
        del tensor
