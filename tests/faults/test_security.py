"""What a loader trusts: its own workers, and nobody else.

Modes, names and `O_EXCL` of the strategy "file_system" are in tests/sharing/test_file_system.py.
"""

import ast
import os
import stat
import traceback
from pathlib import Path

import pytest

import labkit
from labkit.sharing import names
from labkit.sharing.segment import Segment
from tests.datasets import Samples

PACKAGE = Path(labkit.__file__).parent
NOBODY = 65534

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def test_anonymous_memory_is_its_users_only():
    segment = Segment.create(4096)
    assert stat.S_IMODE(os.fstat(segment.fd).st_mode) == 0o600
    segment.close()


def as_another_user(function):
    """Run it in a forked process of another user; what it complains of."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reads)
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.write(writes, "; ".join(function()).encode())
        except BaseException:
            os.write(writes, traceback.format_exc().encode())
        finally:
            os._exit(0)
    os.close(writes)
    with open(reads) as told:
        complaints = told.read()
    os.waitpid(pid, 0)
    return complaints


def refused(action, *arguments):
    """Nothing, if the system refuses that; else what it was."""
    try:
        action(*arguments)
    except (PermissionError, FileNotFoundError):
        return []
    return [f"{action.__name__}{arguments} was not refused"]


@as_root
def test_another_user_neither_reads_nor_removes_a_name():
    name = names.create(4096)
    path = os.path.join(names.directory(), name)

    def attack():
        yield from refused(os.open, path, os.O_RDONLY)
        yield from refused(os.open, path, os.O_RDWR)
        yield from refused(os.unlink, path)
        yield from refused(os.rename, path, f"{path}-mine")

    try:
        assert as_another_user(attack) == ""
    finally:
        names.remove(name)


@as_root
def test_another_user_reaches_neither_memory_nor_channel_of_a_running_loader():
    """Anonymous ones are reached by /proc alone, and that is closed to others."""
    batches = iter(labkit.DataLoader(Samples(64), 2, num_workers=1))
    next(batches)
    pids = [os.getpid(), batches._pool.pid(0)]
    ends = [(pid, fd) for pid in pids for fd in os.listdir(f"/proc/{pid}/fd")]
    assert len(ends) > 5

    def attack():
        for pid, fd in ends:
            yield from refused(os.open, f"/proc/{pid}/fd/{fd}", os.O_RDWR)
        for pid in pids:
            yield from refused(os.open, f"/proc/{pid}/mem", os.O_RDONLY)

    assert as_another_user(attack) == ""
    batches.close()


@as_root
def test_what_another_user_plants_under_a_worker_s_name_is_not_taken(monkeypatch):
    """It would have to guess 64 random bits; even if it did, the name is made, never opened."""
    monkeypatch.setattr("secrets.token_hex", lambda n: "0" * 2 * n)
    name = names._new_name(os.getpid())
    path = os.path.join(names.directory(), name)

    def plant():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o666))
        return []

    try:
        assert as_another_user(plant) == ""
        with pytest.raises(FileExistsError):
            names.create(4096)
    finally:
        os.unlink(path)


def calls_of(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def test_pickles_are_read_from_channels_that_this_process_made_and_from_nothing_else():
    """The main process reads its workers' messages, a worker its tasks and what it is started with:
    three places. A fourth must say here where its bytes come from.
    """
    readers = {}
    for path in PACKAGE.rglob("*.py"):
        if "lab" in path.relative_to(PACKAGE).parts:
            continue
        calls = list(calls_of(ast.parse(path.read_text())))
        unpickling = [c for c in calls if c.endswith(("pickle.loads", "pickle.load", "Unpickler"))]
        if unpickling:
            readers[str(path.relative_to(PACKAGE))] = sorted(unpickling)
    assert readers == {
        "sharing/pickling.py": ["pickle.loads", "pickle.loads"],  # `loads`, of a worker's message
        "startup.py": ["pickle.loads"],  # within what multiprocessing hands to a new process
        "worker.py": ["pickle.loads"],  # a task, from the worker's end of its channel
    }


def test_torch_load_is_never_called():
    for path in PACKAGE.rglob("*.py"):
        assert "torch.load" not in set(calls_of(ast.parse(path.read_text()))), path


def test_the_readme_says_what_a_loader_trusts():
    readme = (PACKAGE.parent / "README.md").read_text()
    section = readme.split("## What a loader trusts")[1].split("\n## ")[0]
    for words in ("its own workers", "0600", "pickle"):
        assert words in section
