"""What has gone wrong for others on a batch's way between processes, and the right answers.

T1 to T4, T7, T12, T13, T16 and T17; the cases of collating are in test_collate.py, those of single
objects in sharing/test_pickling.py.
"""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch.utils.data import Dataset

import labkit
from labkit.channel import Channel, handed_over
from labkit.sharing import BatchPickler, empty_shared, loads, make_receiver, make_sender
from tests import leftovers
from tests.comparison import differences
from tests.sharing.crossing import Crossing

STRATEGIES = sorted(labkit.get_all_sharing_strategies())
ROOT = Path(__file__).parent.parent
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")
each_strategy = pytest.mark.parametrize("strategy", STRATEGIES)


class Made(Dataset):
    """Samples that are made anew by a function of the index."""

    def __init__(self, make: Callable[[int], Any], n: int) -> None:
        self.make, self.n = make, n

    def __getitem__(self, i: int) -> Any:
        return self.make(i)

    def __len__(self) -> int:
        return self.n


def same(ours: Any, theirs: Any) -> bool:
    return list(differences(ours, theirs, strides=True)) == []


def run(program: str, *arguments: str, small_shm: bool = False) -> dict[str, str]:
    """Run a program in a process of its own; what it printed as `name: value`."""
    command = [sys.executable, "-W", "ignore", "-c", PRELUDE + textwrap.dedent(program), *arguments]
    if small_shm:
        mount = 'mount -t tmpfs -o size=8m tmpfs /dev/shm && exec "$@"'
        command = ["unshare", "-m", "sh", "-c", mount, "sh", *command]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "Exception ignored" not in done.stderr, done.stderr
    return dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)


PRELUDE = """
import os, resource, sys, time
import psutil
import torch
import labkit

def n_fds():
    return len(os.listdir("/proc/self/fd"))

class Ones(torch.utils.data.Dataset):
    def __init__(self, n, *shape):
        self.n, self.shape = n, shape
    def __getitem__(self, i):
        return torch.full(self.shape, float(i))
    def __len__(self):
        return self.n
"""


# T1: a small /dev/shm


def can_have_a_small_shm() -> bool:
    if sys.platform != "linux" or os.geteuid() != 0:
        return False
    mount = ["unshare", "-m", "sh", "-c", "mount -t tmpfs -o size=8m tmpfs /dev/shm"]
    try:
        return subprocess.run(mount, capture_output=True, timeout=20).returncode == 0
    except OSError:
        return False


T1 = """
for how, collate in (("default", None), ("custom", lambda samples: torch.stack(samples) * 1)):
    loader = labkit.DataLoader(
        Ones(8, 3, 512, 512),
        batch_size=4,
        num_workers=1,
        collate_fn=collate,
        sharing_strategy=sys.argv[1],
    )
    began = time.monotonic()
    try:
        print(how, "means:", [int(batch.mean()) for batch in loader])
    except Exception as error:
        print(how, "error:", type(error).__name__, isinstance(error, RuntimeError))
        print(how, "facts:", error.wanted, error.free)
        print(how, "message:", str(error))
        del error
    print(how, "in time:", time.monotonic() - began < 5)
    print(how, "left:", os.listdir("/dev/shm"))
    print(how, "free:", os.statvfs("/dev/shm").f_bavail * os.statvfs("/dev/shm").f_frsize)
"""


@pytest.mark.skipif(
    not can_have_a_small_shm(), reason="mounting a private /dev/shm takes root and Linux"
)
@each_strategy
def test_a_full_dev_shm_hinders_none_or_is_one_error_with_ways_out(strategy):  # T1
    said = run(T1, strategy, small_shm=True)
    for how in ("default", "custom"):
        assert said[f"{how} left"] == "[]"
        assert said[f"{how} free"] == str(8 << 20)
        if strategy != "file_system":
            assert said[f"{how} means"] == "[1, 5]"
            continue
        assert said[f"{how} error"] == "SharedMemoryFull True"
        wanted, free = map(int, said[f"{how} facts"].split())
        assert wanted == 4 * 3 * 512 * 512 * 4
        assert free <= 8 << 20
        for words in (f"{wanted:,}", f"{free:,}", "sharing_strategy=", "size=", "smaller batches"):
            assert words in said[f"{how} message"]
        assert said[f"{how} in time"] == "True"


# T2: a cell that is run again and again


@linux_only
@each_strategy
def test_loaders_before_the_last_release_workers_and_memory(strategy):  # T2
    def segments() -> Counter:
        return Counter(thing for thing in leftovers.take() if type(thing).__name__ == "Mapping")

    kept, workers, held = [], [], []
    for _ in range(5):
        loader = labkit.DataLoader(
            Made(lambda i: torch.full((1000,), float(i)), 6),
            batch_size=2,
            num_workers=2,
            persistent_workers=True,
            sharing_strategy=strategy,
        )
        for batch in loader:
            last = batch
        kept = [last]
        del batch
        workers.append(len(psutil.Process().children(recursive=True)))
        gc.collect()
        held.append(sum(mapping.size * n for mapping, n in segments().items()))
    assert workers[1:] == workers[:-1]
    assert max(held[1:]) <= 2 * held[0]
    assert kept[0][:, 0].tolist() == [4.0, 5.0]
    loader.close()


# T3: no more descriptors

T3 = """
fds = n_fds()
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (fds + 60, hard))
iterator = iter(labkit.DataLoader(Ones(200, 2), num_workers=1, sharing_strategy=sys.argv[1]))
kept, rest = [], []
try:
    for batch in iterator:
        kept.append(batch)
except Exception as error:
    print("error:", type(error).__name__, isinstance(error, RuntimeError), error.limit == fds + 60)
    print("message:", str(error))
print("kept:", len(kept))
print("right:", all(batch[0].tolist() == [float(i)] * 2 for i, batch in enumerate(kept)))
batch = None
kept.clear()
try:
    for batch in iterator:
        rest.append(int(batch[0, 0]))
except RuntimeError as error:
    print("then:", type(error).__name__)
batch = None
print("in order:", rest == sorted(set(rest)) and rest[:1] != [0])
iterator.close()
del iterator
print("fds:", fds, n_fds())
print("children:", psutil.Process().children())
"""


@linux_only
@each_strategy
def test_descriptors_that_run_out_are_an_error_with_ways_out(strategy):  # T3
    said = run(T3, strategy)
    before, after = map(int, said["fds"].split())
    assert after <= before
    assert said["children"] == "[]"
    assert said["right"] == "True"
    assert said["in order"] == "True"  # however it goes on: it neither hangs nor mixes batches
    if strategy != "file_descriptor":
        assert said["kept"] == "200"
        return
    assert said["error"] == "TooManyOpenFiles True True"
    assert int(said["kept"]) > 20
    for words in ("Too many open files", "ulimit -n", "sharing_strategy"):
        assert words in said["message"]
    assert "ancdata" not in said["message"]


# T4: what a kept view keeps


@linux_only
@each_strategy
def test_a_kept_view_keeps_its_memory_and_no_more(strategy):  # T4
    def open_here() -> int:
        return len(os.listdir("/proc/self/fd"))

    dataset = Made(lambda i: {"d1": np.full((50, 2), i), "d2": np.zeros((50, 2))}, 640)
    before, kept = open_here(), []
    loader = labkit.DataLoader(dataset, batch_size=64, num_workers=1, sharing_strategy=strategy)
    for batch in loader:
        kept.append(batch["d1"].numpy())
    del batch
    gc.collect()
    assert [int(view[0, 0, 0]) for view in kept] == list(range(0, 640, 64))
    files = {"file_descriptor": 10, "arena": open_here() - before}
    assert open_here() - before == files.get(strategy, 0)
    assert open_here() - before <= 10  # an arena has few segments, whatever is kept
    mapped = [thing for thing in leftovers.take() if type(thing).__name__ == "Mapping"]
    if strategy == "copy":
        assert mapped == []
    elif strategy != "arena":
        assert len(mapped) == 10
    kept.clear()
    gc.collect()
    assert open_here() == before


# T7: empty tensors


@pytest.mark.parametrize("batch_size", [None, 1, 2])
@each_strategy
def test_empty_tensors_keep_their_shapes(strategy, batch_size):  # T7
    dataset = Made(lambda i: {"i": torch.ones(0, 2).t(), "v": torch.ones(0)}, 2)
    ours, theirs = (
        list(make(dataset, batch_size=batch_size, num_workers=1, **more))
        for make, more in (
            (labkit.DataLoader, {"sharing_strategy": strategy}),
            (torch.utils.data.DataLoader, {}),
        )
    )
    assert [{k: v.shape for k, v in batch.items()} for batch in ours] == [
        {k: v.shape for k, v in batch.items()} for batch in theirs
    ]
    if batch_size is None:
        assert same(ours, [dataset[0], dataset[1]])


# T12: views of one storage, again and again and through two workers


class Split(Dataset):
    """Views of one storage, which each worker makes once, in the memory that it shares."""

    def __init__(self, n: int) -> None:
        self.n, self.parts = n, None

    def __getitem__(self, i: int) -> Any:
        if self.parts is None:
            whole = empty_shared((100,), torch.float64)
            self.parts = whole.copy_(torch.arange(100.0)).split(10)
        return {"pair": [self.parts[i % 10], self.parts[(i + 1) % 10]], "i": i}

    def __len__(self) -> int:
        return self.n


@pytest.mark.parametrize("keep", [False, True])
@each_strategy
def test_views_of_one_storage_may_be_sent_any_number_of_times(strategy, keep):  # T12
    whole = torch.arange(100.0, dtype=torch.float64).split(10)
    loader = labkit.DataLoader(
        Split(300), batch_size=None, num_workers=2, sharing_strategy=strategy
    )
    kept = []
    for i, batch in enumerate(loader):
        one, other = batch["pair"]
        assert batch["i"] == i
        assert one.tolist() == whole[i % 10].tolist()
        assert one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
        if keep:
            kept.append(batch)
    for i, batch in enumerate(kept):
        assert same(batch["pair"], [whole[i % 10], whole[(i + 1) % 10]])


# T13: through a worker


@each_strategy
def test_a_view_of_a_large_storage_arrives_as_a_small_one(strategy):  # T13
    big = torch.arange(1 << 20)
    dataset = Made(lambda i: [big[i : i + 10 : 2], big[i].expand(100, 100)], 3)
    loader = labkit.DataLoader(dataset, batch_size=None, num_workers=1, sharing_strategy=strategy)
    for i, (part, row) in enumerate(loader):
        assert same([part, row], dataset[i])
        assert part.untyped_storage().nbytes() < 4096


# T16: conjugate views


@pytest.mark.parametrize("batch_size", [None, 1, 2])
@each_strategy
def test_conjugate_views_keep_their_values(strategy, batch_size):  # T16
    dataset = Made(lambda i: torch.tensor([i + 1j, 2 - 3j]).conj(), 2)
    expected = list(labkit.DataLoader(dataset, batch_size=batch_size))
    loader = labkit.DataLoader(
        dataset, batch_size=batch_size, num_workers=1, sharing_strategy=strategy
    )
    assert same(list(loader), expected)
    first = expected[0] if batch_size is None else expected[0][0]
    assert first.tolist() == [-1j, 2 + 3j]


def collate_conjugates(samples: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(samples).conj()


@each_strategy
def test_a_batch_may_be_a_conjugate_view(strategy):  # T16
    dataset = Made(lambda i: torch.tensor([i + 1j]), 2)
    (batch,) = labkit.DataLoader(
        dataset,
        batch_size=2,
        num_workers=1,
        collate_fn=collate_conjugates,
        sharing_strategy=strategy,
    )
    assert batch.tolist() == [[-1j], [1 - 1j]]


# T17: the sender is gone before the receiver reads


@each_strategy
def test_a_value_outlives_the_process_that_sent_it(strategy):  # T17
    ours, theirs = Channel.pair()
    receiver_pid = os.getpid()
    with handed_over(theirs):
        pid = os.fork()
    if pid == 0:
        try:
            sender = make_sender(strategy, receiver_pid)
            parts, parcel = BatchPickler(sender).dumps(torch.arange(4.0))
            theirs.send(*parts, fds=parcel.fds)
            os.kill(os.getpid(), signal.SIGKILL)  # no clean-up of any kind
        finally:
            os._exit(1)
    theirs.close()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    while not ours.inbox:
        ours.read()
    receiver = make_receiver(strategy)
    message, fds = ours.inbox.popleft()
    assert loads(message, fds, receiver).tolist() == [0, 1, 2, 3]
    receiver.close(pid)
    ours.close()


@pytest.mark.parametrize("how", ["in a close", "by SIGKILL"])
@each_strategy
def test_batches_outlive_their_workers(strategy, how):  # T17
    loader = labkit.DataLoader(
        Made(lambda i: {"t": torch.full((1000,), float(i)), "a": np.full(10, i)}, 8),
        batch_size=None,
        collate_fn=unchanged,
        num_workers=2,
        sharing_strategy=strategy,
    )
    iterator = iter(loader)
    kept = [next(iterator) for _ in range(4)]
    if how == "by SIGKILL":
        for worker in multiprocessing.active_children():
            worker.kill()
    iterator.close()
    expected = [loader.dataset[i] for i in range(4)]
    assert same(kept, expected)
    kept[1]["t"] += 1
    kept[1]["a"] += 1
    assert same(kept[2], expected[2])
    assert same(kept[1], {"t": expected[2]["t"] - 1 + 1, "a": np.full(10, 2)})


def unchanged(sample: Any) -> Any:
    return sample


# More of the kind: what users do with a batch that they have.


@each_strategy
def test_a_received_batch_can_do_what_any_tensor_can(strategy, tmp_path):
    (batch,) = labkit.DataLoader(
        Made(lambda i: torch.arange(4.0) + i, 2),
        batch_size=2,
        num_workers=1,
        sharing_strategy=strategy,
    )
    expected = torch.stack([torch.arange(4.0), torch.arange(4.0) + 1])
    torch.save(batch, tmp_path / "batch.pt")
    assert same(torch.load(tmp_path / "batch.pt"), expected)
    assert batch.numpy().tolist() == expected.tolist()
    assert same(batch.clone().resize_(3, 4)[:2], expected)
    shared = batch.clone().share_memory_()
    assert same(shared, expected)
    batch.requires_grad_()
    (batch * 2).sum().backward()
    assert batch.grad.tolist() == [[2.0] * 4] * 2


@each_strategy
def test_all_batches_of_an_epoch_may_be_kept(strategy):
    for persistent_workers in (False, True):
        loader = labkit.DataLoader(
            Made(lambda i: torch.full((100,), i), 100),
            batch_size=4,
            num_workers=2,
            sharing_strategy=strategy,
            persistent_workers=persistent_workers,
        )
        epochs = [list(loader), list(loader)]
        loader.close()
        for batches in epochs:
            assert [int(batch[0, 0]) for batch in batches] == list(range(0, 100, 4))
            assert all((batch == batch[:, :1]).all() for batch in batches)


@each_strategy
def test_a_message_for_a_process_that_is_gone_leaves_nothing(strategy):
    before = leftovers.take()
    with Crossing(strategy) as crossing:
        crossing.send_and_close({"t": torch.ones(1000)})
    assert leftovers.since(before, grace=0.5) == []


@each_strategy
def test_an_epoch_that_is_broken_off_leaves_nothing(strategy):
    before = leftovers.take()
    loader = labkit.DataLoader(
        Made(lambda i: torch.ones(100_000), 50), num_workers=2, sharing_strategy=strategy
    )
    next(iter(loader))
    time.sleep(0.2)  # so that messages are under way
    assert leftovers.since(before, grace=5) == []
