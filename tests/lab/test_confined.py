"""Whatever an answer does, its process ends, all that it started ends too, and it is told why."""

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest

from labkit.lab import check
from labkit.lab.exercises.confined import Place, run_in_child
from tests.scripts import alive, run_cells, run_script

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sessions and signals of Linux")

LIMIT = 1.0  # seconds: for what never ends; nothing must be quicker than that


def pid_in(file: Path) -> int:
    return int(file.read_text())


# How it ends


def test_what_it_sends_and_prints_arrives():
    def work(send, number):
        print("working", flush=True)
        os.write(2, b"a warning\n")
        subprocess.run(["echo", "from a program"])
        send(number + 1)
        send({"pid": os.getpid()})

    ended = run_in_child(work, 41, seconds=60)
    assert ended.how == "finished"
    assert ended.messages[0] == 42
    assert ended.messages[1]["pid"] != os.getpid()
    assert sorted(ended.printed.splitlines()) == ["a warning", "from a program", "working"]


def test_an_endless_loop_is_ended_and_the_line_is_found():
    def in_order(results):
        while True:
            pass

    report = check("03.reorder", in_order, seconds=LIMIT)
    assert report.verdict == "not right yet"
    assert "no end after 1 s" in report.failure.got
    assert "`in_order`" in report.failure.place
    assert report.failure.given == "results arrive in the order 0, 1, 2"


def test_a_deadlock_is_ended_and_the_line_is_found():
    def in_order(results):
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()

    report = check("03.reorder", in_order, seconds=LIMIT)
    assert "no end" in report.failure.got
    assert "lock.acquire()" in report.failure.place


def test_signals_that_are_ignored_do_not_keep_it_alive(tmp_path):
    def work(send):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        (tmp_path / "pid").write_text(str(os.getpid()))
        while True:
            time.sleep(60)

    ended = run_in_child(work, seconds=LIMIT)
    assert ended.how == "time limit"
    assert ended.stack[0].function == "work"
    assert isinstance(ended.stack[0], Place)
    assert not alive(pid_in(tmp_path / "pid"))


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (lambda: os._exit(3), "exit code 3"),
        (lambda: os._exit(0), "exit code 0, before it had given an answer"),
        (lambda: ctypes.string_at(0), "SIGSEGV"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "SIGKILL"),
        (lambda: sys.exit(3), "SystemExit: 3"),
        (lambda: os.closerange(0, 1000), "it "),
    ],
    ids=["_exit 3", "_exit 0", "segfault", "SIGKILL", "sys.exit", "closes everything"],
)
def test_a_crash_is_told_with_the_case_in_which_it_happened(end, told):
    def in_order(results):
        end()
        return iter(())

    report = check("03.reorder", in_order, seconds=20)
    assert not report.passed
    assert told in report.failure.got
    assert report.failure.given == "results arrive in the order 0, 1, 2"


def test_a_huge_print_is_cut_short_and_an_endless_one_is_ended():
    def in_order(results):
        print("x" * 10_000_000)
        return []

    report = check("03.reorder", in_order, seconds=60)
    assert "A list is there only" in report.failure.thought
    assert len(report.printed) < 5000
    assert report.printed.endswith(" more bytes")

    def prints_for_ever(results):
        while True:
            print("y" * 100_000)

    report = check("03.reorder", prints_for_ever, seconds=LIMIT)
    assert "no end" in report.failure.got
    assert len(report.printed) < 5000


# What it leaves: the fixture looks for names, threads and descriptors


def test_processes_that_it_started_are_ended(tmp_path):
    def work(send):
        context = multiprocessing.get_context("fork")
        context.Process(target=sleep_as, args=(tmp_path / "child",)).start()
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                f"""
import os, pathlib, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork():
    os._exit(0)  # its child is an orphan
pathlib.Path({str(tmp_path / "orphan")!r}).write_text(str(os.getpid()))
time.sleep(600)
""",
            ]
        )
        while not all(is_written(tmp_path / name) for name in ("child", "orphan")):
            time.sleep(0.01)

    ended = run_in_child(work, seconds=60)
    assert ended.how == "finished"
    assert not alive(pid_in(tmp_path / "child"))
    assert not alive(pid_in(tmp_path / "orphan"))


def is_written(file: Path) -> bool:
    return file.exists() and file.stat().st_size > 0


def sleep_as(file: Path) -> None:
    file.write_text(str(os.getpid()))
    time.sleep(600)


def test_shared_memory_that_it_made_is_removed():
    def work(send):
        memory = SharedMemory(create=True, size=1000)
        send(memory.name)
        multiprocessing.get_context("spawn").Semaphore()
        os._exit(1)

    ended = run_in_child(work, seconds=60)
    assert ended.how == "died"
    assert not (Path("/dev/shm") / ended.messages[0]).exists()


def test_it_changes_nothing_here():
    before = list(sys.path), os.getcwd(), signal.getsignal(signal.SIGINT)

    def work(send):
        sys.path.append("/nowhere")
        os.chdir("/")
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    assert run_in_child(work, seconds=60).how == "finished"
    assert (list(sys.path), os.getcwd(), signal.getsignal(signal.SIGINT)) == before
    assert multiprocessing.get_start_method(allow_none=True) in (None, "fork")


def test_ctrl_c_ends_it(tmp_path):
    def work(send):
        (tmp_path / "pid").write_text(str(os.getpid()))
        os.kill(main, signal.SIGINT)
        time.sleep(600)

    main = os.getpid()
    with pytest.raises(KeyboardInterrupt):
        run_in_child(work, seconds=60)
    assert not alive(pid_in(tmp_path / "pid"))


def test_a_script_without_a_guard_is_told_so(tmp_path):
    ended = run_script(
        """
        from labkit.lab import check

        def in_order(results):
            return iter(results)

        print(check("03.reorder", in_order))
        """,
        tmp_path / "unguarded.py",
    )
    assert "can be pickled" not in ended.stdout
    assert "if __name__ == '__main__':" in ended.stderr + ended.stdout


def test_what_cannot_be_pickled_is_told():
    lock = threading.Lock()

    def in_order(results):
        with lock:
            return iter(results)

    report = check("03.reorder", in_order)
    assert report.failure.expected == "that everything it uses can be pickled"


def test_in_a_kernel_functions_and_classes_of_cells_are_checked_and_loops_are_ended():
    setup, right, endless, after = run_cells(
        """
        import sys, labkit.lab
        # What a learner calls is imported when it is asked for.
        assert not any(name.startswith(("labkit.lab.", "ipywidgets")) for name in sys.modules)
        from torch.utils.data import IterableDataset, get_worker_info
        from labkit.lab import check, hint
        NOBODY = None
        """,
        """
        def me():
            info = get_worker_info()
            return (0, 1) if info is NOBODY else (info.id, info.num_workers)

        class Sharded(IterableDataset):
            def __init__(self, length):
                self.length = length

            def __iter__(self):
                first, step = me()
                return iter(range(first, self.length, step))

        print(check("03.shard", Sharded))
        """,
        """
        def in_order(results):
            while True:
                print("still here")

        print(check("03.reorder", in_order, seconds=0.5))
        """,
        """
        import psutil
        left = [p.cmdline() for p in psutil.Process().children(recursive=True)]
        print([p for p in left if "multiprocessing." not in " ".join(p)])
        print(hint("03.reorder"))
        """,
    )
    assert [cell["error"] for cell in (setup, right, endless, after)] == [None] * 4
    assert right["stdout"].startswith("03.shard: Right: 7 cases")
    assert "no end after 0.5 s" in endless["stdout"]
    assert 'line 3: `print("still here")`' in endless["stdout"]
    assert "still here\n" in endless["stdout"]
    assert after["stdout"].startswith("[]\n03.reorder, hint 1: ")
