"""A pickle's tree has every byte of it, says what is called, and marks memory and handles."""

import collections
import copyreg
import datetime
import pickle
from multiprocessing import resource_sharer
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.lab.pickle_tree import Node, read, read_labkit, show
from labkit.lab.plots.pictures import png
from labkit.sharing import BatchPickler, make_sender
from tests.lab.test_plots import assert_legible, fonts_are_open

__all__ = ["fonts_are_open"]  # a fixture

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(max_size=100),
    st.dates(),
    st.complex_numbers(),
)
nested = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.lists(inner),
        st.tuples(inner),
        st.tuples(inner, inner, inner, inner),
        st.dictionaries(st.text() | st.integers(), inner),
        st.frozensets(st.integers()),
        st.sets(st.text()),
        st.builds(bytearray, st.binary()),
        inner.map(lambda value: [value, value]),
        inner.map(lambda value: collections.OrderedDict(a=value)),
        inner.map(lambda value: Thing(value)),
    ),
)


class Thing:
    def __init__(self, value):
        self.value = value


class Called:
    """Prints when it is unpickled, and not before."""

    def __reduce__(self):
        return print, ("called",)


@pytest.fixture
def fetched():
    """What PyTorch's messages hand over is taken, and the thread that does it ends."""
    messages = []
    yield messages.append
    for message in messages:
        ForkingPickler.loads(message)
    resource_sharer.stop()


@settings(max_examples=30)
@given(nested, st.sampled_from(PROTOCOLS))
def test_every_byte_of_a_pickle_belongs_to_one_node(value, protocol):
    data = pickle.dumps(value, protocol=protocol)
    tree = read(data)
    assert tree.nbytes == len(data)
    assert all(node.own_bytes > 0 or node.children for node in tree.walk())
    assert f"{len(data):,} B" in str(tree).splitlines()[0]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_values_and_containers_are_written_as_in_python(protocol):
    value = ([1, 2.5, None], {"a": True, 3: ("x",)}, (), 2**80, "it's")
    assert read(pickle.dumps(value, protocol=protocol)).text == str(value)


def test_calls_are_named_with_their_arguments():
    tree = read(pickle.dumps([datetime.timedelta(1, 2), Thing(3), collections.Counter("aa")]))
    assert tree.called == ["datetime.timedelta", f"{__name__}.Thing", "collections.Counter"]
    when, thing, counter = tree.children
    assert when.text == "datetime.timedelta(1, 2, 0)"
    assert thing.text == f"{__name__}.Thing('value': 3)"
    assert counter.text == "collections.Counter({'a': 2})"


def test_an_object_that_comes_again_is_said_to_be_the_same():
    value = [1]
    assert (
        read(pickle.dumps({"a": value, "b": value})).text == "{'a': [1], 'b': the same list of 1}"
    )


def test_nothing_is_called_or_imported(capsys):
    tree = read(pickle.dumps(Called()))
    assert tree.text == "print('called')"
    assert read(b"cno_such_module\nthing\n.").text == "no_such_module.thing"
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"(I1\nimodule\nCls\n.", "module.Cls(1)"),  # INST
        (b"(cmodule\nCls\nI1\nI2\no.", "module.Cls(1, 2)"),  # OBJ
        (b"Pname\n.", "persistent id('name')"),
        (b"I7\nQ.", "persistent id(7)"),
        (b"I7\n2\x86.", "(7, the same 7)"),  # DUP
        (b"I7\nI8\n0.", "7"),  # POP
        (b"I7\n(I8\n1.", "7"),  # POP_MARK
        (b"(I1\nI2\nd.", "{1: 2}"),  # DICT
    ],
)
def test_steps_that_pickle_itself_writes_no_more_are_followed(data, text):
    tree = read(data)
    assert (tree.text, tree.nbytes) == (text, len(data))


def test_arguments_by_name_and_extensions_are_followed():
    class ByName:
        def __reduce__(self):
            return copyreg.__newobj_ex__, (Thing, (1,), {"key": 2}), None

    ByName.__new__ = lambda cls, *args, **kwargs: None
    tree = read(pickle.dumps((Thing, (1,), {"key": 2}), protocol=4)[:-3] + b"\x92.")
    assert tree.text == f"{__name__}.Thing(1, 'key': 2)"


@pytest.mark.parametrize("data", [b"", b"I1\n", b"not a pickle", b"0.", b"(.", b"h\x05."])
def test_what_is_no_whole_pickle_is_refused(data):
    with pytest.raises(ValueError, match="no whole pickle"):
        read(data)


def test_what_comes_after_the_end_is_told():
    with pytest.raises(ValueError, match="after the pickle's end come 3 bytes more"):
        read(pickle.dumps(1) + b"abc")


# Tensors


def test_a_plain_pickle_of_a_tensor_has_its_memory_in_it():
    images = torch.zeros(4, 1000)
    tree = read(pickle.dumps([images, images[1:]]))
    first, second = tree.signed("memory")
    assert min(first.nbytes, second.nbytes) > images.nbytes
    assert tree.signed("handle") == []
    assert "torch._utils._rebuild_tensor_v2" in tree.called
    assert len(read(pickle.dumps(np.zeros(1000))).signed("memory")) == 1


@pytest.mark.parametrize("strategy", ["file_descriptor", "file_system"])
def test_pytorchs_message_has_a_handle_a_storage(strategy, fetched):
    before = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy(strategy)
    try:
        images = torch.zeros(4, 1000)
        message = ForkingPickler.dumps([images, images[1:], torch.ones(3)])
        fetched(message)
        tree = read(message)
    finally:
        torch.multiprocessing.set_sharing_strategy(before)
    assert tree.nbytes == len(message)
    assert tree.signed("memory") == []
    assert len(tree.signed("handle")) == 2


@pytest.mark.parametrize("strategy", ["copy", "file_descriptor", "file_system", "arena"])
def test_labkits_message_is_its_handles_and_its_batch(strategy):
    sender = make_sender(strategy)
    images = torch.zeros(4, 1000)
    try:
        parts, parcel = BatchPickler(sender).dumps(
            {"two": [images, images[1:]], "one": torch.ones(20)}
        )
        message = b"".join(parts)
        sender.withdraw(parcel)
        del parcel
    finally:
        sender.close()
    tree = read_labkit(message)
    handles, batch = tree.children
    assert tree.nbytes == len(message)
    assert (len(handles.children), batch.signed("handle")) == (2, [])
    assert [node.label for node in handles.children[1].children[:3]] == [
        "start",
        "bytes",
        "foreign",
    ]
    assert batch.called.count("labkit.sharing.reducers._rebuild_tensor") == 3
    assert "buffer 1, out of band" in batch.text
    assert "the same labkit.sharing.reducers.opened" in batch.text
    sign = "memory" if strategy == "copy" else "handle"
    assert len(tree.signed("memory") + tree.signed("handle")) == len(tree.signed(sign)) == 2


@pytest.mark.parametrize("message", [b"", b"1234567", b"\xff" * 20])
def test_what_is_no_message_of_labkits_is_refused(message):
    with pytest.raises(ValueError, match=r"no message|no whole pickle"):
        read_labkit(message)


# Drawn


def test_a_line_holds_what_fits_unless_something_in_it_is_marked():
    wide = ["long enough to need a line of its own"] * 4
    assert [depth for depth, _, _ in read(pickle.dumps([1, (2, 3)])).lines()] == [0]
    assert [depth for depth, _, _ in read(pickle.dumps([wide, 5])).lines()] == [0, 1, 2, 2, 2, 2, 1]
    lines = [text for _, text, _ in read(pickle.dumps([1, bytes(100)])).lines()]
    assert lines == ["list of 2", "1", "100 bytes"]


def test_the_figure_says_in_words_what_it_shows():
    images = torch.zeros(4, 1000)
    handle = Node("call", "a.handle", 5, [Node("leaf", "7", 2)], sign="handle")
    shown = show({"plain": pickle.dumps(images), "small": handle, "none": pickle.dumps(1)})
    assert "level 1: torch.storage._load_from_bytes(…), " in shown.alt
    assert "bytes (the memory itself), " in shown.alt
    assert "small: level 0: a.handle(7) (a handle), 7 bytes." in shown.alt
    assert "small: 7 bytes, no memory, but 1 handle." in shown.sentence
    assert "none: 5 bytes, neither memory nor a handle." in shown.sentence
    total = len(pickle.dumps(images))
    assert f"plain: {total:,} bytes, " in shown.sentence
    assert "■ the memory itself" in " ".join(text.get_text() for text in shown.figure.texts)
    assert shown.png != png(shown.draw(True))


def test_a_figure_is_as_high_as_its_lines_and_no_line_leaves_it():
    low, high = (
        show({"a": pickle.dumps(1)}),
        show({"a": pickle.dumps([bytes(100)] * 3 + ["x" * 99])}),
    )
    assert high.figure.get_figheight() > low.figure.get_figheight()
    for shown in (low, high):
        assert_legible(shown.figure)


def test_without_a_message_there_is_nothing_to_show():
    with pytest.raises(ValueError, match="no message to take apart"):
        show({})
