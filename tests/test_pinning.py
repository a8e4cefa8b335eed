"""The walk through a batch that pins it. Where no device is, stand-ins for tensors are pinned."""

import gc
import multiprocessing
import os
import signal
import threading
import time
from array import array
from collections import OrderedDict, UserDict, UserList, defaultdict, deque
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

import labkit
from labkit.pinning import can_pin, pin_batch, warn_of_unpinned
from tests.containers import (
    ElementwiseRow,
    FrozenPair,
    FrozenRecord,
    FrozenRow,
    Pair,
    Point,
    Record,
    Row,
    WordyRecord,
)


@dataclass(eq=False)
class Pinnable:
    """Stands for a tensor: it can be pinned, and the pinned one is another object."""

    value: int
    pinned: bool | str = False

    def pin_memory(self) -> "Pinnable":
        return Pinnable(self.value, pinned=True)


class Broken:
    def pin_memory(self) -> None:
        raise ValueError("cannot be pinned")


def one_of(kind):
    return lambda *items: kind(list(items))


def dict_of(kind):
    return lambda *items: kind(dict(zip("abcd", items, strict=False)))


@dataclass(frozen=True, slots=True)
class SlottedPair:
    left: Any
    right: Any


CONTAINERS = {
    "list": one_of(list),
    "tuple": one_of(tuple),
    "list subclass": one_of(Row),
    "deque": one_of(deque),
    "UserList": one_of(UserList),
    "frozen sequence": one_of(FrozenRow),
    "sequence without slices": one_of(ElementwiseRow),
    "namedtuple": Point,
    "dict": dict_of(dict),
    "dict subclass": dict_of(Record),
    "OrderedDict": dict_of(OrderedDict),
    "UserDict": dict_of(UserDict),
    "frozen mapping": dict_of(FrozenRecord),
    "mapping proxy": dict_of(MappingProxyType),
    "defaultdict": lambda *items: defaultdict(list, zip("abcd", items, strict=False)),
    "dataclass": Pair,
    "frozen dataclass": FrozenPair,
    "slotted dataclass": SlottedPair,
}


def leaves(batch: Any) -> list[Any]:
    if isinstance(batch, (Pair, FrozenPair, SlottedPair)):
        return [batch.left, batch.right]
    return list(batch.values() if hasattr(batch, "values") else batch)


@pytest.mark.parametrize("name", CONTAINERS)
def test_containers_are_entered_and_keep_their_type(name):
    one, other = Pinnable(1), Pinnable(2)
    batch = CONTAINERS[name](one, [other, "text"])
    pinned = pin_batch(batch)
    assert type(pinned) is type(batch)
    first, (second, text) = leaves(pinned)
    assert (first.pinned, first.value) == (True, 1)
    assert (second.pinned, second.value) == (True, 2)
    assert text == "text"


@pytest.mark.parametrize("name", CONTAINERS)
def test_the_given_batch_is_left_as_it_is(name):
    one, inner = Pinnable(1), [Pinnable(2)]
    batch = CONTAINERS[name](one, inner)
    pin_batch(batch)
    assert leaves(batch)[0] is one
    assert leaves(batch)[1] is inner
    assert not one.pinned
    assert not inner[0].pinned


@pytest.mark.parametrize(
    "leaf",
    ["text", b"bytes", np.str_("text"), 1, None, {1, 2}, np.zeros(2), object(), range(0)],
    ids=lambda leaf: str(type(leaf)),
)
def test_what_cannot_be_pinned_stays_what_it_is(leaf):
    got = pin_batch([leaf])[0]
    assert got is leaf or (got == list(leaf) == [])  # a range becomes a list, in PyTorch too


def test_a_default_factory_and_attributes_are_kept():
    batch = defaultdict(list, a=Pinnable(1))
    assert pin_batch(batch).default_factory is list
    record = Record(a=Pinnable(1))
    record.source = "this file"
    pinned = pin_batch(record)
    assert pinned.source == "this file"
    assert pinned.first().pinned


def test_an_object_with_a_method_of_its_own_is_asked_also_when_it_is_a_container():
    class OwnWay(dict):
        def pin_memory(self) -> str:
            return "in my own way"

    assert pin_batch([OwnWay(a=Pinnable(1))]) == ["in my own way"]


def test_packed_sequences_are_asked(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor, *device: tensor.clone())
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2)])
    assert type(pin_batch(packed)) is type(packed)


def test_arrays_of_numbers_keep_their_type():
    pinned = pin_batch(array("d", [1.0, 2.0]))
    assert type(pinned) is array
    assert pinned.tolist() == [1.0, 2.0]


def test_a_mapping_that_cannot_be_copied_becomes_a_dict():
    pinned = pin_batch(WordyRecord(entries={"a": Pinnable(1)}))
    assert type(pinned) is dict
    assert pinned["a"].pinned


class Holder:
    def __init__(self, held: Any) -> None:
        self.held = held


@pytest.mark.parametrize(
    ("batch", "told"),
    [
        ({"mask": np.ones(2)}, r"batch\['mask'\] \(numpy.ndarray\)"),
        ([0, {torch.ones(2)}], r"batch\[1\] \(set\)"),
        (Point(Holder(torch.ones(1)), 0), r"batch\.x \(tests.test_pinning.Holder\)"),
    ],
)
def test_memory_that_stays_unpinned_is_told_with_its_place(batch, told):
    with pytest.warns(UserWarning, match=told):
        warn_of_unpinned(batch)


@pytest.mark.parametrize(
    "batch",
    [
        torch.ones(2),
        ["text", b"bytes", 1, None, {1}, np.array(["text"])],
        Holder("text"),
        Pair(Pinnable(1), 2),
    ],
)
def test_of_what_has_no_memory_to_pin_or_is_pinned_nothing_is_told(batch, recwarn):
    warn_of_unpinned(batch)
    assert recwarn.list == []


def test_the_error_of_a_pin_method_is_raised_and_says_where():
    with pytest.raises(ValueError, match="cannot be pinned") as raised:
        pin_batch({"a": [Point(1, Broken())]})
    assert "while pinning batch['a'][0].y (Broken)" in str(raised.value)


# In a loader


class PinnedWhere(Pinnable):
    """Notes on which thread it was pinned."""

    def pin_memory(self) -> "PinnedWhere":
        return PinnedWhere(self.value, pinned=threading.current_thread().name)


class Pins(Dataset):
    """Samples that can be pinned, and whatever else is asked for at an index."""

    def __init__(self, length: int, special: dict[int, Any] | None = None) -> None:
        self.length, self.special = length, special or {}

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        special = self.special.get(index)
        return special() if callable(special) else special or PinnedWhere(index)


def first(samples: list[Any]) -> Any:
    return samples[0]


@pytest.fixture
def with_accelerator(monkeypatch):
    monkeypatch.setattr("labkit.loader.can_pin", lambda: True)


def pinning(dataset: Any, **options: Any) -> labkit.DataLoader:
    options = {"num_workers": 2, "multiprocessing_context": "fork", **options}
    if not options["num_workers"]:
        options.pop("multiprocessing_context")
    return labkit.DataLoader(dataset, collate_fn=first, pin_memory=True, **options)


def pin_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "pin"]


@pytest.mark.usefixtures("with_accelerator")
@pytest.mark.parametrize("persistent", [False, True])
def test_with_workers_batches_are_pinned_on_a_thread_and_come_in_order(persistent):
    loader = pinning(Pins(40), persistent_workers=persistent)
    for _ in range(2):
        got = list(loader)
        assert [batch.value for batch in got] == list(range(40))
        assert {batch.pinned for batch in got} == {"pin"}
    assert len(pin_threads()) == persistent
    loader.close()
    assert not pin_threads()


@pytest.mark.usefixtures("with_accelerator")
def test_without_workers_they_are_pinned_where_they_are_made():
    got = list(pinning(Pins(3), num_workers=0))
    assert {batch.pinned for batch in got} == {threading.main_thread().name}


@pytest.mark.usefixtures("with_accelerator")
@pytest.mark.parametrize("num_workers", [0, 1])
def test_what_stays_unpinned_is_told_once_an_epoch(num_workers):
    arrays = {index: lambda: {"mask": np.ones(2)} for index in range(3)}
    with pytest.warns(UserWarning, match=r"does not reach batch\['mask'\]") as warned:
        list(pinning(Pins(3, arrays), num_workers=num_workers))
    assert len(warned) == 1


@pytest.mark.usefixtures("with_accelerator")
def test_what_cannot_be_pinned_is_told_with_its_batch_and_the_epoch_goes_on():
    iterator = iter(pinning(Pins(6, {2: lambda: {"a": [Broken()]}}), num_workers=1))
    assert [next(iterator).value, next(iterator).value] == [0, 1]
    with pytest.raises(ValueError, match="cannot be pinned") as raised:
        next(iterator)
    assert "in pin thread" in str(raised.value)
    assert "while pinning batch['a'][0] (Broken)" in str(raised.value)
    assert [batch.value for batch in iterator] == [3, 4, 5]


@pytest.mark.usefixtures("with_accelerator")
def test_errors_of_the_dataset_ends_and_deaths_pass_the_thread():
    def broken():
        raise LookupError("sample 2 is broken")

    iterator = iter(pinning(Pins(4, {2: broken}), num_workers=1))
    assert [next(iterator).value, next(iterator).value] == [0, 1]
    with pytest.raises(LookupError, match="in DataLoader worker process 0"):
        next(iterator)
    assert [batch.value for batch in iterator] == [3]
    with pytest.raises(labkit.errors.WorkerDied, match="SIGKILL"):
        list(pinning(Pins(8, {3: lambda: os.kill(os.getpid(), signal.SIGKILL)}), num_workers=1))
    assert not pin_threads()


@pytest.mark.usefixtures("with_accelerator")
def test_a_stream_that_ends_early_in_one_worker_is_given_whole():
    class Uneven(IterableDataset):
        def __iter__(self):
            info = labkit.get_worker_info()
            return (PinnedWhere(10 * info.id + i) for i in range(2 + 4 * info.id))

    loader = labkit.DataLoader(Uneven(), batch_size=None, num_workers=2, pin_memory=True)
    got = {batch.value for batch in loader}
    assert got == {0, 1, 10, 11, 12, 13, 14, 15}


@pytest.mark.usefixtures("with_accelerator")
def test_tasks_larger_than_a_socket_holds_go_out_while_the_thread_receives():
    indices = [[i] * 60_000 for i in range(12)]
    loader = pinning(Pins(12), batch_sampler=indices)
    assert [batch.value for batch in loader] == list(range(12))


@pytest.mark.usefixtures("with_accelerator")
def test_after_a_timeout_and_the_workers_deaths_it_ends_in_time():
    iterator = iter(pinning(Pins(4, {0: lambda: time.sleep(600)}), timeout=1))
    with pytest.raises(labkit.errors.LoaderTimeout):
        next(iterator)
    for worker in multiprocessing.active_children():
        worker.kill()
    began = time.monotonic()
    del iterator
    gc.collect()
    assert time.monotonic() - began < 5
    assert not pin_threads()


@pytest.mark.usefixtures("with_accelerator")
def test_interrupt_ends_a_next_that_waits_for_the_thread():
    iterator = pinning(Pins(4, {0: lambda: time.sleep(600)}), num_workers=1).iterate()
    got: list[list[Any]] = []
    consumer = threading.Thread(target=lambda: got.append(list(iterator)))
    consumer.start()
    iterator.interrupt()
    consumer.join(30)
    assert got == [[]]
    iterator.close()


@pytest.mark.usefixtures("with_accelerator")
def test_a_pin_method_that_ends_the_thread_is_told():
    class Exits:
        def pin_memory(self):
            raise SystemExit(3)

    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        list(pinning(Pins(4, {1: Exits}), num_workers=1))
    assert not pin_threads()


@pytest.mark.usefixtures("with_accelerator")
def test_an_iterator_that_is_dropped_takes_its_thread_along():
    iterator = iter(pinning(Pins(100)))
    next(iterator)
    assert len(pin_threads()) == 1
    del iterator
    gc.collect()
    assert not pin_threads()


@pytest.mark.usefixtures("with_accelerator")
def test_a_trace_shows_the_thread_at_work():
    with labkit.trace() as trace:
        list(pinning(Pins(5)))
    pinned = [span for span in trace.spans if span.layer == "pin"]
    assert sorted(span.batch for span in pinned) == [0, 1, 2, 3, 4]
    assert {span.lane for span in pinned} == {"pin"}


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is something to pin for")
@pytest.mark.parametrize("num_workers", [0, 1])
def test_without_an_accelerator_the_loader_warns_and_goes_on(num_workers):
    loader = labkit.DataLoader([torch.ones(2)] * 2, pin_memory=True, num_workers=num_workers)
    with pytest.warns(UserWarning, match="no accelerator is found") as warned:
        assert len(list(loader)) == 2
    assert len(warned) == 1
    with pytest.warns(UserWarning, match="no accelerator is found"):
        assert not can_pin()


@pytest.mark.skipif(not torch.accelerator.is_available(), reason="there is nothing to pin for")
def test_with_an_accelerator_every_tensor_is_pinned():
    loader = labkit.DataLoader([{"a": torch.ones(2), "b": 1}] * 2, pin_memory=True, num_workers=1)
    for batch in loader:
        assert batch["a"].is_pinned()
        assert batch["b"].is_pinned()
