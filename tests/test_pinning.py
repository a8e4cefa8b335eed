"""The walk through a batch that pins it. Where no device is, stand-ins for tensors are pinned."""

from array import array
from collections import OrderedDict, UserDict, UserList, defaultdict, deque
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch

import labkit
from labkit.pinning import can_pin, pin_batch
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
    pinned: bool = False

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


def test_the_error_of_a_pin_method_is_raised():
    with pytest.raises(ValueError, match="cannot be pinned"):
        pin_batch({"a": [Broken()]})


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
