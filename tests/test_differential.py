"""The same batches as PyTorch's DataLoader, from the same seed, over random configurations."""

import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import default_collate as torch_default_collate

import labkit
from tests.comparison import differences, in_any_order
from tests.datasets import (
    LEAVES,
    Pair,
    Recipe,
    Samples,
    SamplesByBatch,
    ShardedStream,
    SizedStream,
    Stream,
    list_of_samples,
    shift_by_worker,
)

MAPS = {"map": Samples, "map by batch": SamplesByBatch}
STREAMS = {"stream": Stream, "sized stream": SizedStream, "sharded stream": ShardedStream}
DATASETS = {**MAPS, **STREAMS}


class EagerSampler(Sampler[int]):
    """Draws when its iterator is made, and not when that is first asked."""

    def __init__(self, length: int, generator: torch.Generator | None) -> None:
        self.length = length
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(self.length, generator=self.generator).tolist())

    def __len__(self) -> int:
        return self.length


class UnevenBatches(Sampler[list[int]]):
    """Batches of 1, 2, 3, 1, 2, 3 … indices."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[list[int]]:
        start, size = 0, 1
        while start < self.length:
            yield list(range(start, min(start + size, self.length)))
            start, size = start + size, size % 3 + 1


# (dataset, generator) → sampler
SAMPLERS: dict[str, Callable[[Any, torch.Generator | None], Any]] = {
    "sequential": lambda d, g: SequentialSampler(d),
    "list": lambda d, g: list(range(len(d)))[::-1],
    "random": lambda d, g: RandomSampler(d, generator=g),
    "random, with replacement": lambda d, g: RandomSampler(d, True, 2 * len(d), generator=g),
    "weighted": lambda d, g: WeightedRandomSampler(range(1, len(d) + 1), 7, generator=g),
    "subset": lambda d, g: SubsetRandomSampler(range(0, len(d), 2), generator=g),
    "distributed": lambda d, g: DistributedSampler(d, num_replicas=2, rank=1),
    "eager": lambda d, g: EagerSampler(len(d), g),
}
NEED_SAMPLES = {"random", "random, with replacement", "weighted"}


class Setting(NamedTuple):
    """One configuration, and what is done with the loader."""

    dataset: str
    length: int
    recipe: Recipe
    batching: dict[str, Any]
    sampler: str | None
    batch_sampler: str | None
    workers: dict[str, Any]
    generator_seed: int | None
    global_seed: int
    collate_fn: Any
    epochs: int
    stop_after: int | None  #: break out of the first epoch after so many batches
    sharing_strategy: str

    def make(self, loader_class: Any, **ours: Any) -> Any:
        """A loader of this setting that shares nothing with another one."""
        dataset = DATASETS[self.dataset](self.length, self.recipe)
        generator = None
        if self.generator_seed is not None:
            generator = torch.Generator()
            generator.manual_seed(self.generator_seed)
        samplers: dict[str, Any] = {}
        if self.sampler is not None:
            samplers["sampler"] = SAMPLERS[self.sampler](dataset, generator)
        if self.batch_sampler == "uneven":
            samplers["batch_sampler"] = UnevenBatches(self.length)
        elif self.batch_sampler is not None:
            sampler = SAMPLERS[self.batch_sampler](dataset, generator)
            samplers["batch_sampler"] = BatchSampler(sampler, 3, drop_last=False)
        return loader_class(
            dataset,
            **self.batching,
            **samplers,
            **self.workers,
            collate_fn=self.collate_fn,
            generator=generator,
            **ours,
        )


def _containers(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(parts, max_size=3).map(tuple)
    pair = st.tuples(st.just("namedtuple"), st.tuples(parts, parts))
    return st.tuples(st.sampled_from(["dict", "list", "tuple"]), some) | pair


STRUCTURES = st.recursive(st.sampled_from(sorted(LEAVES)), _containers, max_leaves=5)


@st.composite
def configurations(
    draw: st.DrawFn, num_workers: Sequence[int], start_methods: Sequence[str] = ("fork",)
) -> Setting:
    length = draw(st.integers(0, 20))
    dataset = draw(st.sampled_from(sorted(DATASETS)))
    is_map = dataset in MAPS
    workers = draw(_workers(num_workers, start_methods))
    many = workers["num_workers"] > 1
    in_order = workers.get("in_order", True)
    batching, sampler, batch_sampler = draw(_batching(is_map, length))
    # Where the order of arrival decides who draws what, PyTorch's own batches differ each time.
    any_order = many and not in_order
    stop_after = draw(st.none() | st.integers(1, 4)) if not any_order else None
    late_ends = not is_map and workers.get("persistent_workers") and stop_after is not None
    augmented = draw(st.booleans()) and not any_order and not late_ends
    if workers["num_workers"] and not any_order:
        workers["worker_init_fn"] = draw(st.sampled_from([None, shift_by_worker]))
    collate_fns = [None, None, list_of_samples]
    if batching.get("batch_size", 1) is not None:
        collate_fns.append(torch_default_collate)
    fails_at = draw(st.none() | st.integers(0, 20)) if draw(st.integers(0, 4)) == 0 else None
    return Setting(
        dataset=dataset,
        length=length,
        recipe=Recipe(draw(STRUCTURES), augmented, fails_at),
        batching=batching,
        sampler=sampler,
        batch_sampler=batch_sampler,
        workers=workers,
        generator_seed=draw(st.none() | st.integers(0, 2**40)),
        global_seed=draw(st.integers(0, 2**31)),
        collate_fn=draw(st.sampled_from(collate_fns)),
        epochs=draw(st.integers(1, 3)),
        stop_after=stop_after,
        sharing_strategy=draw(st.sampled_from(sorted(labkit.get_all_sharing_strategies()))),
    )


@st.composite
def _workers(
    draw: st.DrawFn, num_workers: Sequence[int], start_methods: Sequence[str]
) -> dict[str, Any]:
    count = draw(st.sampled_from(num_workers))
    if count == 0:
        return {"num_workers": 0}
    return {
        "num_workers": count,
        "multiprocessing_context": draw(st.sampled_from(start_methods)),
        "persistent_workers": draw(st.booleans()),
        "prefetch_factor": draw(st.sampled_from([None, 1, 2, 3, 5])),
        "in_order": draw(st.sampled_from([True, True, True, False])),
        "timeout": draw(st.sampled_from([0, 60])),
    }


@st.composite
def _batching(
    draw: st.DrawFn, is_map: bool, length: int
) -> tuple[dict[str, Any], str | None, str | None]:
    """Arguments for batching, name of a sampler, of a batch sampler."""
    fitting = [name for name in SAMPLERS if length or name not in NEED_SAMPLES]
    batch_size = draw(st.sampled_from([None, 1, 2, 3, 4, 7]))
    batching: dict[str, Any] = {"batch_size": batch_size}
    if batch_size is not None:
        batching["drop_last"] = draw(st.booleans())
    if not is_map:
        return batching, None, None
    order = draw(st.sampled_from(["in order", "shuffle", "sampler", "sampler", "batch sampler"]))
    if order == "batch sampler":
        return {}, None, draw(st.sampled_from([*fitting, "uneven"]))
    if order == "sampler":
        return batching, draw(st.sampled_from(fitting)), None
    batching["shuffle"] = order == "shuffle" and length > 0
    return batching, None, None


class Failed(NamedTuple):
    """An exception that came instead of a batch."""

    type_name: str
    first_line: str


class Observed(NamedTuple):
    """What can be seen of a loader at work."""

    length: Any
    epochs: list[list[Any]]
    random_states: list[Any]  #: after each epoch: torch, the generator, random, numpy


def observe(setting: Setting, loader_class: Any, **ours: Any) -> Observed:
    torch.manual_seed(setting.global_seed)
    random.seed(setting.global_seed)
    np.random.seed(setting.global_seed)
    loader = setting.make(loader_class, **ours)
    try:
        length: Any = len(loader)
    except TypeError:
        length = TypeError
    epochs, states = [], []
    for epoch in range(setting.epochs):
        if isinstance(loader.sampler, DistributedSampler):
            loader.sampler.set_epoch(epoch)
        epochs.append(_one_epoch(loader, setting.stop_after if epoch == 0 else None))
        numpy_state = np.random.get_state()
        states += [torch.get_rng_state(), random.getstate(), numpy_state[1], numpy_state[2]]
        if loader.generator is not None:
            states.append(loader.generator.get_state())
    return Observed(length, epochs, states)


def _one_epoch(loader: Any, stop_after: int | None) -> list[Any]:
    batches: list[Any] = []
    iterator = iter(loader)
    while stop_after is None or len(batches) < stop_after:
        try:
            batches.append(next(iterator))
        except StopIteration:
            break
        except FileNotFoundError as error:
            batches.append(Failed(type(error).__name__, str(error).splitlines()[0]))
    return batches


def assert_the_same(ours: Observed, theirs: Observed, in_order: bool) -> None:
    assert ours.length == theirs.length
    for our_epoch, their_epoch in zip(ours.epochs, theirs.epochs, strict=True):
        if not in_order:
            our_epoch, their_epoch = in_any_order(our_epoch), in_any_order(their_epoch)
        assert list(differences(our_epoch, their_epoch, "epoch")) == []
    assert list(differences(ours.random_states, theirs.random_states, "state")) == []


def compare_with_torch(setting: Setting, **only_torch: Any) -> None:
    in_order = setting.workers.get("in_order", True) or setting.workers["num_workers"] < 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = observe(setting, labkit.DataLoader, sharing_strategy=setting.sharing_strategy)
        if only_torch:
            setting = setting._replace(workers=setting.workers | only_torch)
        theirs = observe(setting, TorchDataLoader)
    note(f"PyTorch: {theirs.epochs}")
    assert_the_same(ours, theirs, in_order)


def examples(count: int) -> settings:
    """So many with the profile "ci", a quarter of it with "dev"."""
    share = 1 if settings.default and settings.default.max_examples >= 30 else 4
    return settings(
        max_examples=max(1, count // share),
        phases=set(Phase) - {Phase.explain},  # it traces every line, which takes minutes here
        suppress_health_check=list(HealthCheck),
        deadline=None,
    )


@given(configurations(num_workers=[0]))
@examples(150)
def test_without_workers_batches_order_and_random_numbers_are_pytorchs(setting):
    compare_with_torch(setting)


@pytest.mark.timeout(600)
@given(configurations(num_workers=[1, 2, 3]))
@examples(50)
def test_with_workers_batches_order_and_random_numbers_are_pytorchs(setting):
    compare_with_torch(setting)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("method", "count"), [("spawn", 2), ("forkserver", 8)])
def test_under_every_start_method_batches_and_random_numbers_are_pytorchs(method, count):
    @given(configurations(num_workers=[2], start_methods=[method]))
    @examples(count)
    def holds(setting: Setting) -> None:
        # What PyTorch's batches are does not depend on it, only how long they take.
        compare_with_torch(setting._replace(epochs=2), multiprocessing_context="fork")

    holds()


@given(configurations(num_workers=[0, 1, 2, 3]))
@settings(max_examples=50, deadline=None)
def test_a_setting_makes_its_loader_anew_each_time(setting):
    """Nothing is shared, else the second loader would see the first one's traces."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, other = setting.make(TorchDataLoader), setting.make(TorchDataLoader)
    assert one.dataset is not other.dataset
    assert one.sampler is not other.sampler
    assert one.generator is None or one.generator is not other.generator


# The comparison is only worth something if it can fail.

SAME = {
    "tensor": torch.tensor([1.0, float("nan")]),
    "array": np.arange(3),
    "pair": Pair(1, "a"),
    "list": [b"x", 2.5, True],
}
PLANTED = {
    "a value": {"tensor": torch.tensor([1.5, float("nan")])},
    "the sign of a zero": {"list": [b"x", 2.5, -0.0]},
    "a dtype": {"tensor": torch.tensor([1.0, float("nan")], dtype=torch.float64)},
    "a shape": {"tensor": torch.tensor([[1.0, float("nan")]])},
    "a flag": {"tensor": torch.tensor([1.0, float("nan")]).requires_grad_()},
    "an array for a tensor": {"tensor": np.array([1.0, np.nan], dtype=np.float32)},
    "an array's dtype": {"array": np.arange(3, dtype=np.int32)},
    "an array's value": {"array": np.arange(1, 4)},
    "a tuple for a namedtuple": {"pair": (1, "a")},
    "a tuple for a list": {"list": (b"x", 2.5, True)},
    "an int for a bool": {"list": [b"x", 2.5, 1]},
    "a text": {"pair": Pair(1, "b")},
    "an element less": {"list": [b"x", 2.5]},
    "a key more": {"extra": 1},
}


def test_the_comparison_finds_nothing_where_nothing_differs():
    base = {**SAME, "list": [b"x", 2.5, True]}
    assert list(differences(base, SAME)) == []


@pytest.mark.parametrize("planted", PLANTED)
def test_the_comparison_finds(planted):
    theirs = {**SAME, "list": [b"x", 2.5, 0.0]} if "zero" in planted else SAME
    assert len(list(differences({**theirs, **PLANTED[planted]}, theirs))) == 1


@pytest.mark.parametrize("in_order", [True, False])
def test_the_comparison_finds_an_order_only_where_order_counts(in_order):
    batches = [torch.tensor([0, 1]), {"a": torch.tensor([2, 3])}, Failed("KeyError", "x")]
    ours = Observed(3, [batches], [])
    theirs = Observed(3, [batches[::-1]], [])
    if in_order:
        with pytest.raises(AssertionError):
            assert_the_same(ours, theirs, in_order)
    else:
        assert_the_same(ours, theirs, in_order)


@pytest.mark.parametrize(
    "planted",
    [
        {"global_seed": 2},
        {"generator_seed": 2},
        {"length": 9},
        {"epochs": 1},
        {"stop_after": 1},
        {"batching": {"batch_size": 3}},
    ],
    ids=lambda planted: next(iter(planted)),
)
def test_the_comparison_finds_another_setting(planted):
    setting = Setting(
        dataset="map",
        length=10,
        recipe=Recipe("int", augmented=True),
        batching={"batch_size": 2},
        sampler="random",
        batch_sampler=None,
        workers={"num_workers": 1},
        generator_seed=1 if "generator_seed" in planted else None,
        global_seed=1,
        collate_fn=None,
        epochs=2,
        stop_after=None,
        sharing_strategy="copy",
    )
    theirs = observe(setting, TorchDataLoader)
    assert_the_same(observe(setting, labkit.DataLoader), theirs, in_order=True)
    ours = observe(setting._replace(**planted), labkit.DataLoader)
    with pytest.raises((AssertionError, ValueError)):
        assert_the_same(ours, theirs, in_order=True)
