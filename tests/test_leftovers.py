"""The fixture that watches every test is itself watched: it sees each kind of leftover."""

import mmap
import multiprocessing as mp
import os
import subprocess
import sys
import threading
import time
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest
import torch

from tests import leftovers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")

AT_ONCE = 0.0


def test_nothing_is_reported_when_nothing_was_left():
    before = leftovers.take()
    with open(os.devnull):
        pass
    thread = threading.Thread(target=time.sleep, args=(0.01,))
    thread.start()
    thread.join()
    assert leftovers.since(before, AT_ONCE) == []


def test_a_running_process_is_named_with_its_command():
    before = leftovers.take()
    with subprocess.Popen(["sleep", "60"]) as process:
        left = leftovers.since(before, AT_ONCE)
        process.kill()
    assert len(left) == 1
    assert left[0].startswith(f"process {process.pid}, ")
    assert left[0].endswith(f"child of {os.getpid()}: sleep 60")


def test_a_dead_process_that_nobody_reaped_is_a_zombie():
    before = leftovers.take()
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    left = leftovers.since(before, AT_ONCE)
    process.wait()
    assert "zombie" in left[0]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_worker_is_seen_under_every_start_method_and_the_servers_may_stay(method):
    before = leftovers.take()
    worker = mp.get_context(method).Process(target=time.sleep, args=(60,), name="the worker")
    worker.start()
    left = leftovers.since(before, AT_ONCE)
    worker.kill()
    worker.join()
    worker.close()
    assert [line for line in left if f"process {worker_pid(left)} 'the worker'" in line]
    assert leftovers.since(before) == []


def worker_pid(left: list[str]) -> int:
    return next(int(line.split()[1]) for line in left if line.startswith("process"))


def test_a_thread_is_named_with_the_line_where_it_stands():
    before = leftovers.take()
    go = threading.Event()
    thread = threading.Thread(target=stand_here, args=(go,), name="feeder", daemon=True)
    thread.start()
    left = leftovers.since(before, AT_ONCE)
    go.set()
    thread.join()
    assert left[0].startswith("thread 'feeder' at ")
    assert left[0].endswith("in stand_here")


def stand_here(go: threading.Event) -> None:
    go.wait()


def test_a_descriptor_is_named_with_its_file_and_its_holder(tmp_path):
    before = leftovers.take()
    with open(tmp_path / "open.txt", "w"):
        left = leftovers.since(before, AT_ONCE)
    assert len(left) == 1
    assert f"{tmp_path}/open.txt, held by <_io." in left[0]


def test_a_mapping_counts_when_its_descriptor_is_closed():
    before = leftovers.take()
    fd = os.memfd_create("segment")
    os.ftruncate(fd, 8192)
    memory = mmap.mmap(fd, 8192)
    os.close(fd)
    left = leftovers.since(before, AT_ONCE)
    memory.close()
    # Python's mmap keeps a duplicate of the descriptor.
    assert any(line.startswith("mapping of 8192 bytes of /memfd:segment") for line in left)


def test_a_tensor_in_shared_memory_counts_until_it_is_dropped():
    before = leftovers.take()
    tensor = torch.zeros(1000).share_memory_()
    left = leftovers.since(before, AT_ONCE)
    del tensor
    assert any(line.startswith("mapping") for line in left)
    assert leftovers.since(before) == []


def test_a_name_in_shared_memory_is_reported_until_it_is_unlinked(monkeypatch):
    monkeypatch.setattr(leftovers, "NAMES_ARE_OURS", True)
    before = leftovers.take()
    segment = SharedMemory(create=True, size=100)
    segment.close()
    line = f"name /dev/shm/{segment.name.lstrip('/')}"
    assert line in leftovers.since(before, AT_ONCE)
    segment.unlink()
    assert line not in leftovers.since(before, AT_ONCE)


@pytest.mark.parametrize(
    "use",
    [
        "f = open('/dev/shm/' + sys.argv[1], 'w')",
        # Its name lasts, unlike under fork, until the program ends.
        "from multiprocessing import get_context, process\n"
        "process.current_process()._config['semprefix'] = '/' + sys.argv[1]\n"
        "lock = get_context('spawn').Lock()",
    ],
    ids=["file", "semaphore"],
)
def test_a_name_that_another_program_uses_is_not_ours(use):
    # A detached grandchild, as another test run on the same machine would be.
    script = (
        "import os, sys\n"
        "if os.fork(): os._exit(0)\n"
        f"{use}\n"
        "print('in use', flush=True)\n"
        "sys.stdin.read()\n"
    )
    mine = f"labkit-test-{os.getpid()}"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", script, mine], **pipes) as process:
        assert process.stdout.readline() == b"in use\n"
        process.wait()
        (name,) = (name for name in leftovers.names() if mine in name.name)
        others = leftovers.is_another_programs(name)
    Path("/dev/shm", mine).unlink(missing_ok=True)
    assert others


def test_what_goes_away_within_the_grace_period_is_no_leftover():
    before = leftovers.take()
    threading.Thread(target=time.sleep, args=(0.3,)).start()
    assert leftovers.since(before) == []


def test_a_failing_fixture_names_the_leftover(pytester_run):
    out = pytester_run(
        "import threading\n"
        "go = threading.Event()\n"
        "def test_leaves_a_thread():\n"
        "    threading.Thread(target=go.wait, args=(20,), name='stray', daemon=True).start()\n"
        "def test_leaves_nothing():\n"
        "    pass\n"
    )
    assert "left behind by this test:\n  thread 'stray'" in out
    assert "2 passed, 1 error" in out


@pytest.fixture
def pytester_run(tmp_path):
    def run(source: str) -> str:
        test = tmp_path / "test_inner.py"
        test.write_text(source)
        command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "--rootdir", tmp_path]
        command += ["-c", os.devnull, test]
        # Only the fixture is tried: no other plugin needs to load.
        alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        return subprocess.run(command, capture_output=True, text=True, env=alone).stdout

    return run


def test_the_servers_of_multiprocessing_and_of_pytorch_may_stay():
    before = leftovers.take()
    resource_tracker.ensure_running()
    strategy = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy("file_system")
    torch.zeros(10).share_memory_()
    torch.multiprocessing.set_sharing_strategy(strategy)
    assert leftovers.since(before, AT_ONCE) == []
