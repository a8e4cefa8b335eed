"""A batch as a message and back: what was sent arrives, and no more travels than is seen."""

import copyreg
import functools
import gc
import io
import pickle
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import labkit
from labkit.errors import BatchNotShareable
from labkit.sharing import empty_shared
from tests import leftovers
from tests.comparison import differences
from tests.containers import FrozenPair, FrozenRecord, FrozenRow, Pair, Point, Record, Row
from tests.sharing.crossing import Crossing

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse (CSR|CSC|BSR|BSC) tensor support is in beta"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor, torch.quantize_per_ch"),
    pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental"),
]

STRATEGIES = sorted(labkit.get_all_sharing_strategies())
DTYPES = [
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool, torch.uint16,
    torch.uint32, torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.complex32, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip
NUMPY_DTYPES = [
    "?", "u1", "i2", ">i4", "f2", ">f8", "c16", "g", "S3", "U2", "M8[s]", "m8[D]", "V5",
    [("a", "u1"), ("b", ">f4", (2,))],
]  # fmt: skip
METADATA_BYTES = 1000  # "some hundred bytes" for the metadata of a small batch


@pytest.fixture
def crossing():
    """One strategy: how an object is taken apart does not depend on it."""
    with Crossing("file_descriptor" if "file_descriptor" in STRATEGIES else "copy") as crossing:
        yield crossing


@pytest.fixture(params=STRATEGIES)
def any_crossing(request):
    with Crossing(request.param) as crossing:
        yield crossing


def assert_same(got: Any, sent: Any) -> None:
    assert list(differences(got, sent, strides=True)) == []


def resolved(tensor: Any) -> Any:
    """What is to arrive of it: a negative view arrives as its values."""
    if not isinstance(tensor, torch.Tensor) or not tensor.is_neg():
        return tensor
    return tensor.resolve_neg()


# Dense tensors


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """A view of any dtype, shape, stride and offset."""
    dtype = draw(st.sampled_from(DTYPES))
    size = draw(st.lists(st.integers(0, 3), max_size=3))
    stride = [draw(st.integers(0, 5)) for _ in size]
    offset = draw(st.integers(0, 5))
    n = offset + 1 + sum(max(0, s - 1) * step for s, step in zip(size, stride, strict=True))
    memory = torch.arange(n * dtype.itemsize, dtype=torch.uint8) % 2
    tensor = memory.view(dtype).as_strided(size, stride, offset)
    if dtype.is_floating_point and draw(st.booleans()):
        tensor.requires_grad_()
    if dtype in (torch.complex64, torch.complex128):
        tensor = draw(st.sampled_from([tensor, tensor.conj(), tensor.imag, tensor.conj().imag]))
    return tensor


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(batch=st.lists(tensors(), max_size=4))
def test_any_dense_tensors_arrive_as_they_are(strategy, batch):
    with Crossing(strategy) as crossing:
        got = crossing(batch)
        assert_same(got, list(map(resolved, batch)))
        for one, other in zip(got, batch, strict=True):
            assert one.is_conj() == other.is_conj()
            assert one.is_leaf


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_crosses(crossing, dtype):
    tensor = (torch.arange(16 * dtype.itemsize) % 2).to(torch.uint8).view(dtype)
    assert_same(crossing({"all": tensor, "one": tensor[3]}), {"all": tensor, "one": tensor[3]})


def test_what_arrives_can_be_written_to_and_grows_a_gradient(any_crossing):
    tensor, leaf = any_crossing([torch.zeros(3), torch.zeros(3, requires_grad=True)])
    tensor += 1
    (leaf * tensor).sum().backward()
    assert leaf.grad.tolist() == [1, 1, 1]


def test_what_is_sent_is_what_was_there_when_it_was_sent(any_crossing):
    tensor = torch.zeros(1000)
    message, fds = any_crossing.send(tensor)
    tensor.fill_(1)
    assert any_crossing.receive(message, fds).sum() == 0


def test_what_was_received_can_be_sent_on(any_crossing):
    batch = {"t": torch.arange(5.0), "a": np.arange(5)}
    received = any_crossing(batch)
    with Crossing("copy") as other:
        assert_same(other(received), batch)


def test_each_message_stands_for_itself(any_crossing):
    tensor = torch.zeros(4)
    first, second = any_crossing(tensor), any_crossing(tensor)
    first.fill_(1)
    assert second.sum() == 0


def test_an_object_that_is_named_twice_is_one_object_there(crossing):
    tensor, array = torch.ones(3), np.ones(3)
    got = crossing([tensor, array, (tensor, array)])
    assert got[2][0] is got[0]
    assert got[2][1] is got[1]


# Aliasing: views of one memory stay views of one memory.


def address_of(view: torch.Tensor | np.ndarray) -> int:
    return view.data_ptr() if isinstance(view, torch.Tensor) else view.ctypes.data


SLICES = [
    lambda t: t,
    lambda t: t[16:],
    lambda t: t[8:40:2],
    lambda t: t.view(torch.int16),
    lambda t: t.view(torch.float64)[2:],
    lambda t: t.view(torch.complex64),
    lambda t: t.view(8, 8).t()[1:],
    lambda t: t[4:8].expand(3, 4),
    lambda t: t[63],
    lambda t: t.numpy(),
    lambda t: t.numpy()[10:2:-3],
    lambda t: t.numpy()[24:].view(np.int64),
]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("shared_before", [False, True])
@given(
    picks=st.lists(st.tuples(st.integers(0, 1), st.sampled_from(SLICES)), min_size=2, max_size=6)
)
def test_views_keep_their_distance_and_storages_theirs(strategy, shared_before, picks):
    with Crossing(strategy) as crossing:
        with crossing.building():
            make = empty_shared if shared_before else torch.empty
            storages = [make((64,), dtype=torch.uint8).fill_(7), make((64,), dtype=torch.uint8)]
        sent = [view(storages[which]) for which, view in picks]
        got = crossing(sent)
        assert_same(got, sent)
        for (one, _), here, there in zip(picks, sent, got, strict=True):
            for (other, _), here_too, there_too in zip(picks, sent, got, strict=True):
                if one == other:
                    distance = address_of(here_too) - address_of(here)
                    assert address_of(there_too) - address_of(there) == distance
        got[0][(0,) * got[0].ndim] = 1
        for (which, view), there in zip(picks, got, strict=True):
            if which != picks[0][0]:
                assert_same(there, view(storages[which]))  # not ours: not changed


def test_a_write_through_one_view_is_seen_in_the_other(any_crossing):
    memory = torch.zeros(6, dtype=torch.int32)
    ints, halves, row = any_crossing([memory, memory.view(torch.int16), memory.view(2, 3)[1]])
    row[0] = 1
    assert ints[3] == 1
    assert halves[6] == 1


def test_a_tensor_and_its_array_stay_together(crossing):
    tensor = torch.zeros(4)
    got, array = crossing([tensor, tensor.numpy()])
    array[2] = 5
    assert got[2] == 5


@pytest.mark.parametrize(
    "views",
    [
        lambda t, a: (t, t[2:].numpy()),
        lambda t, a: (a[4:], torch.from_numpy(a)[:6]),
    ],
    ids=["t and t[2:].numpy()", "a[4:] and its tensor"],
)
def test_a_tensor_and_an_array_that_begin_at_different_places_stay_together(crossing, views):
    one, other = views(torch.zeros(8), np.zeros(8))
    got, got_other = crossing([one, other])
    got[...] = 5
    one[...] = 5
    assert_same([got, got_other], [one, other])


def test_arrays_of_one_array_stay_together(crossing):
    array = np.zeros((4, 4))
    whole, column, backwards = crossing([array, array[:, 1], array[::-1, ::-1]])
    column[0] = 5
    assert whole[0, 1] == 5
    assert backwards[3, 2] == 5


def test_two_storages_of_equal_content_stay_two(any_crossing):
    one, other = any_crossing([torch.zeros(4), torch.zeros(4)])
    one[0] = 1
    assert other.sum() == 0


# How much travels


def test_a_message_of_a_large_batch_is_small():
    with Crossing("file_descriptor") as crossing:
        with crossing.building():
            batch = empty_shared((64, 3, 224, 224))
        crossing.send_and_close(batch)
        assert crossing.message_bytes < METADATA_BYTES
        assert crossing.copied_bytes == 0
        del batch


def test_a_batch_that_was_built_in_shared_memory_is_not_copied(any_crossing):
    with any_crossing.building():
        batch = {"image": empty_shared((10, 1000)), "label": empty_shared((10,))}
    got = any_crossing(batch)
    assert any_crossing.copied_bytes == 0
    assert_same(got, batch)


@pytest.mark.parametrize("strategy", [s for s in STRATEGIES if s != "copy"])
def test_the_worker_and_the_main_process_see_one_memory(strategy):
    with Crossing(strategy) as crossing:
        with crossing.building():
            batch = empty_shared((3,)).zero_()
        got = crossing(batch)
        batch[1] = 5
        assert got[1] == 5
        del batch, got


BIG = torch.arange(1 << 20)  # 8 MiB


@pytest.mark.parametrize(
    "view",
    [
        BIG[1000:1010],
        BIG[:1],
        BIG[-5:],
        torch.zeros(1).expand(1000, 1000),
        torch.zeros(1, 3).expand(1000, 3),
        BIG.numpy()[1000:1010],
        BIG.numpy()[-5:][::-1],
        np.broadcast_to(np.zeros(1), (1000, 1000)),
        Record(a=BIG[5:7], b=BIG[8:10]),
    ],
    ids=lambda view: type(view).__name__,
)
def test_no_more_than_is_seen_travels(any_crossing, view):  # T13
    got = any_crossing(view)
    assert_same(got, view)
    assert any_crossing.message_bytes + any_crossing.copied_bytes < METADATA_BYTES


def test_what_lies_between_two_views_is_all_that_is_added(any_crossing):  # T13
    any_crossing([BIG[100:110], BIG[200:210]])
    assert any_crossing.message_bytes + any_crossing.copied_bytes < 110 * 8 + METADATA_BYTES


def test_a_storage_is_shared_once(any_crossing):  # T12
    parts = torch.arange(1000.0).split(10)
    got = any_crossing(parts)
    assert_same(got, parts)
    assert len({part.untyped_storage().data_ptr() for part in got}) == 1
    assert any_crossing.copied_bytes <= 4000 + 16
    assert any_crossing.n_fds <= 1


# numpy


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    """A view of any dtype, order and direction."""
    dtype = np.dtype(draw(st.sampled_from(NUMPY_DTYPES)))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    raw = (np.arange(int(np.prod(shape)) * dtype.itemsize) % 2).astype(np.uint8)
    array = (
        np.frombuffer(bytearray(raw), dtype).reshape(shape) if raw.size else np.empty(shape, dtype)
    )
    for axis in range(array.ndim):
        cut = draw(
            st.sampled_from(
                [slice(None), slice(None, None, -1), slice(1, None), slice(None, None, 2)]
            )
        )
        array = array[(slice(None),) * axis + (cut,)]
    if draw(st.booleans()):
        array = array.T
    if draw(st.booleans()):
        array = np.asfortranarray(array)
    if draw(st.booleans()):
        array.flags.writeable = False
    return array


def assert_same_arrays(got: list[np.ndarray], sent: list[np.ndarray]) -> None:
    assert_same(got, sent)
    for one, other in zip(got, sent, strict=True):
        if other.size:
            assert one.flags.writeable == other.flags.writeable
            assert one.strides == other.strides


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(batch=st.lists(arrays(), max_size=4))
def test_any_arrays_arrive_as_they_are(strategy, batch):
    with Crossing(strategy) as crossing:
        assert_same_arrays(crossing(batch), batch)


@pytest.mark.parametrize("dtype", NUMPY_DTYPES, ids=str)
def test_every_numpy_dtype_crosses(crossing, dtype):
    raw = (np.arange(6 * np.dtype(dtype).itemsize) % 2).astype(np.uint8)
    array = np.frombuffer(bytearray(raw), dtype)
    assert_same_arrays(crossing([array, array[::-2], array[1]]), [array, array[::-2], array[1]])


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((0, 3)),
        np.zeros((3, 0), order="F"),
        np.zeros(3, dtype=[]),
        np.array(1.5),
        np.array([None, {"a": 1}, "text"], dtype=object),
        np.array([(1, "x")], dtype=[("n", "i4"), ("o", object)]),
        np.lib.stride_tricks.as_strided(np.arange(5), (3, 3), (8, 8)),
        np.frombuffer(b"0123456789", np.uint16, offset=1, count=4),
        np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f4")]),
        np.float32(3),
        np.datetime64("2020-01-01"),
    ],
    ids=lambda array: f"{type(array).__name__} {array.dtype} {array.shape}",
)
def test_unusual_arrays_arrive_as_they_are(any_crossing, array):
    got = any_crossing({"x": array})["x"]
    assert_same(got, array)


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="this numpy has no StringDType")
def test_strings_of_variable_width_arrive_as_they_are(crossing):
    array = np.array(["a", "b" * 1000], dtype=np.dtypes.StringDType())
    assert crossing(array).tolist() == array.tolist()


def test_a_memmap_arrives_with_its_values(crossing, tmp_path):
    array = np.memmap(tmp_path / "data", np.float32, "w+", shape=(4, 3))
    array[:] = 5
    got = crossing(array[1:])
    np.testing.assert_array_equal(got, array[1:])
    got[:] = 6
    assert array[1, 0] == 5


def test_a_slice_of_a_memmap_does_not_take_the_file_along(crossing, tmp_path):  # T13
    array = np.memmap(tmp_path / "data", np.float32, "w+", shape=(1000, 1000))
    assert_same(np.asarray(crossing(array[5, :10])), np.asarray(array[5, :10]))
    assert crossing.message_bytes + crossing.copied_bytes < METADATA_BYTES


def test_a_masked_array_keeps_its_mask(crossing):
    array = np.ma.masked_less(np.arange(5.0), 3)
    got = crossing(array)
    assert type(got) is np.ma.MaskedArray
    assert got.mask.tolist() == array.mask.tolist()
    assert got.sum() == array.sum()


class Measured(np.ndarray):
    """An array with a unit, which it pickles."""

    unit = None

    def __reduce__(self):
        rebuild, arguments, state = super().__reduce__()
        return rebuild, arguments, (state, self.unit)

    def __setstate__(self, state):
        super().__setstate__(state[0])
        self.unit = state[1]


def test_a_subclass_of_ndarray_pickles_itself(crossing):
    array = np.arange(3.0).view(Measured)
    array.unit = "m"
    got = crossing(array)
    assert type(got) is Measured
    assert (got.tolist(), got.unit) == ([0, 1, 2], "m")


def test_arrays_are_shared_and_not_pickled():
    with Crossing("file_descriptor") as crossing:
        crossing.send_and_close({"a": np.zeros(100_000), "b": np.zeros((100, 100), order="F")})
        assert crossing.message_bytes < METADATA_BYTES


# Whatever else is a tensor


class Tagged(torch.Tensor):
    """A tensor with an attribute."""

    tag: Any = None


class Picky(torch.Tensor):
    """A tensor whose constructor wants a second argument."""

    @staticmethod
    def __new__(cls, data: torch.Tensor, label: str) -> "Picky":
        return torch.Tensor._make_subclass(cls, data)

    def __init__(self, data: torch.Tensor, label: str) -> None:
        self.label = label


class Wrapped(torch.Tensor):
    """A tensor that has another one inside and no memory of its own."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> "Wrapped":
        return torch.Tensor._make_wrapper_subclass(cls, inner.size(), dtype=inner.dtype)

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        unwrap = functools.partial(
            torch.utils._pytree.tree_map_only, cls, lambda wrapped: wrapped.inner
        )
        return func(*unwrap(args), **unwrap(kwargs or {}))


class Reduced(torch.Tensor):
    """A tensor with a reducer of its own."""

    def __reduce_ex__(self, protocol):
        return _reduced, (self.as_subclass(torch.Tensor) * 2,)


def _reduced(tensor: torch.Tensor) -> "Reduced":
    return tensor.as_subclass(Reduced)


def tagged(data: torch.Tensor, tag: Any) -> Tagged:
    tensor = data.as_subclass(Tagged)
    tensor.tag = tag
    return tensor


COMPLEX = torch.tensor([1 + 2j, 3 - 4j])
EYE = torch.eye(4)
COO = ([[0, 2, 0], [1, 0, 1]], [1.0, 2.0, 3.0], (3, 2))


ZOO: dict[str, Callable[[], Any]] = {
    "0-dim": lambda: torch.tensor(5),
    "empty": lambda: torch.empty(0),
    "empty with strides": lambda: torch.ones(0, 2).t(),
    "empty slice": lambda: torch.ones(5)[3:3],
    "leaf": lambda: torch.ones(2, requires_grad=True),
    "empty leaf": lambda: torch.ones(0, requires_grad=True),
    "parameter": lambda: torch.nn.Parameter(torch.ones(2)),
    "frozen parameter": lambda: torch.nn.Parameter(torch.ones(2), requires_grad=False),
    "buffer": lambda: torch.nn.Buffer(torch.ones(2)),
    "conj": lambda: COMPLEX.conj(),
    "conj of a slice": lambda: COMPLEX.conj()[1:],
    "conj leaf": lambda: COMPLEX.conj().requires_grad_(),
    "neg": lambda: COMPLEX.conj().imag,
    "neg conj": lambda: torch._neg_view(COMPLEX.conj()),
    "conj subclass": lambda: COMPLEX.conj().as_subclass(Tagged),
    "meta": lambda: torch.ones(3, 4, device="meta").t(),
    "coo": lambda: torch.sparse_coo_tensor(*COO),
    "coo coalesced": lambda: torch.sparse_coo_tensor(*COO).coalesce(),
    "coo empty": lambda: torch.sparse_coo_tensor(size=(2, 3)),
    "coo hybrid": lambda: torch.sparse_coo_tensor([[0, 1]], torch.ones(2, 3), (4, 3)),
    "coo leaf": lambda: torch.sparse_coo_tensor(*COO, requires_grad=True),
    "csr": lambda: EYE.to_sparse_csr(),
    "csc": lambda: EYE.to_sparse_csc(),
    "bsr": lambda: EYE.to_sparse_bsr((2, 2)),
    "bsc": lambda: EYE.to_sparse_bsc((2, 2)),
    "csr in batches": lambda: torch.stack([EYE, EYE]).to_sparse_csr(),
    "csr leaf": lambda: EYE.to_sparse_csr().requires_grad_(),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2, 3), torch.zeros(1, 3)]),
    "nested leaf": lambda: torch.nested.nested_tensor([torch.ones(2)], requires_grad=True),
    "jagged": lambda: torch.nested.nested_tensor(
        [torch.ones(2, 3), torch.zeros(1, 3)], layout=torch.jagged
    ),
    "jagged with holes": lambda: torch.nested.narrow(
        torch.ones(2, 4), 1, torch.tensor([0, 1]), torch.tensor([2, 3]), layout=torch.jagged
    ),
    "subclass": lambda: tagged(torch.ones(3), {"nested": ["tag"]}),
    "subclass slice": lambda: tagged(torch.arange(9.0)[2:7:2], "part"),
    "subclass with a tensor": lambda: tagged(torch.ones(3), torch.zeros(2)),
    "subclass empty": lambda: tagged(torch.ones(0), "nothing"),
    "subclass leaf": lambda: tagged(torch.ones(3), "leaf").requires_grad_(),
    "picky": lambda: Picky(torch.ones(3), "the label"),
    "with a reducer of its own": lambda: torch.ones(3).as_subclass(Reduced),
}


@pytest.mark.parametrize("name", ZOO)
def test_every_kind_of_tensor_arrives_as_it_is(crossing, name):
    sent = ZOO[name]()
    got = crossing({"x": sent})["x"]
    check(got, sent)


def check(got: torch.Tensor, sent: torch.Tensor) -> None:
    if isinstance(sent, Reduced):
        assert_same(got, sent * 2)
        return
    assert_same(got, resolved(sent))
    assert got.is_leaf
    assert got.is_conj() == sent.is_conj()
    if sent.layout is torch.sparse_coo:
        assert got.is_coalesced() == sent.is_coalesced()
        assert_same(got._indices(), sent._indices())
        assert_same(got._values(), sent._values())
    assert list(differences(vars(got), vars(sent))) == [] or sent.is_nested


def test_a_tensor_that_wraps_another_arrives_with_it(crossing):
    got = crossing(Wrapped(torch.arange(3.0)))
    assert type(got) is Wrapped
    assert got.shape == (3,)
    assert got.inner.tolist() == [0, 1, 2]


def test_a_jagged_tensors_memory_is_shared():
    nested = torch.nested.nested_tensor([torch.ones(5000), torch.ones(2)], layout=torch.jagged)
    with Crossing("file_descriptor") as crossing:
        crossing.send_and_close(nested)
        assert crossing.message_bytes < 2 * METADATA_BYTES


def test_a_subclass_may_alias_its_base(crossing):
    memory = torch.zeros(3)
    plain, special = crossing([memory, memory.as_subclass(Tagged)])
    plain[1] = 5
    assert special[1] == 5


def test_a_parameter_may_alias_a_tensor(crossing):
    memory = torch.zeros(3)
    plain, parameter = crossing([memory, torch.nn.Parameter(memory)])
    plain[1] = 5
    assert parameter[1] == 5


def test_an_attribute_of_a_plain_tensor_crosses(crossing):
    tensor = torch.ones(3)
    tensor.origin = "file 7"
    assert crossing(tensor).origin == "file 7"


# Containers and objects around them


@pytest.mark.parametrize(
    "container",
    [
        lambda *x: x,
        lambda *x: Row(x),
        lambda *x: FrozenRow(x),
        lambda *x: Point(*x),
        lambda *x: Pair(*x),
        lambda *x: FrozenPair(*x),
        lambda *x: dict(zip("ab", x, strict=True)),
        lambda *x: OrderedDict(zip("ab", x, strict=True)),
        lambda *x: Record(zip("ab", x, strict=True)),
        lambda *x: FrozenRecord(dict(zip("ab", x, strict=True))),
    ],
)
def test_containers_keep_their_type(crossing, container):
    batch = container(torch.ones(2), [np.ones(3), "text", None, {1, 2}, b"bytes"])
    assert_same(crossing(batch), batch)


def test_packed_sequences_and_modules_cross(crossing):
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    assert_same(tuple(crossing(packed)), tuple(packed))
    module = torch.nn.Linear(2, 3)
    assert_same(crossing(module).state_dict(), module.state_dict())


class Blob:
    """A class that speaks protocol 5: its bytes travel beside the stream."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __reduce_ex__(self, protocol: int) -> Any:
        return Blob, (pickle.PickleBuffer(self.data),)

    def __bytes__(self) -> bytes:
        return memoryview(self.data).tobytes("A")


@pytest.mark.parametrize(
    "data",
    [
        b"some bytes",
        bytearray(b"some bytes"),
        b"",
        bytearray(),
        np.arange(5.0),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.zeros((0, 3)),
    ],
    ids=lambda data: type(data).__name__,
)
def test_buffers_of_other_classes_arrive_as_buffers(any_crossing, data):
    batch = [torch.ones(3), Blob(data), torch.zeros(2)]
    got = any_crossing(batch)
    assert bytes(got[1]) == bytes(batch[1])
    assert_same([got[0], got[2]], [batch[0], batch[2]])


def test_a_buffer_over_shared_memory_arrives_as_a_buffer(any_crossing):
    with any_crossing.building():
        tensor = empty_shared((4,)).fill_(3)
    got, whole, part = any_crossing([tensor, Blob(tensor.numpy()), Blob(tensor.numpy()[:2])])
    assert bytes(whole) == tensor.numpy().tobytes()
    assert bytes(part) == tensor.numpy()[:2].tobytes()
    assert_same(got, tensor)


def test_a_large_buffer_travels_beside_the_message():
    with Crossing("file_descriptor") as crossing:
        crossing.send_and_close(Blob(bytes(1 << 20)))
        assert crossing.message_bytes < METADATA_BYTES


def test_what_only_this_process_can_import_goes_by_value(crossing):
    class Here:
        def __init__(self, tensor: torch.Tensor) -> None:
            self.tensor = tensor

    for _ in range(2):
        got = crossing({"here": Here(torch.ones(2)), "call": lambda x: x + 1})
        assert_same(got["here"].tensor, torch.ones(2))
        assert got["call"](1) == 2


def test_a_reducer_that_was_registered_with_copyreg_counts(crossing, monkeypatch):
    monkeypatch.setitem(copyreg.dispatch_table, Blob, lambda blob: (bytes, (b"reduced",)))
    assert crossing([Blob(b"x"), torch.ones(1)])[0] == b"reduced"


# What cannot cross says why, and the next message is none the worse.


def non_leaf() -> torch.Tensor:
    return torch.ones(2, requires_grad=True) * 2


REFUSED = {
    "non-leaf": (non_leaf, r"detach\(\)"),
    "non-leaf subclass": (lambda: non_leaf().as_subclass(Tagged), r"detach\(\)"),
    "non-leaf conj": (lambda: (non_leaf() * 1j).conj(), r"detach\(\)"),
    "non-leaf coo": (lambda: non_leaf().to_sparse(), r"detach\(\)"),
    "quantized": (
        lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8),
        r"quantized.*int_repr\(\)",
    ),
    "quantized by channel": (
        lambda: torch.quantize_per_channel(
            torch.ones(2, 2), torch.ones(2), torch.zeros(2), 0, torch.qint8
        ),
        r"quantized.*int_repr\(\)",
    ),
    "open file": (lambda: io.TextIOWrapper(io.BytesIO()), "cannot be pickled"),
    "generator": (lambda: (i for i in range(3)), "cannot be pickled"),
    "lock": (threading.Lock, "cannot be pickled"),
}
if torch.backends.mkldnn.is_available():
    REFUSED["mkldnn"] = (lambda: torch.ones(2).to_mkldnn(), r"mkldnn.*to_dense\(\)")


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_cross_is_refused_in_words(crossing, name):
    make, words = REFUSED[name]
    before = leftovers.take()
    with pytest.raises(BatchNotShareable, match=words) as caught:
        crossing.send([torch.ones(3), {"x": make()}, torch.ones(3)])
    del caught
    gc.collect()
    assert leftovers.since(before, grace=0.5) == []
    assert_same(crossing([torch.ones(3)]), [torch.ones(3)])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_message_that_cannot_be_read_keeps_nothing(strategy):
    before = leftovers.take()
    with Crossing(strategy) as crossing:
        message, fds = crossing.send([torch.ones(3), torch.ones(4), Unreadable()])
        with pytest.raises(ZeroDivisionError):
            crossing.receive(message, fds)
        assert fds == []
        assert_same(crossing(torch.ones(3)), torch.ones(3))
    del crossing
    assert leftovers.since(before, grace=0.5) == []


class Unreadable:
    """Pickles, and cannot be made again."""

    def __reduce__(self) -> Any:
        return divmod, (1, 0)


# Through a worker


class Zoo(torch.utils.data.Dataset):
    def __getitem__(self, i: int) -> Any:
        return {name: make() for name, make in ZOO.items()}

    def __len__(self) -> int:
        return 2


def as_it_is(sample: Any) -> Any:
    return sample


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_kind_of_tensor_comes_from_a_worker(strategy):
    loader = labkit.DataLoader(
        Zoo(), batch_size=None, num_workers=1, collate_fn=as_it_is, sharing_strategy=strategy
    )
    for batch in loader:
        for name, make in ZOO.items():
            check(batch[name], make())


class Drawn(torch.utils.data.Dataset):
    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples

    def __getitem__(self, i: int) -> Any:
        return self.samples[i]

    def __len__(self) -> int:
        return len(self.samples)


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=4)  # each starts a worker
@given(samples=st.lists(st.one_of(tensors(), arrays()), min_size=4, max_size=60))
def test_any_samples_come_from_a_worker_as_they_are(strategy, samples):
    loader = labkit.DataLoader(
        Drawn(samples),
        batch_size=None,
        num_workers=1,
        collate_fn=as_it_is,
        sharing_strategy=strategy,
        multiprocessing_context="fork",
    )
    assert_same(list(loader), list(map(resolved, samples)))
