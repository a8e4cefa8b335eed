"""Real ranks under torchrun: what runs in them, what comes back, and that nothing of them stays.

One launch costs three imports of torch, so all tests share it; the last one ends it. Launchers that
never bring a rank are small programs without torch.
"""

import os
import signal
import socket
import sys
import tempfile
import threading
import time
from multiprocessing import Pipe

import psutil
import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

import labkit
from labkit.lab import ranks
from labkit.lab.ranks import uneven
from labkit.lab.ranks.launched import Launched
from labkit.lab.ranks.member import FOLDER, Greeting, connected

LIMIT = 120.0  # of what takes less than a second on an idle machine


@pytest.fixture(scope="module", autouse=True)
def two():
    """Before the fixture that looks for what a test leaves: they stay until the last test."""
    with ranks.start(2, progress=False) as started:
        yield started


def of(folder):
    """The processes that belong to a launch."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(FOLDER) == folder:
                found.append(process)
        except psutil.Error:
            continue
    return found


# What runs in the ranks


def test_each_rank_is_a_process_of_its_own_in_one_process_group(two):
    def who():
        total = torch.tensor([dist.get_rank() + 1])
        dist.all_reduce(total)
        return dist.get_rank(), dist.get_world_size(), dist.get_backend(), os.getpid(), int(total)

    found = two.run(who)
    assert [(rank, size, backend, total) for rank, size, backend, _, total in found] == [
        (0, 2, "gloo", 3),
        (1, 2, "gloo", 3),
    ]
    assert tuple(pid for *_, pid, _ in found) == two.pids
    assert len({os.getpid(), *two.pids}) == 3


def test_they_were_started_by_torchrun_and_the_command_says_so(two):
    assert "-m torch.distributed.run" in two.command
    assert "--nproc-per-node=2" in two.command
    parents = {psutil.Process(pid).ppid() for pid in two.pids}
    (parent,) = parents
    assert "torch.distributed.run" in " ".join(psutil.Process(parent).cmdline())


def read(loader_class):
    sampler = DistributedSampler(ranks.Told(24), seed=0)
    loader = loader_class(
        ranks.Told(24), 3, sampler=sampler, num_workers=2, multiprocessing_context="fork"
    )
    return [
        list(zip(samples.tolist(), workers.tolist(), strict=True)) for samples, workers in loader
    ]


def test_with_the_sampler_they_read_disjoint_complete_equal_parts_and_have_own_workers(two):
    found = two.run(read, labkit.DataLoader)
    assert found == two.run(read, DataLoader)
    shares = [[sample for batch in share for sample, _ in batch] for share in found]
    assert str(ranks.judged(shares, 24)) == "disjoint: yes, complete: yes, equal: yes"
    workers = [{worker for batch in share for _, worker in batch} for share in found]
    assert workers == [{0, 1}, {0, 1}]


def augmented(seeded_by_rank):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(dist.get_rank()) if seeded_by_rank else None
    sampler = DistributedSampler(ranks.Augmented(8))
    loader = labkit.DataLoader(
        ranks.Augmented(8), sampler=sampler, generator=generator,
        num_workers=1, multiprocessing_context="fork",
    )  # fmt: skip
    return [float(draw) for draw in loader]


def test_ranks_that_are_seeded_alike_augment_alike_and_a_generator_each_mends_it(two):
    mine, others = two.run(augmented, False)
    assert mine == others
    mine, others = two.run(augmented, True)
    assert not set(mine) & set(others)


# Uneven ranks


def test_a_rank_that_goes_on_meets_the_others_last_step_which_then_waits(two):
    def train(batches):
        group = dist.new_group()
        values = [1.0] * batches[dist.get_rank()] + [100.0]
        return [uneven.all_reduce_within(5, value, group) for value in values]

    assert two.run(train, [3, 2]) == [[2.0, 2.0, 101.0, "waits on"], [2.0, 2.0, 101.0]]


@pytest.mark.parametrize("batches", [[3, 2], [0, 2], [2, 2]])
def test_asking_ends_all_with_the_first_and_join_takes_every_batch(two, batches):
    assert two.run(uneven.until_one_ends, batches) == [min(batches)] * 2
    most = max(batches)
    assert two.run(uneven.joined, batches) == [(own, most - own) for own in batches]


# What goes wrong


def test_an_exception_in_one_rank_is_raised_here_and_the_ranks_stay_usable(two):
    def fails():
        if dist.get_rank() == 1:
            raise ValueError("no such sample")
        return "fine"

    with pytest.raises(ranks.RankFailed, match=r"rank 1: (.|\n)*in fails(.|\n)*no such sample"):
        two.run(fails)
    assert two.run(dist.get_rank) == [0, 1]


def test_what_cannot_be_sent_back_is_an_error_that_says_so(two):
    with pytest.raises(ranks.RankFailed, match=r"rank 0: (.|\n)*pickle"):
        two.run(lambda: (number for number in range(3)))
    assert two.run(dist.get_rank) == [0, 1]


def test_a_launcher_that_ends_is_told_with_what_it_wrote():
    command = [sys.executable, "-c", "import sys; print('no way'); sys.exit(3)"]
    with pytest.raises(ranks.LaunchFailed, match=r"exit code 3(.|\n)*no way"):
        ranks.start(2, progress=False, command=command)


# A launcher whose rank never comes: it starts a process in a session of its own, as torchrun does.
IDLE = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("started", flush=True)
time.sleep(600)
"""


def test_at_the_time_limit_nothing_of_a_launch_stays(monkeypatch):
    folders = folders_of_launches(monkeypatch)
    with pytest.raises(ranks.LaunchFailed, match="not there within 1 s"):
        ranks.start(2, seconds=1, progress=False, command=[sys.executable, "-c", IDLE])
    assert of(folders[0]) == []
    assert not os.path.exists(folders[0])


def test_an_interrupt_while_they_start_leaves_nothing(monkeypatch, capsys):
    folders = folders_of_launches(monkeypatch)

    def interrupt():
        output = os.path.join(folders[0], "output")
        deadline = time.monotonic() + LIMIT
        while not (os.path.exists(output) and os.path.getsize(output)):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    command = [sys.executable, "-c", IDLE]
    thread = threading.Timer(0.1, interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            ranks.start(2, seconds=LIMIT, command=command)
    finally:
        thread.join()
    assert of(folders[0]) == []
    assert "0 of 2 ranks are there, after 0 s" in capsys.readouterr().out


def folders_of_launches(monkeypatch):
    folders = []
    original = Launched._start

    def noted(launched, words):
        folders.append(str(launched._path))
        return original(launched, words)

    monkeypatch.setattr(Launched, "_start", noted)
    return folders


class NoLauncher:
    command = "python launcher.py"

    def end(self):
        pass


def test_a_rank_that_ended_while_nothing_ran_is_told():
    ours, theirs = Pipe()
    theirs.close()
    one = ranks.Ranks(NoLauncher(), [(ours, Greeting(0, 4711))])
    with pytest.raises(ranks.RankFailed, match=r"pid 4711\) has ended(.|\n)*start new ones"):
        one.run(dist.get_rank)
    assert ours.closed


def test_a_rank_that_comes_after_the_notebooks_end_leaves_no_folder(tmp_path):
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(tmp_path / "notebook"))  # and nobody listens
    with pytest.raises(ConnectionRefusedError):
        connected(tmp_path)
    assert not tmp_path.exists()


def test_fewer_than_one_rank_is_an_error():
    with pytest.raises(ValueError, match="write count=2"):
        ranks.start(0)


def test_a_rank_that_waits_for_ever_is_told_and_all_are_ended_with_their_workers(two):
    """The last one: it ends them."""

    def stands():
        sampler = DistributedSampler(ranks.Told(24))
        loader = labkit.DataLoader(
            ranks.Told(24), 3, sampler=sampler, num_workers=2, multiprocessing_context="fork"
        )
        batches = iter(loader)
        next(batches)
        if dist.get_rank() == 0:
            dist.barrier()

    folder = psutil.Process(two.pids[0]).environ()[FOLDER]
    assert two.run(tempfile.gettempdir) == [folder] * 2  # so that nothing stays beside it
    assert any(name.startswith("torchelastic") for name in os.listdir(folder))
    assert len(of(folder)) >= 3
    with pytest.raises(ranks.RankTimeout) as raised:
        two.run(stands, seconds=5)
    assert "rank 0 waits on" in str(raised.value)
    assert "in barrier" in str(raised.value)
    assert "in stands" in str(raised.value)
    assert "rank 1" not in str(raised.value)
    assert of(folder) == []
    assert not os.path.exists(folder)
    assert "ended" in repr(two)
    with pytest.raises(RuntimeError, match="start new ones"):
        two.run(dist.get_rank)
