"""The process in which the user's code runs: heard, printed to, given up, and gone in the end."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from labkit.lab.advising import session
from labkit.lab.advising.payload import payload_of
from tests.scripts import alive, seconds_until

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded")


def run(work, *arguments, silent_seconds=60.0, cancel=None):
    told = []
    ended = session.run(
        work,
        *arguments,
        payload=None,
        threads=1,
        told=told.append,
        silent_seconds=silent_seconds,
        cancel=cancel,
    )
    return ended, told


def says(tell, words):
    print("and prints")
    for word in words:
        tell(word)


def test_what_it_tells_comes_in_order_and_what_it_prints_is_kept():
    ended, told = run(says, ["one", "two"])
    assert told == ["one", "two"]
    assert (ended.how, ended.printed) == ("finished", "and prints\n")


def prints_much(tell):
    for _ in range(3):
        print("x" * 100_000)


def test_of_much_that_is_printed_the_beginning_is_kept():
    ended, _ = run(prints_much)
    assert ended.printed == "x" * 4000
    assert ended.printed_bytes == 300_003


def raises(tell):
    raise ValueError("no such image")


def leaves(tell):
    sys.exit("no licence")


def dies(tell):
    os._exit(41)


def test_a_failure_and_a_death_are_told_apart():
    ended, _ = run(raises)
    assert ended.how == "failed"
    assert ended.error.endswith("ValueError: no such image\n")
    ended, _ = run(leaves)
    assert ended.how == "failed"
    assert ended.error.endswith("SystemExit: no licence\n")
    ended, _ = run(dies)
    assert (ended.how, ended.exit_code) == ("died", 41)


def starts_another_and_hangs(tell):
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(1000)"])
    tell(child.pid)
    time.sleep(1000)


def test_silence_ends_it_with_all_that_it_started_and_says_where_it_stood(monkeypatch):
    monkeypatch.setattr(session, "_START_SECONDS", 20.0)
    ended, (pid,) = run(starts_another_and_hangs, silent_seconds=0.2)
    assert ended.how == "silent"
    assert "in starts_another_and_hangs" in ended.stack[0]
    seconds_until(lambda: not alive(pid))


def test_a_cancellation_ends_it_with_all_that_it_started():
    cancel, told = threading.Event(), []

    def hear(pid):
        told.append(pid)
        cancel.set()

    ended = session.run(
        starts_another_and_hangs,
        payload=None,
        threads=1,
        told=hear,
        silent_seconds=60.0,
        cancel=cancel,
    )
    assert ended.how == "cancelled"
    seconds_until(lambda: not alive(told[0]))


@pytest.mark.parametrize("ends_it", [signal.SIGTERM, signal.SIGKILL])
def test_it_does_not_outlive_the_process_that_wanted_it(ends_it):
    reading, writing = os.pipe()
    wants_it = os.fork()
    if not wants_it:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        session.run(
            starts_another_and_hangs,
            payload=None,
            threads=1,
            told=lambda pid: os.write(writing, f"{pid} {os.getsid(pid)}".encode()),
            silent_seconds=60.0,
        )
    try:
        pids = [int(pid) for pid in os.read(reading, 100).split()]
        assert len(pids) == 2
        assert all(map(alive, pids))
    finally:
        os.kill(wants_it, ends_it)
        os.waitpid(wants_it, 0)
        os.close(reading)
        os.close(writing)
    seconds_until(lambda: not any(map(alive, pids)))


def test_what_cannot_be_pickled_or_is_too_large_is_told():
    assert isinstance(payload_of(says, (["one"],), at_most=10**6), bytes)
    assert "more than 0 MB" in payload_of(says, ("x" * 100_000,), at_most=10_000)
    assert "lock" in payload_of(says, (threading.Lock(),), at_most=10**6)
