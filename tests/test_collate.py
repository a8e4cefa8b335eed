"""Samples → batch: what PyTorch makes of them, and words for what does not fit together."""

import re
import warnings
from collections import OrderedDict, UserList, defaultdict, deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data as torch_data
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Dataset, IterableDataset
from torch.utils.data._utils import collate as torch_collate

import labkit
from labkit.collate import collate, collate_tensor, default_collate, default_convert
from labkit.collate import default_collate_fn_map as labkit_map
from labkit.errors import CollateError, UncollatableType
from tests.comparison import differences
from tests.containers import (
    ElementwiseRow,
    FrozenRecord,
    FrozenRow,
    Point,
    Record,
    Row,
    WordyRecord,
)
from tests.sharing.crossing import Crossing

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype"),
]

STRATEGIES = sorted(labkit.get_all_sharing_strategies())
PLACES = ["main process", *STRATEGIES]
DTYPES = [
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool, torch.uint16,
    torch.uint32, torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip
NUMPY_DTYPES = ["?", "u1", "i1", "i2", "i4", "i8", "u2", "f2", "f4", "f8", "c8", "c16"]


class Tagged(torch.Tensor):
    """A tensor with something to say."""

    tag = None


# Samples: a column is the list of what the samples have at one place.


def filled(dtype: torch.dtype, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """A tensor of any dtype whose values are the bytes that the seed gives."""
    like = torch.empty(shape, dtype=dtype)
    raw = np.random.default_rng(seed).integers(0, 2, like.numel() * like.itemsize, dtype=np.uint8)
    return torch.from_numpy(raw).view(dtype).reshape(shape) if raw.size else like


shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)
seeds = st.integers(0, 2**32)


@st.composite
def tensor_columns(draw: st.DrawFn, n: int) -> list[torch.Tensor]:
    dtype, shape = draw(st.sampled_from(DTYPES)), draw(shapes)
    lay_out = draw(st.sampled_from([
        lambda t: t,
        lambda t: t.transpose(0, -1) if t.dim() > 1 else t,
        lambda t: torch.stack([t, t], dim=-1)[..., 0],
        lambda t: t[..., :1].expand(t.shape) if t.dim() and t.shape[-1] else t,
        lambda t: t.as_subclass(Tagged),
    ]))  # fmt: skip
    return [lay_out(filled(dtype, shape, draw(seeds))) for _ in range(n)]


@st.composite
def array_columns(draw: st.DrawFn, n: int) -> list[np.ndarray]:
    dtype, shape = np.dtype(draw(st.sampled_from(NUMPY_DTYPES))), draw(shapes)
    lay_out = draw(st.sampled_from([np.ascontiguousarray, np.asfortranarray, lambda a: a.T]))
    nbytes = int(np.prod(shape)) * dtype.itemsize
    make = [np.random.default_rng(draw(seeds)).integers(0, 2, nbytes, np.uint8) for _ in range(n)]
    return [lay_out(raw.view(dtype).reshape(shape)) for raw in make]


def lists_of(n: int, elements: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(elements, min_size=n, max_size=n)


def numpy_scalar_columns(n: int) -> st.SearchStrategy[list[Any]]:
    types = [np.float32, np.float64, np.int64, np.uint8, np.bool_, np.float16, np.complex64]
    return st.sampled_from(types).flatmap(lambda t: lists_of(n, st.integers(0, 100).map(t)))


def leaf_columns(n: int) -> st.SearchStrategy[list[Any]]:
    return st.one_of(
        tensor_columns(n),
        array_columns(n),
        numpy_scalar_columns(n),
        lists_of(n, st.integers(-(2**63), 2**63 - 1)),
        lists_of(n, st.floats()),
        lists_of(n, st.booleans()),
        lists_of(n, st.text(max_size=3)),
        lists_of(n, st.binary(max_size=3)),
        lists_of(n, st.text(max_size=3).map(np.str_)),
        st.integers(0, 3).flatmap(
            lambda k: lists_of(n, st.integers(0, 9).map(lambda a: range(a, a + k)))
        ),
    )


def of_list(kind: Callable[[list[Any]], Any]) -> Callable[[list[list[Any]]], list[Any]]:
    return lambda columns: [kind(list(row)) for row in zip(*columns, strict=True)]


def of_dict(kind: Callable[[dict[Any, Any]], Any]) -> Callable[[list[list[Any]]], list[Any]]:
    keys = ["image", 0, ("a", 1), "{braces}"]
    return lambda columns: [
        kind(dict(zip(keys, row, strict=False))) for row in zip(*columns, strict=True)
    ]


def a_defaultdict(entries: dict[Any, Any]) -> defaultdict[Any, Any]:
    return defaultdict(list, entries)


CONTAINERS = [
    *map(of_list, [list, tuple, Row, FrozenRow, ElementwiseRow, UserList, deque]),
    *map(of_dict, [dict, OrderedDict, Record, FrozenRecord, MappingProxyType, a_defaultdict]),
]


def batches(n: int) -> st.SearchStrategy[list[Any]]:
    """Batches of n samples of one structure."""

    def containers(columns: st.SearchStrategy[list[Any]]) -> st.SearchStrategy[list[Any]]:
        some = st.lists(columns, min_size=1, max_size=4)
        two = st.tuples(columns, columns)
        return st.one_of(
            st.builds(lambda pack, parts: pack(parts), st.sampled_from(CONTAINERS), some),
            two.map(lambda parts: [Point(*row) for row in zip(*parts, strict=True)]),
        )

    return st.recursive(leaf_columns(n), containers, max_leaves=6)


samples_of_one_structure = st.integers(1, 4).flatmap(batches)


def building_at(place: str) -> AbstractContextManager[Any]:
    """What is collated meanwhile is collated as it is in a worker with that strategy."""
    return nullcontext() if place == "main process" else InAWorker(place)


class InAWorker:
    def __init__(self, strategy: str) -> None:
        self.crossing = Crossing(strategy)

    def __enter__(self) -> None:
        self.crossing.__enter__()
        self.building = self.crossing.building()
        self.building.__enter__()

    def __exit__(self, *exc_info: Any) -> None:
        self.building.__exit__(*exc_info)
        self.crossing.__exit__(*exc_info)


def same_as_torch(ours: Any, theirs: Any) -> None:
    assert list(differences(ours, theirs, strides=True)) == []


# default_collate


@pytest.mark.parametrize("place", PLACES)
@given(samples=samples_of_one_structure)
def test_default_collate_does_what_pytorch_does(place, samples):
    theirs = torch_data.default_collate(samples)
    with building_at(place):
        same_as_torch(default_collate(samples), theirs)


@pytest.mark.parametrize("place", PLACES)
def test_every_dtype_is_stacked(place):
    for dtype in DTYPES:
        samples = [filled(dtype, (2, 3), seed) for seed in range(3)]
        with building_at(place):
            ours = default_collate(samples)
        same_as_torch(ours, torch_data.default_collate(samples))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "samples",
    [
        [torch.ones(2), torch.ones(2, dtype=torch.int64)],
        [torch.ones(2, dtype=torch.int32), torch.ones(2)],
        [np.ones(2, np.int32), np.ones(2, np.float64)],
        [np.float32(1), np.float64(2)],
        [1, 2.5],
        [True, 2],
        [1.5, 2],
        [np.float64(1), 2.5],
        [1.5, np.float32(2)],
    ],
    ids=repr,
)
def test_mixed_dtypes_are_promoted_as_pytorch_promotes_them(place, samples):
    theirs = torch_data.default_collate(samples)
    with building_at(place):
        same_as_torch(default_collate(samples), theirs)


@pytest.mark.parametrize(
    "samples",
    [
        [np.zeros(2), torch.ones(2, dtype=torch.float64)],
        [np.zeros(2), [1.0, 2.0]],
        [np.zeros(()), np.float64(1)],
        [np.zeros(()), 1.0],
    ],
    ids=repr,
)
def test_what_pytorch_takes_beside_an_array_is_taken(samples):
    same_as_torch(default_collate(samples), torch_data.default_collate(samples))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("memory_format", [torch.channels_last, torch.contiguous_format])
def test_a_batch_of_images_lies_in_memory_as_pytorchs_does(place, memory_format):
    image = torch.rand(1, 3, 4, 5).to(memory_format=memory_format)[0]
    with building_at(place):
        same_as_torch(default_collate([image] * 2), torch_data.default_collate([image] * 2))


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor, torch.quantize_per_ch")
@pytest.mark.parametrize("place", PLACES)
def test_quantized_samples_are_stacked_as_pytorch_stacks_them(place):
    samples = [torch.quantize_per_tensor(torch.ones(2) * i, 0.1, 0, torch.quint8) for i in (1, 2)]
    theirs = torch_data.default_collate(samples)
    with building_at(place):
        ours = default_collate(samples)
    assert ours.qscheme() == theirs.qscheme()
    same_as_torch(ours.int_repr(), theirs.int_repr())


def test_a_memmap_is_an_array(tmp_path):
    file = np.memmap(tmp_path / "data", np.float32, "w+", shape=(4, 3))
    file[:] = np.arange(12).reshape(4, 3)
    samples = [file[i] for i in range(4)]
    assert isinstance(samples[0], np.memmap)
    same_as_torch(default_collate(samples), torch_data.default_collate(samples))
    same_as_torch(default_convert(samples), torch_data.default_convert(samples))


def test_the_graph_is_kept_where_nothing_crosses_to_another_process():
    weight = torch.ones(2, requires_grad=True)
    batch = default_collate([weight, weight * 2])
    batch.sum().backward()
    assert weight.grad.tolist() == [3.0, 3.0]


def test_the_samples_are_left_as_they_are():
    samples = [Record(image=np.zeros(2), labels=[1, 2]), Record(image=np.ones(2), labels=[3, 4])]
    batch = default_collate(samples)
    batch["image"][:] = 7
    assert samples[0]["image"].tolist() == [0, 0]
    assert samples[0]["labels"] == [1, 2]
    assert batch.first() is batch["image"]


def test_a_mapping_that_cannot_be_copied_becomes_a_dict():
    samples = [WordyRecord(entries={"a": 1}), WordyRecord(entries={"a": 2})]
    same_as_torch(default_collate(samples), torch_data.default_collate(samples))


def test_attributes_of_containers_are_kept_as_pytorch_keeps_them():
    samples = [Record(a=1), Record(a=2)]
    samples[0].source = "the first one"
    assert default_collate(samples).source == torch_data.default_collate(samples).source


# default_convert


@given(sample=batches(1).map(lambda samples: samples[0]))
def test_default_convert_does_what_pytorch_does(sample):
    same_as_torch(default_convert(sample), torch_data.default_convert(sample))


@pytest.mark.parametrize(
    "sample",
    [None, b"bytes", np.array(["a", "b"]), np.array([None, 1]), {1, 2}, object, np.str_("text")],
    ids=repr,
)
def test_default_convert_leaves_the_rest_alone(sample):
    assert default_convert(sample) is sample
    assert torch_data.default_convert(sample) is sample


def test_default_convert_leaves_numpy_bytes_alone():
    # PyTorch asks for the name that this type had in numpy 1 and fails.
    assert default_convert(np.bytes_(b"text")) == b"text"


def test_default_convert_shares_memory_with_the_array():
    array = np.zeros(3)
    default_convert({"a": array})["a"][0] = 5
    assert array[0] == 5


# collate with a table of one's own


class Celsius(float):
    """A number of its own kind."""


class Sentence(list):
    """A list of words that belong together."""


def joined(batch: Any, *, collate_fn_map: Any = None) -> str:
    return "|".join(map(str, batch))


@pytest.mark.parametrize(
    "table",
    [
        {Celsius: joined},
        {float: joined},
        {(str, float): joined},
        {object: joined},
        {list: joined},
        {Sentence: joined, str: joined, float: joined},
    ],
    ids=lambda table: " ".join(map(str, table)),
)
def test_a_table_is_asked_as_pytorch_asks_it(table):
    samples = [[Celsius(1.5), 2.5], [Celsius(3.5), 4.5]], [Sentence("ab"), Sentence("cd")]
    for batch in samples:
        try:
            theirs = torch_collate.collate(batch, collate_fn_map=table)
        except (TypeError, RecursionError):
            with pytest.raises((TypeError, RecursionError)):
                collate(batch, collate_fn_map=table)
        else:
            same_as_torch(collate(batch, collate_fn_map=table), theirs)


def test_the_functions_of_a_table_may_go_on_with_it():
    def of_sentences(batch, *, collate_fn_map):
        return collate([len(sentence) for sentence in batch], collate_fn_map=collate_fn_map)

    table = {Sentence: of_sentences, **labkit_map}
    batch = collate([{"s": Sentence("abc")}, {"s": Sentence("d")}], collate_fn_map=table)
    same_as_torch(batch, {"s": torch.tensor([3, 1])})


def test_a_type_added_to_pytorchs_table_counts(monkeypatch):
    monkeypatch.setitem(torch_collate.default_collate_fn_map, Celsius, joined)
    monkeypatch.setitem(torch_collate.default_collate_fn_map, Point, joined)
    samples = [{"t": Celsius(1), "p": Point(1, 2)}, {"t": Celsius(2), "p": Point(3, 4)}]
    same_as_torch(default_collate(samples), torch_data.default_collate(samples))


def test_a_type_added_to_our_table_counts(monkeypatch):
    monkeypatch.setitem(labkit_map, Celsius, joined)
    assert default_collate([Celsius(1), Celsius(2)]) == "1.0|2.0"
    assert Celsius not in torch_collate.default_collate_fn_map


@pytest.mark.parametrize("known", [torch.Tensor, np.ndarray, float, int, str])
def test_a_type_replaced_in_pytorchs_table_counts(monkeypatch, known):
    # "Extend `default_collate` by in-place modifying `default_collate_fn_map`", says its docstring.
    monkeypatch.setitem(torch_collate.default_collate_fn_map, known, joined)
    for sample in (torch.zeros(()), np.zeros(2), 1.5, 1, "text"):
        same_as_torch(default_collate([sample]), torch_data.default_collate([sample]))


def test_none_may_be_in_the_table(monkeypatch):
    monkeypatch.setitem(torch_collate.default_collate_fn_map, type(None), lambda batch, **_: None)
    assert default_collate([{"mask": None}, {"mask": None}]) == {"mask": None}
    table = {type(None): lambda batch, **_: len(batch)}
    assert collate([None, None], collate_fn_map=table) == 2


# Through a loader. Every case is asked for with and without a worker: the answers are the same.


class Listed(Dataset):
    """The samples that it is given."""

    def __init__(self, *samples: Any) -> None:
        self.samples = samples

    def __getitem__(self, i: int) -> Any:
        return self.samples[i]

    def __len__(self) -> int:
        return len(self.samples)


class Made(Dataset):
    """Samples that are made anew by a function of the index."""

    def __init__(self, make: Callable[[int], Any], n: int = 2) -> None:
        self.make, self.n = make, n

    def __getitem__(self, i: int) -> Any:
        return self.make(i)

    def __len__(self) -> int:
        return self.n


class Streamed(IterableDataset):
    def __init__(self, *samples: Any) -> None:
        self.samples = samples

    def __iter__(self):
        return iter(self.samples)


SETTINGS = [{"num_workers": 0}, *({"num_workers": 1, "sharing_strategy": s} for s in STRATEGIES)]


def load(dataset: Any, **arguments: Any) -> list[Any]:
    return list(labkit.DataLoader(dataset, **arguments))


def answers(dataset: Any, **arguments: Any) -> list[Any]:
    """What comes of it: without a worker, then with one, for each strategy."""
    return [load(dataset, **arguments, **setting) for setting in SETTINGS]


def refusal(dataset: Any, kind: type[CollateError] = CollateError, **arguments: Any) -> str:
    """The one text with which it is refused, without a worker and with one."""
    texts = set()
    for setting in SETTINGS[:2]:  # a refusal comes before any strategy is asked
        with pytest.raises(kind) as caught:
            load(dataset, **arguments, **setting)
        texts.add(str(caught.value))
    assert len(texts) == 1, texts
    return texts.pop()


def test_ragged_tensors_are_named_by_index_and_shape():  # T5
    text = refusal(Made(lambda i: torch.ones(i + 1), 8), batch_size=4, sampler=[5, 6, 7, 0])
    assert "stack expects each tensor to be equal size" in text  # what people search for
    assert "dataset[5] has shape [6]" in text
    assert "dataset[6] has shape [7]" in text


def test_equal_numbers_of_elements_in_other_shapes_do_not_pass():  # T5
    text = refusal(Listed(torch.ones(2, 3), torch.ones(3, 2)), batch_size=2)
    assert "dataset[0] has shape [2, 3]" in text
    assert "dataset[1] has shape [3, 2]" in text


def test_the_way_to_a_ragged_leaf_is_told():  # T5
    samples = Made(lambda i: {"boxes": [0, (np.ones(i + 1), "text")]})
    text = refusal(samples, batch_size=2)
    assert "dataset[0]['boxes'][1][0] has shape [1]" in text
    assert "dataset[1]['boxes'][1][0] has shape [2]" in text


def test_an_iterable_datasets_samples_are_counted():  # T5
    text = refusal(Streamed(*[torch.ones(1)] * 4, torch.ones(2)), batch_size=3)
    assert "dataset[3] has shape [1], dataset[4] has shape [2]" in text


def test_lists_of_other_lengths_are_named_by_index_and_length():  # T5
    text = refusal(Listed({"a": [1, 2]}, {"a": [1]}), batch_size=2)
    assert "each element in list of batch should be of equal size" in text
    assert "dataset[0]['a'] has 2 elements, dataset[1]['a'] has 1" in text


@pytest.mark.parametrize("others", [1, {"a": 1}, [1], None], ids=repr)
def test_other_types_in_later_samples_are_refused_in_words(others):
    refusal(Listed({"x": torch.ones(1)}, {"x": others}), batch_size=2)


def turn_warnings_into_errors(worker_id: int) -> None:
    warnings.simplefilter("error")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_batch_is_built_where_it_is_shared_without_a_warning(strategy):  # T6
    (batch,) = load(
        Listed(torch.zeros(5), torch.ones(5)),
        batch_size=2,
        num_workers=1,
        sharing_strategy=strategy,
        worker_init_fn=turn_warnings_into_errors,
    )
    same_as_torch(batch, torch.stack([torch.zeros(5), torch.ones(5)]))
    kind = {"file_descriptor": "/memfd:", "arena": "/memfd:", "file_system": "/dev/shm/"}
    assert kind.get(strategy, "") in mapping_at(batch.data_ptr())


def mapping_at(address: int) -> str:
    """The line of /proc/self/maps for an address."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            first, last = (int(end, 16) for end in line.split()[0].split("-"))
            if first <= address < last:
                return line
    return ""


def a_leaf(i: int) -> torch.Tensor:
    return torch.full((2,), float(i), requires_grad=True)


def test_a_leaf_that_requires_grad_crosses_with_its_flag():  # T8
    for batches in answers(Made(a_leaf), batch_size=None):
        same_as_torch(batches, [a_leaf(0), a_leaf(1)])
        assert all(batch.is_leaf for batch in batches)


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_tensor_with_a_graph_is_refused_with_advice(strategy, batch_size):  # T8
    with pytest.raises(RuntimeError, match=r"detach\(\)"):
        load(
            Made(lambda i: a_leaf(i) * 2),
            batch_size=batch_size,
            num_workers=1,
            sharing_strategy=strategy,
        )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_stacked_leaves_have_a_graph_and_are_refused_with_advice(strategy):  # T8
    with pytest.raises(RuntimeError, match=r"detach\(\)"):
        load(Made(a_leaf), batch_size=2, num_workers=1, sharing_strategy=strategy)


def a_coo(i: int) -> torch.Tensor:
    return torch.sparse_coo_tensor([[0, 2]], [1.0 + i, 2.0], (3,))


def a_csr(i: int) -> torch.Tensor:
    return torch.sparse_csr_tensor([0, 1, 2], [1, 0], [1.0 + i, 2.0])


@pytest.mark.parametrize("sparse", [a_coo, a_csr])
def test_sparse_samples_cross_as_they_are(sparse):  # T9
    for batches in answers(Made(sparse), batch_size=None):
        assert [batch.layout for batch in batches] == [sparse(0).layout] * 2
        assert [batch.to_dense().tolist() for batch in batches] == [
            sparse(i).to_dense().tolist() for i in range(2)
        ]


@pytest.mark.parametrize("sparse", [a_coo, a_csr])
def test_a_batch_of_sparse_samples_is_refused_in_words(sparse):  # T9
    text = refusal(Made(sparse), UncollatableType, batch_size=2)
    assert "sparse tensors are not" in text
    assert "dataset[0]" in text
    assert "batch_size=None" in text


def test_a_batch_of_nested_samples_is_refused_in_words():  # T9
    text = refusal(Made(lambda i: torch.nested.nested_tensor([torch.ones(2)])), batch_size=2)
    assert "nested tensors are not" in text


class Labelled(torch.Tensor):
    """A tensor with an attribute whose constructor wants a second argument."""

    @staticmethod
    def __new__(cls, data: Any, label: str) -> "Labelled":
        return torch.as_tensor(data).as_subclass(cls)

    def __init__(self, data: Any, label: str) -> None:
        self.label = label


def a_tagged(i: int) -> torch.Tensor:
    tensor = torch.full((2,), float(i)).as_subclass(Tagged)
    tensor.tag = f"number {i}"
    return tensor


def a_labelled(i: int) -> torch.Tensor:
    return Labelled([float(i), 1.0], f"number {i}")


@pytest.mark.parametrize("make", [a_tagged, a_labelled])
def test_a_tensor_subclass_keeps_type_and_attribute(make):  # T10
    for batches in answers(Made(make), batch_size=None):
        same_as_torch(batches, [make(0), make(1)])
        assert [vars(batch) for batch in batches] == [vars(make(0)), vars(make(1))]


@pytest.mark.parametrize("make", [a_tagged, a_labelled])
def test_a_batch_of_a_tensor_subclass_is_the_same_with_and_without_workers(make):  # T10
    first, *others = answers(Made(make), batch_size=2)
    same_as_torch(first, [torch_data.default_collate([make(0), make(1)])])
    for batches in others:
        same_as_torch(batches, first)
        assert vars(batches[0]) == vars(first[0])


def test_numpy_strings_become_a_list_of_strings():  # T11
    for batches in answers(Made(lambda i: np.str_("ab"[i])), batch_size=2):
        assert batches == [["a", "b"]]


@pytest.mark.parametrize("array", [np.array("text"), np.array([{}, None]), np.array(b"bytes")])
def test_arrays_that_are_no_numbers_are_named_by_key_and_position(array):  # T11
    samples = Listed({"ok": 1, "name": array}, {"ok": 1, "name": array})
    text = refusal(samples, UncollatableType, batch_size=2)
    assert "dataset[0]['name']" in text
    assert f"found {array.dtype}" in text
    with pytest.raises(TypeError):
        load(samples, batch_size=2)


@pytest.mark.parametrize("thing", [object, {1, 2}, 1j, slice(1)], ids=repr)
def test_what_cannot_be_collated_is_named_by_key_and_position(thing):  # T11
    text = refusal(Listed([1, {"x": thing}]), UncollatableType)
    assert "default_collate: batch must contain tensors, numpy arrays, numbers, dicts" in text
    assert "dataset[0][1]['x']" in text
    assert str(type(thing)) in text


@pytest.mark.parametrize(
    ("later", "words"),
    [
        ({"a": 1}, ["it lacks 'b'"]),
        ({"a": 1, "b": 2, "c": 3}, ["it has 'c' besides"]),
        ({"a": 1, "{0}": 2}, ["it lacks 'b'", "it has '{0}' besides"]),
    ],
    ids=repr,
)
def test_other_keys_in_a_later_sample_are_named(later, words):  # T14
    text = refusal(Listed({"a": 1, "b": 2}, {"a": 1, "b": 2}, later), batch_size=3)
    assert text.startswith("dataset[2] has other keys than dataset[0]")
    assert all(word in text for word in words)


def test_the_same_keys_in_another_order_are_the_same_keys():  # T14
    for batches in answers(Listed({"a": 1, "b": 2}, {"b": 4, "a": 3}), batch_size=2):
        same_as_torch(batches, [{"a": torch.tensor([1, 3]), "b": torch.tensor([2, 4])}])


@pytest.mark.parametrize("samples", [(1, None, 3), (torch.ones(1), None), (None, None)], ids=repr)
def test_a_sample_that_is_none_is_named(samples):  # T15
    text = refusal(Listed(*samples), UncollatableType, batch_size=3)
    assert f"dataset[{samples.index(None)}] returned None" in text


def test_a_field_that_is_none_is_named():  # T15
    text = refusal(Listed({"a": [1, None]}, {"a": [1, None]}), UncollatableType, batch_size=2)
    assert re.search(r"dataset\[0\]\['a'\]\[1\] .*None", text)


def collate_what_is_there(samples: list[Any]) -> Any:
    return labkit.default_collate([sample for sample in samples if sample is not None])


def test_a_collate_function_may_leave_samples_out():  # T15
    for batches in answers(Listed(1, None, 3), batch_size=3, collate_fn=collate_what_is_there):
        same_as_torch(batches, [torch.tensor([1, 3])])


def test_a_batch_without_samples_is_named_as_such():  # T15
    dataset = Listed(None, None)
    assert "The batch is empty" in refusal(dataset, batch_size=2, collate_fn=collate_what_is_there)


# What a sample is called, where the loader does not batch by itself.


@pytest.mark.parametrize("kind", [Listed, Streamed])
def test_samples_that_are_batches_already_may_be_collated(kind):
    samples = [[torch.ones(2), torch.zeros(2)], [torch.ones(3)] * 2]
    arguments = {"batch_size": None, "collate_fn": labkit.default_collate}
    for batches in answers(kind(*samples), **arguments):
        same_as_torch(batches, [torch.stack(sample) for sample in samples])


@pytest.mark.parametrize("kind", [Listed, Streamed])
def test_what_does_not_fit_in_such_a_sample_is_told(kind):
    samples = [[torch.ones(2)], [torch.ones(2), torch.ones(3)]]
    arguments = {"batch_size": None, "collate_fn": labkit.default_collate}
    text = refusal(kind(*samples), **arguments)
    assert "has shape [2]" in text
    assert "has shape [3]" in text


def test_positions_are_told_where_no_dataset_is_known():
    with pytest.raises(CollateError, match=r"batch\[0\]\['a'\] has shape \[1\], batch\[1\]") as e:
        default_collate([{"a": torch.ones(1)}, {"a": torch.ones(2)}])
    assert e.value.positions == (0, 1)
    assert e.value.path == ("a",)
    assert e.value.indices is None


def test_pytorchs_tests_of_the_error_still_hold():
    for samples, kind in (
        ([torch.ones(1), torch.ones(2)], RuntimeError),
        ([[1], [1, 2]], RuntimeError),
        ([object()], TypeError),
        ([None], TypeError),
    ):
        for function in (default_collate, torch_data.default_collate):
            with pytest.raises(kind):
                function(samples)


def test_the_tables_functions_can_be_called_by_name():
    same_as_torch(collate_tensor([torch.ones(2)] * 2), torch.ones(2, 2))
