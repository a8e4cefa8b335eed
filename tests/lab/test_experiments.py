"""Experiments take turns, keep every repeat, stop when they are told to, and leave nothing.

No test asserts how fast anything is.
"""

import itertools
import json
import os
import re
import signal
import sys
import threading
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.lab.experiments import Cancelled, TookTooLong, loading, measure, milliseconds
from labkit.lab.experiments.comparisons import COMPARISONS, bytes_words
from labkit.lab.experiments.fresh import FreshProcesses
from labkit.lab.experiments.measuring import turns
from labkit.lab.experiments.quantities import QUANTITIES, _memory_bytes
from labkit.lab.experiments.setting import LOADERS, Setting
from labkit.lab.results import Result
from tests.lab import measured
from tests.scripts import alive, family_of, seconds_until, started

linux = pytest.mark.skipif(sys.platform != "linux", reason="PSS is read from /proc")


# Measuring


def test_every_repeat_is_kept_with_settings_machine_and_what_is_common():
    result = measure(
        {"small": {"value": 1}, "large": {"value": 10}},
        lambda value, offset: value + offset,
        question="How large?",
        quantity="size",
        unit="m",
        common={"offset": 5},
        repeats=3,
    )
    assert result.repeats == {"small": (6, 6, 6), "large": (15, 15, 15)}
    assert result.settings == {"small": {"value": 1}, "large": {"value": 10}}
    assert (result.common, result.notes, result.origin) == ({"offset": 5}, (), "live")
    assert (result.question, result.quantity, result.unit) == ("How large?", "size", "m")
    assert {"date", "cpu", "cores", "python", "torch", "labkit"} <= result.machine.keys()
    assert Result.from_json(result.to_json()) == result


def test_warm_up_rounds_come_first_and_do_not_count():
    counts = Counter()

    def count(label):
        counts[label] += 1
        return counts[label]

    result = measure({c: {"label": c} for c in "ab"}, count, repeats=2, warmup=3)
    assert result.repeats == {"a": (4, 5), "b": (4, 5)}


def test_the_settings_take_turns_and_change_the_order():
    calls = []
    settings = {c: (lambda c=c: calls.append(c) or 1.0) for c in "ab"}
    measure(settings, repeats=4, warmup=0)
    assert "".join(calls) == "abbabaab"


@given(st.integers(1, 6), st.integers(0, 50))
def test_each_round_has_every_setting_once(n, number):
    labels = [str(i) for i in range(n)]
    assert sorted(turns(labels, number)) == labels


@given(st.integers(2, 6))
def test_each_setting_is_at_each_place_and_before_each_other_equally_often(n):
    labels = [str(i) for i in range(n)]
    orders = [turns(labels, number) for number in range(2 * n)]
    assert {Counter(order[place] for order in orders)[a] for place in range(n) for a in labels} == {
        2
    }
    before = Counter((a, b) for order in orders for a, b in itertools.pairwise(order))
    assert all(before[a, b] == before[b, a] for a, b in before)


def test_progress_is_told_before_each_repeat_and_what_there_is_after_each_round():
    told, seen = [], []
    measure(
        {"a": lambda: 1, "b": lambda: 2},
        repeats=2,
        warmup=1,
        progress=lambda *step: told.append(step),
        so_far=seen.append,
    )
    assert told == [
        (0, 6, "getting ready"),
        (0, 6, "a, warm-up"),
        (1, 6, "b, warm-up"),
        (2, 6, "b, repeat 1 of 2"),
        (3, 6, "a, repeat 1 of 2"),
        (4, 6, "b, repeat 2 of 2"),
        (5, 6, "a, repeat 2 of 2"),
        (6, 6, "done"),
    ]
    assert [result.repeats for result in seen] == [{"a": (1,), "b": (2,)}]


def test_when_the_time_is_up_no_round_begins_and_the_notes_say_so():
    result = measure({"a": lambda: 1}, repeats=3, seconds=0)
    assert result.repeats == {"a": (1,)}
    assert result.notes == ("1 of 3 repeats: the 0 s for them had passed.",)


def test_whoever_checks_a_notebook_can_keep_its_measurements_short(monkeypatch):
    monkeypatch.setenv("LABKIT_MEASURE_SECONDS", "0")
    result = measure({"a": lambda: 1}, repeats=3, seconds=60)
    assert result.repeats == {"a": (1,)}
    assert result.notes == ("1 of 3 repeats: the 0 s for them had passed.",)


def test_milliseconds_time_one_call_of_many():
    calls = []
    timed = milliseconds(lambda seconds: calls.append(seconds) or time.sleep(seconds), number=3)
    assert timed(seconds=0.01) >= 10
    assert calls == [0.01] * 3


def test_arguments_that_are_no_json_are_told_by_name():
    result = measure({"a": {"function": measured.double}}, lambda function: function(1), repeats=1)
    assert result.settings == {"a": {"function": "double"}}
    json.loads(result.to_json())


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: measure({}), ValueError, "at least one setting"),
        (lambda: measure({"a": {"value": 1}}), TypeError, "measure(settings, function)"),
        (lambda: measure({"a": 3}), TypeError, "write a function"),
        (lambda: measure({"a": lambda: 1}, common={"b": 1}), TypeError, "nothing in common"),
        (lambda: measure({"a": lambda: None}), ValueError, "milliseconds"),
        (lambda: measure({"a": lambda: float("nan")}), ValueError, "'a' returned nan"),
        (lambda: measure({"a": lambda: 1}, repeats=0), ValueError, "repeats=0"),
        (lambda: measure({"a": lambda: 1}, where="there"), ValueError, "'fresh children'"),
    ],
)
def test_what_cannot_be_measured_is_refused(call, error, said):
    with pytest.raises(error, match=re.escape(said)):
        call()


def test_a_repeat_here_that_took_too_long_is_named():
    with pytest.raises(TookTooLong, match="slow, warm-up took"):
        measure({"slow": lambda: time.sleep(0.01)}, limit_s=0.001)


def test_cancelling_here_stops_before_the_next_repeat():
    cancel = threading.Event()
    with pytest.raises(Cancelled, match="b, warm-up"):
        measure({"a": lambda: cancel.set() or 1, "b": lambda: 1}, cancel=cancel)


# In fresh processes: few tests, since each starts a program that imports torch


def test_a_fresh_process_is_told_what_to_call_until_it_takes_too_long(tmp_path):
    note, pids = tmp_path / "pids", []
    in_a_cell = eval("lambda value: value + 1")  # cannot be imported
    too_long = pytest.raises(TookTooLong, match=r"the slow one was not done after 1\.5 s")
    with too_long, FreshProcesses() as processes:

        def call(function, **arguments):
            return processes.call(function, arguments, 60, "a call")

        for _ in range(2):
            assert call(measured.what_is_not_fresh) == ""
            pids.append(call(measured.pid))
            processes.renew()
        assert call(measured.what_is_not_fresh) == ""
        assert call(measured.what_is_not_fresh) == "called"  # in the same one, without `renew`
        assert call(in_a_cell, value=2) == 3
        with pytest.raises(KeyError, match="a word of its own") as raised:
            call(measured.fail, kind="raise")
        assert "measured.py" in str(raised.value.__cause__)
        with pytest.raises(RuntimeError, match="odd"):
            call(measured.fail, kind="cannot be pickled")
        pids.append(call(measured.pid))
        with pytest.raises(RuntimeError, match="exit code -9"):
            call(measured.fail, kind="die")
        pids.append(call(measured.pid))  # there is another one
        processes.call(measured.hang, {"note": str(note)}, 1.5, "the slow one")
    assert len({*pids, os.getpid()}) == 5
    assert not any(map(alive, [*pids, *measured.wait_for_pids(note)]))


def test_the_server_is_kept_while_its_surroundings_are_the_same(monkeypatch):
    def used():
        with FreshProcesses() as processes:
            server, left = processes.call(measured.leave_a_process, {}, 60, "a call")
        assert alive(server)
        assert seconds_until(lambda: not alive(left)) < 30
        return server

    first = used()
    assert used() == first
    monkeypatch.setenv("LABKIT_MEASURE_SECONDS", "7")
    second = used()
    assert second != first
    assert not alive(first)
    os.kill(second, signal.SIGKILL)
    assert used() != second


def test_ctrl_c_stops_a_running_child_with_all_that_it_started(tmp_path):
    note = tmp_path / "pids"

    def interrupt():
        measured.wait_for_pids(note)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        measure({"a": {"note": str(note)}}, measured.hang, where="fresh children")
    thread.join()
    assert not any(map(alive, measured.wait_for_pids(note)))


def test_when_the_measuring_process_is_killed_nothing_goes_on(tmp_path):
    note = tmp_path / "pids"
    with started(f"""
        from labkit.lab.experiments import measure
        from tests.lab.measured import hang
        measure({{"a": {{"note": {str(note)!r}}}}}, hang, where="one child")
    """) as process:
        pids = measured.wait_for_pids(note)
        family = [member.pid for member in family_of(process.pid)]
        assert set(family) > set(pids)
        process.kill()
        process.wait()
        seconds_until(lambda: not any(map(alive, family)), limit=20)
        assert not any(map(alive, family))


# Loading

TINY = {"batch_bytes": 800, "repeats": 1, "workers": 1}


@linux
def test_memory_is_what_the_workers_add_under_each_start_method():
    result = loading(
        "start_method", ["fork", "spawn"], quantity="memory that the workers add", **TINY
    )
    assert result.unit == "MB"
    assert 0 < result.median("fork") < result.median("spawn")  # which has torch to itself
    assert result.settings["spawn"] == {"start_method": "spawn"}
    assert result.common == {"workers": 1, "batch_bytes": 800}
    assert Result.from_json(result.to_json()) == result
    assert any("PSS" in note for note in result.notes)


@linux
def test_memory_counts_what_this_process_and_its_children_hold():
    def grows_by_what_it_holds() -> bool:
        before = _memory_bytes()
        held = bytearray(os.urandom(1)) * (1 << 27)
        return _memory_bytes() - before > len(held) // 2

    # In a process of its own: what tests before it have started may end in the meantime.
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if grows_by_what_it_holds() else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("name", QUANTITIES)
@pytest.mark.parametrize("loader", LOADERS)
def test_every_quantity_can_be_measured_of_every_loader(name, loader):
    if name == "memory that the workers add" and sys.platform != "linux":
        pytest.skip("PSS is read from /proc")
    costs = {"wait_ms": 0.1, "work_ms": 0.1, "step_ms": 0.1}
    setting = Setting(loader=loader, num_workers=1, batches=2, **costs)
    value = QUANTITIES[name].measure(setting, 0.0)
    assert name in ("memory that the workers add", "names in /dev/shm") or value > 0


@pytest.mark.parametrize("compare", COMPARISONS)
def test_each_comparison_makes_a_loader_of_each_of_its_options(compare, monkeypatch):
    compared = {}

    def note(settings, function, **options):
        compared.update({label: arguments["setting"] for label, arguments in settings.items()})
        repeats = dict.fromkeys(settings, (1.0,))
        return Result("?", options["quantity"], options["unit"], repeats)

    monkeypatch.setattr("labkit.lab.experiments.measure", note)
    result = loading(compare)
    assert len(result.labels) == len(COMPARISONS[compare].options()) >= 2
    loaders = [setting.make_loader(samples=100) for setting in compared.values()]
    assert [loader.batch_size for loader in loaders] == [s.batch_size for s in compared.values()]
    assert len(set(compared.values())) == len(compared)
    differ = [
        name
        for name in Setting.__dataclass_fields__
        if len({getattr(setting, name) for setting in compared.values()}) > 1
    ]
    names = {"workers": "num_workers", "batch_bytes": "sample_bytes"}
    assert differ == [names.get(compare, compare)]


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"compare": "colour"}, ValueError, "unknown comparison 'colour': write one of"),
        (
            {"quantity": "noise"},
            ValueError,
            "unknown quantity 'noise': write one of 'time a batch'",
        ),
        ({"colour": "red"}, ValueError, "unknown argument 'colour'"),
        ({"options": ["fork"]}, ValueError, "two different options"),
        ({"options": ["fork", "fork"]}, ValueError, "two different options"),
        ({"options": ["fork", "knife"]}, ValueError, "unknown start method 'knife'"),
        ({"workers": -1}, ValueError, "num_workers=0"),
        ({"workers": "two"}, TypeError, "num_workers"),
        ({"prefetch_factor": 0}, ValueError, "prefetch_factor"),
        ({"sharing_strategy": "telepathy"}, ValueError, "unknown sharing_strategy"),
        ({"loader": "PyTorch", "sharing_strategy": "copy"}, ValueError, "leave it out"),
        ({"loader": "theirs"}, ValueError, "unknown loader 'theirs'"),
        ({"batch_bytes": 0}, ValueError, "batch_bytes is a whole number of 1 or more"),
        ({"wait_ms": -1}, ValueError, "wait_ms is 0 or more"),
    ],
)
def test_arguments_that_no_loader_takes_are_refused_before_anything_starts(arguments, error, said):
    with pytest.raises(error, match=re.escape(said)):
        loading(**{"compare": "start_method", **arguments})


@pytest.mark.parametrize(
    ("count", "words"), [(1, "1 B"), (4_000, "4 kB"), (4_194_304, "4.19 MB"), (2 * 10**9, "2 GB")]
)
def test_bytes_are_told_in_the_largest_unit_that_fits(count, words):
    assert bytes_words(count) == words
