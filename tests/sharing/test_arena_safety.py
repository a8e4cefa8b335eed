"""Nobody sees a slot twice: what is kept of a received batch keeps its bytes, whatever happens.

A state machine does to loaders and batches what users do, in any order. Beside every array that it
keeps stands a copy in plain memory, to which the same is done; after each step the two are equal,
and no two living batches overlap.
"""

import contextlib
import copy
import gc
import io
import itertools
import multiprocessing
import os
import pickle
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import Phase, settings
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
from torch.utils.data import default_collate as torch_default_collate

import labkit
from labkit.errors import WorkerDied
from labkit.sharing.arena import Arena, slot_size
from labkit.sharing.arena_strategy import ArenaReceiver
from tests import comparison
from tests.datasets import Mapped
from tests.sharing import residence

SIZES = [3, 1000, 5000, 20_000]  # int32 elements of a sample; all samples of a batch have the same


def sample(index: int) -> dict[str, Any]:
    """Every element tells the index, so that bytes of another batch cannot pass."""
    size = SIZES[index // 2 % len(SIZES)]
    return {"x": torch.full((size,), index, dtype=torch.int32), "y": [np.full((2, 3), index)]}


def arrays(samples):
    """A collate function that does not know labkit and returns numpy arrays."""
    return {"x": np.stack([s["x"] for s in samples]), "y": [np.stack([s["y"][0] for s in samples])]}


def in_the_slot(samples):
    size = len(samples[0]["x"])
    x = labkit.empty_shared((len(samples), size), torch.int32)
    torch.stack([s["x"] for s in samples], out=x)
    return {"x": x, "y": [torch.stack([torch.as_tensor(s["y"][0]) for s in samples])]}


COLLATES = {"default": None, "arrays": arrays, "in the slot": in_the_slot}

VIEWS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda a: a,
    "a slice": lambda a: a[1:],
    "every second element": lambda a: a[..., ::2],
    "transposed": lambda a: a.swapaxes(0, 1),
    "numpy or torch": lambda a: a.numpy() if isinstance(a, torch.Tensor) else torch.from_numpy(a),
    "another dtype": lambda a: a.view(torch.uint8 if isinstance(a, torch.Tensor) else np.uint8),
    "one row": lambda a: a[0],
    "memoryview": lambda a: np.asarray(memoryview(np.asarray(a))),
    "in containers": lambda a: {"list": [(a[:1],)]},
}


def array(thing: Any) -> np.ndarray:
    """What is seen, as an array of numpy: torch's threads do not survive a fork."""
    while isinstance(thing, dict | list | tuple):
        (thing,) = thing.values() if isinstance(thing, dict) else thing
    return np.asarray(thing)


class Leaf:
    """An array of a received batch: where it lies, and who may not be surprised by a write."""

    def __init__(self, real: Any) -> None:
        seen = array(real)
        self.start, self.end = seen.ctypes.data, seen.ctypes.data + seen.nbytes
        self.is_seen_elsewhere = False  # by a forked child, whose copies know of no writes


class Held:
    """Something that is kept, and its copy in plain memory."""

    def __init__(self, leaf: Leaf, real: Any, copy: Any) -> None:
        self.leaf, self.real, self.copy = leaf, real, copy

    def is_unchanged(self) -> bool:
        return np.array_equal(array(self.real), array(self.copy))


class Running:
    """A loader that is being iterated; its indices go on for ever and never come again."""

    indices = itertools.count()

    def __init__(self, num_workers: int, persistent: bool, collate: str) -> None:
        self.collate = collate
        self.loader = labkit.DataLoader(
            Mapped(sample, 1 << 40),
            batch_sampler=self,
            num_workers=num_workers,
            persistent_workers=persistent and num_workers > 0,
            multiprocessing_context="fork" if num_workers else None,
            collate_fn=COLLATES[collate],
            sharing_strategy="arena",
        )
        self.batches = iter(self.loader)

    def __iter__(self) -> Iterator[list[int]]:
        while True:
            start = 2 * next(Running.indices)
            yield [start, start + 1]

    def take(self) -> tuple[Any, Any]:
        """A batch, and what it is to be, told by the index that it holds."""
        batch = next(self.batches)
        index = int(array(batch["y"])[0, 0, 0])
        samples = [sample(index), sample(index + 1)]
        return batch, arrays(samples) if self.collate == "arrays" else torch_default_collate(
            samples
        )

    def close(self) -> None:
        self.batches.close()
        self.loader.close()


class Child:
    """A forked process that looks at all that is held, when it is asked to."""

    def __init__(self, held: list[Held]) -> None:
        question, self.ask = os.pipe()
        self.answer, verdict = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self.ask)
                os.read(question, 1)
                if all(thing.is_unchanged() for thing in held):
                    os.write(verdict, b"unchanged")
            finally:
                os._exit(0)
        os.close(question)
        os.close(verdict)

    def sees_what_it_saw(self) -> bool:
        """Ask, and let it end."""
        os.write(self.ask, b"?")
        verdict = os.read(self.answer, 9)
        os.waitpid(self.pid, 0)
        os.close(self.ask)
        os.close(self.answer)
        return verdict == b"unchanged"


class Readers(RuleBasedStateMachine):
    places = st.integers(0, 1000)

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Held] = []
        self.pickled: list[tuple[bytes, np.ndarray]] = []
        self.children: list[Child] = []
        self.running: list[Running] = []

    @initialize(num_workers=st.integers(0, 2), persistent=st.booleans())
    def start_a_loader(self, num_workers, persistent):
        self.running.append(Running(num_workers, persistent, "default"))

    def one(self, things, place):
        return things[place % len(things)]

    @precondition(lambda self: len(self.running) < 3)
    @rule(
        num_workers=st.integers(0, 2),
        persistent=st.booleans(),
        collate=st.sampled_from(sorted(COLLATES)),
    )
    def start_another_loader(self, num_workers, persistent, collate):
        self.running.append(Running(num_workers, persistent, collate))

    @rule(place=places, views=st.lists(st.sampled_from(sorted(VIEWS)), max_size=3))
    def take(self, place, views):
        """Take a batch and keep some views of each of its arrays, or none."""
        batch, copy = self.one(self.running, place).take()
        for real, expected in [(batch["x"], copy["x"]), (batch["y"][0], copy["y"][0])]:
            assert type(real) is type(expected)
            assert np.array_equal(array(real), array(expected))
            leaf = Leaf(real)
            for view in views:
                self.held.append(Held(leaf, VIEWS[view](real), VIEWS[view](expected)))

    @rule(place=places, number=st.integers(1, 8))
    def take_some_and_keep_none(self, place, number):
        for _ in range(number):
            batch, copy = self.one(self.running, place).take()
            assert np.array_equal(array(batch["x"]), array(copy["x"]))

    @precondition(lambda self: self.held)
    @rule(place=places, view=st.sampled_from(sorted(VIEWS)))
    def view(self, place, view):
        held = self.one(self.held, place)
        real, copy = array(held.real), array(held.copy)
        if real.ndim < 2 or not real.flags.c_contiguous:
            view = "itself"
        self.held.append(Held(held.leaf, VIEWS[view](real), VIEWS[view](copy)))

    @precondition(lambda self: self.held)
    @rule(place=places, value=st.integers(0, 100))
    def write_in_place(self, place, value):
        held = self.one(self.held, place)
        if not held.leaf.is_seen_elsewhere:
            array(held.real)[...] = value
            array(held.copy)[...] = value

    @precondition(lambda self: self.held)
    @rule(place=places)
    def drop(self, place):
        del self.held[place % len(self.held)]

    @precondition(lambda self: self.held)
    @rule(numbers=st.integers(1, 5))
    def drop_in_other_threads(self, numbers):
        threads = [
            threading.Thread(target=lambda: self.held and self.held.pop()) for _ in range(numbers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    @precondition(lambda self: self.held)
    @rule()
    def drop_in_a_cycle(self):
        cycle: list[Any] = [self.held.pop(0)]
        cycle.append(cycle)

    @rule()
    def collect_garbage(self):
        gc.collect()

    @rule(place=places)
    def break_and_iterate_again(self, place):
        running = self.one(self.running, place)
        del running.batches
        running.batches = iter(running.loader)

    @precondition(lambda self: len(self.running) > 1)
    @rule(place=places)
    def close_a_loader(self, place):
        self.running.pop(place % len(self.running)).close()

    @rule(place=places)
    def kill_a_worker(self, place):
        running = self.one(self.running, place)
        if running.loader.num_workers == 0:
            return
        os.kill(running.batches._pool.pid(0), signal.SIGKILL)
        with pytest.raises(WorkerDied):
            for _ in range(100):
                batch, copy = running.take()
                assert np.array_equal(array(batch["x"]), array(copy["x"]))
        running.batches = iter(running.loader)

    @precondition(lambda self: self.held)
    @rule(place=places)
    def pickle(self, place):
        held = self.one(self.held, place)
        self.pickled.append((pickle.dumps(held.real), array(held.copy).copy()))

    @precondition(lambda self: len(self.children) < 2)
    @rule()
    def fork_a_child_that_looks(self):
        for held in self.held:
            held.leaf.is_seen_elsewhere = True
        self.children.append(Child(self.held))

    @precondition(lambda self: self.held)
    @rule(number=st.integers(6, 10), closes=st.booleans())
    def drop_all_that_a_child_sees(self, number, closes):
        child = Child(self.held)
        self.held.clear()
        for running in self.running:
            for _ in range(number):
                running.take()
        if closes:
            running.close()
            running.batches = iter(running.loader)
        assert child.sees_what_it_saw()

    @precondition(lambda self: self.children)
    @rule()
    def ask_a_child(self):
        assert self.children.pop(0).sees_what_it_saw()

    @invariant()
    def what_is_held_keeps_its_bytes(self):
        assert all(held.is_unchanged() for held in self.held)

    @invariant()
    def living_batches_do_not_overlap(self):
        leaves = sorted({held.leaf for held in self.held}, key=lambda leaf: leaf.start)
        for leaf, following in itertools.pairwise(leaves):
            assert leaf.end <= following.start

    def teardown(self):
        for running in self.running:
            running.close()
        unchanged = [held.is_unchanged() for held in self.held]
        unchanged += [child.sees_what_it_saw() for child in self.children]
        self.held.clear()
        assert all(unchanged)
        for message, expected in self.pickled:
            assert np.array_equal(array(pickle.loads(message)), expected)


def read(**options: Any) -> None:
    # Not shrunk: with processes in it that would take minutes, and 20 steps can be read.
    phases = [Phase.reuse, Phase.generate]
    options = {"stateful_step_count": 20, "phases": phases, **options}
    gc.collect()
    gc.freeze()  # so that the machine's collections are short
    try:
        run_state_machine_as_test(Readers, settings=settings(**options))
    finally:
        gc.unfreeze()


def test_what_a_reader_keeps_never_changes():
    read()


# The test of the test: with each of these bugs it fails.


def return_slots_at_once(monkeypatch):
    opened, noted = ArenaReceiver.open, ArenaReceiver._note_death

    def open_and_return(self, handle, fds):
        memory = opened(self, handle, fds)
        self._dead.append([*self._held.values()][-1])
        return memory

    def note_death(self, ref):
        if self._closed:
            noted(self, ref)
        else:
            del self._held[id(ref)]

    monkeypatch.setattr(ArenaReceiver, "open", open_and_return)
    monkeypatch.setattr(ArenaReceiver, "_note_death", note_death)


def free_slots_of_this_process_at_once(monkeypatch):
    allocate = Arena.allocate

    def allocate_and_free(self, nbytes):
        memory = allocate(self, nbytes)
        slot = self._used[memory_address(memory)].slot
        self._classes[slot.nbytes].free.append(slot)
        return memory

    monkeypatch.setattr(Arena, "allocate", allocate_and_free)


def memory_address(memory: Any) -> int:
    return np.frombuffer(memory, np.uint8).ctypes.data


def forget_that_a_child_was_forked(monkeypatch):
    monkeypatch.setattr(ArenaReceiver, "note_fork", lambda self, child: None)


def discard_everything_when_a_loader_closes(monkeypatch):
    closed = ArenaReceiver.close

    def close_and_discard(self, worker_pid):
        closed(self, worker_pid)
        for segment in self._segments.values():
            segment.discard(0, segment.nbytes)

    monkeypatch.setattr(ArenaReceiver, "close", close_and_discard)


@pytest.mark.parametrize(
    "plant",
    [
        return_slots_at_once,
        free_slots_of_this_process_at_once,
        forget_that_a_child_was_forked,
        discard_everything_when_a_loader_closes,
    ],
)
def test_a_planted_bug_is_found(monkeypatch, plant):
    plant(monkeypatch)
    # Processes are not on time to the instruction: hypothesis may call what it found flaky.
    with pytest.raises((AssertionError, Flaky)):
        read(max_examples=300, database=None, derandomize=True)


# What users do with a received batch: the same as with PyTorch's.


def images(index):
    return torch.arange(index, index + 12, dtype=torch.float32).view(3, 4)


def received(loader_class, **options):
    """The first of two batches of images; when it is used, its worker is gone."""
    first, _ = loader_class(
        Mapped(images, 4), batch_size=2, num_workers=1, multiprocessing_context="fork", **options
    )
    return first


def saved_and_loaded(batch):
    file = io.BytesIO()
    torch.save(batch, file)
    file.seek(0)
    return torch.load(file)


def saved_bytes(batch):
    file = io.BytesIO()
    torch.save(batch[0], file)
    return len(file.getvalue())


def written_through_numpy(batch):
    batch.numpy()[:, 0] = -1
    return batch


def written_through_a_view(batch):
    batch[0].view(-1)[3] = -1
    return batch


def a_leaf_with_gradients(batch):
    batch.requires_grad_()
    (batch**2).sum().backward()
    return batch.grad


def facts(batch):
    storage = batch.untyped_storage()
    return (
        batch.dtype, batch.shape, batch.stride(), batch.storage_offset(), storage.nbytes(),
        storage.resizable(), batch.device, batch.layout, batch.is_leaf, batch.requires_grad,
        batch.is_pinned(), batch.numpy().flags.writeable,
    )  # fmt: skip


USES: dict[str, Callable[[torch.Tensor], Any]] = {
    "its facts": facts,
    "torch.save": saved_and_loaded,
    "bytes saved of a view": saved_bytes,
    "pickle": lambda batch: pickle.loads(pickle.dumps(batch)),
    "deepcopy": copy.deepcopy,
    "numpy": lambda batch: batch.numpy(),
    "a write through numpy": written_through_numpy,
    "a write through a view": written_through_a_view,
    "in-place arithmetic": lambda batch: batch.add_(1).mul_(2),
    "requires_grad_": a_leaf_with_gradients,
    "share_memory_": lambda batch: (batch.share_memory_(), batch.is_shared()),
    "a write after share_memory_": lambda batch: batch.share_memory_().add_(1),
    "resize_ to less": lambda batch: batch.resize_(1, 5),
    "resize_ to less and back": lambda batch: batch.resize_(5).resize_(2, 3, 4),
    "resize_ to more": lambda batch: batch.resize_(100, 100),
    "set_ to a part": lambda batch: torch.empty(0).set_(batch.untyped_storage(), 2, (3,)),
    "to another dtype": lambda batch: batch.to(torch.float64),
    "bytes of its storage": lambda batch: bytes(batch.untyped_storage().tolist()),
}


def outcome(use, batch):
    try:
        return use(batch)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("strategy", sorted(labkit.get_all_sharing_strategies()))
@pytest.mark.parametrize("use", USES)
def test_a_received_batch_can_be_used_as_pytorchs(use, strategy):
    theirs = outcome(USES[use], received(torch.utils.data.DataLoader))
    ours = outcome(USES[use], received(labkit.DataLoader, sharing_strategy=strategy))
    assert [*comparison.differences(ours, theirs, strides=True)] == []


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("strategy", sorted(labkit.get_all_sharing_strategies()))
def test_a_list_of_a_loader_holds_the_right_batches(strategy, num_workers):
    batches = labkit.DataLoader(
        Mapped(sample, 200), batch_size=2, num_workers=num_workers, sharing_strategy=strategy
    )
    for number, batch in enumerate(list(batches)):
        expected = torch_default_collate([sample(2 * number), sample(2 * number + 1)])
        assert torch.equal(batch["x"], expected["x"])
        assert torch.equal(batch["y"][0], expected["y"][0])


def echo(inbox, outbox):
    while (batch := inbox.get()) is not None:
        outbox.put((batch + 1).numpy().tobytes())


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("processes", [multiprocessing, torch.multiprocessing])
def test_a_received_batch_can_be_sent_to_another_process(processes, method):
    context = processes.get_context(method)
    inbox, outbox = context.SimpleQueue(), context.SimpleQueue()
    child = context.Process(target=echo, args=(inbox, outbox))
    child.start()
    iterator = iter(labkit.DataLoader(Mapped(images, 200), batch_size=2, num_workers=1))
    for number in range(20):
        batch = next(iterator)
        inbox.put(batch)
        del batch
        next(iterator)
        expected = torch.stack([images(4 * number), images(4 * number + 1)]) + 1
        assert outbox.get() == expected.numpy().tobytes()
    inbox.put(None)
    child.join()
    iterator.close()
    for queue in (inbox, outbox):
        queue.close()


# One case each of what was once wrong.


def iterator_of(function, **options):
    options = {"batch_size": 2, "num_workers": 1, "multiprocessing_context": "fork", **options}
    return iter(labkit.DataLoader(Mapped(function, 10_000), **options))


def the_same_slot_twice(samples):
    if not hasattr(the_same_slot_twice, "slot"):
        the_same_slot_twice.slot = torch.stack(samples, out=labkit.empty_shared((2, 5000)))
    return the_same_slot_twice.slot


def test_of_two_batches_in_one_slot_one_outlives_the_other():
    iterator = iterator_of(lambda i: torch.full((5000,), i + 1.0), collate_fn=the_same_slot_twice)
    first, second = next(iterator), next(iterator)
    iterator.close()
    del first
    gc.collect()
    assert (second == torch.tensor([[1.0], [2.0]])).all()


def test_two_processes_may_iterate_a_loader_that_was_forked_with_them():
    """With num_workers=0, as ranks that are forked after a first look at the loader do."""
    batches = labkit.DataLoader(Mapped(lambda i: torch.full((1000,), i), 4000), batch_size=4)
    next(iter(batches))

    def wrong() -> int:
        count = 0
        for number, batch in enumerate(batches):
            first = 4 * number + torch.arange(4)[:, None]
            os.sched_yield()
            count += not (batch == first).all()
        return min(count, 100)

    pid = os.fork()
    if pid == 0:
        os._exit(wrong())
    assert wrong() == 0
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


remembered: Any = None


def sum_of_remembered(index):
    return torch.tensor([float(remembered.sum()), index])


def test_workers_keep_seeing_a_batch_that_the_main_process_dropped():
    """A batch in a global variable is what forked workers see of it at their start, for good."""
    global remembered
    source = iterator_of(lambda i: torch.full((100,), 1.0 + i))
    remembered = next(source)
    expected = float(remembered.sum())
    with contextlib.closing(iterator_of(sum_of_remembered)) as iterator:
        next(iterator)
        remembered = None
        for _ in range(20):
            next(source)
        source.close()
        for _ in range(20):
            assert (next(iterator)[:, 0] == expected).all()


def test_forks_cost_no_slots_once_the_children_are_gone():
    iterator = iterator_of(lambda i: torch.full((1 << 16,), i), batch_size=1)
    for _ in range(100):
        batch = next(iterator)
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    del batch
    mapped = sum(nbytes for _, nbytes in residence.shared_mappings())
    assert mapped <= 16 * slot_size(8 << 16)
    iterator.close()


def test_a_batch_may_be_held_across_a_fork_beside_many_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    many = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]  # more than select() can watch
    try:
        iterator = iterator_of(images)
        batch = next(iterator)
        child = Child([])
        del batch
        next(iterator)
        assert child.sees_what_it_saw()
        iterator.close()
    finally:
        for fd in many:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
