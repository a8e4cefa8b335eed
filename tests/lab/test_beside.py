"""Who gives up the GIL is found without a clock; what is said of it follows from the numbers."""

import json
import sys
import threading
import time

import numpy as np
import pytest
import torch
from matplotlib import font_manager

from labkit.lab import panels, turns
from labkit.lab.child import output_of
from labkit.lab.experiments import beside
from labkit.lab.machine import cores
from labkit.lab.plots.pictures import png
from labkit.lab.results import Result

pytestmark = pytest.mark.skipif(not beside.has_gil(), reason="a build without GIL")


@pytest.fixture(autouse=True)
def files_are_closed():
    """A work keeps the file that it reads; matplotlib keeps the fonts that it has used."""
    yield
    beside.make.cache_clear()
    font_manager._get_font.cache_clear()


@pytest.mark.parametrize("work", beside.WORKS)
def test_each_work_keeps_or_gives_up_the_gil(work):
    assert beside.gives_up_the_gil(work) == (work not in ("pickle a list", "Python loop"))


def test_a_function_of_ones_own_is_tried_and_the_switch_interval_is_restored():
    before = sys.getswitchinterval()
    text = json.dumps(list(range(10_000)))
    assert not beside.gives_up_the_gil(lambda: json.loads(text))
    assert beside.gives_up_the_gil(lambda: time.sleep(0.001))
    assert sys.getswitchinterval() == before


def test_an_unknown_work_is_named():
    for ask in (
        beside.gives_up_the_gil,
        beside.make,
        lambda work: beside.beside_python(works=[work]),
    ):
        with pytest.raises(ValueError, match="'sleep'"):
            ask("dig")
    with pytest.raises(ValueError, match="1 thread or more"):
        beside.beside_python(0)


def test_another_thread_repeats_the_work_and_is_gone_afterwards():
    calls = []
    with beside.repeating(lambda: calls.append(threading.get_ident())):
        assert calls
        assert threading.get_ident() not in calls
        assert threading.active_count() > 1
    count = len(calls)
    time.sleep(0.01)
    assert len(calls) == count


def test_a_work_that_fails_is_told_and_not_waited_for():
    def fail() -> None:
        raise LookupError("no such work")

    with pytest.raises(LookupError, match="no such work"), beside.repeating(fail):
        pass
    assert threading.active_count() == 1


def test_what_a_work_raises_in_the_thread_is_raised_and_no_answer():
    here = threading.get_ident()

    def fails_elsewhere():
        if threading.get_ident() != here:
            raise LookupError("not here")

    before = sys.getswitchinterval()
    with pytest.raises(LookupError, match="not here"):
        beside.gives_up_the_gil(fails_elsewhere)
    assert sys.getswitchinterval() == before
    assert threading.active_count() == 1


def test_blas_and_torch_get_so_many_threads_and_the_old_number_back():
    threadpoolctl = pytest.importorskip("threadpoolctl")

    def blas():
        return {
            pool["num_threads"]
            for pool in threadpoolctl.threadpool_info()
            if pool["user_api"] == "blas"
        }

    np.dot(np.ones((2, 2)), np.ones((2, 2)))
    before = torch.get_num_threads(), blas()
    with beside.several_threads(1):
        assert (torch.get_num_threads(), blas()) == (1, {1})
    assert (torch.get_num_threads(), blas()) == before


def test_python_code_is_measured_alone_and_beside_each_work():
    works = ("sleep", "Python loop")
    result = beside.beside_python(works=works, repeats=2)
    assert result.labels == ["alone", *works]
    assert result.common == {"threads": 1}
    assert all(value > 0 for values in result.repeats.values() for value in values)


def test_a_short_wait_waits_for_the_switch_interval_beside_python_code():
    # Not every one of them: on a busy machine the other thread may itself have to wait.
    assert max(beside.short_wait_ms(beside=True, switch_ms=50, waits=5) for _ in range(5)) >= 5
    assert beside.short_wait_ms(beside=False, waits=5) >= 0.1


def found(cores: int, threads: int, **factors: float) -> Result:
    steps = [1 + i / 1000 for i in range(12)]
    repeats = {"alone": tuple(steps)}
    for work, factor in factors.items():
        repeats[work.replace("_", " ")] = tuple(factor * step for step in steps)
    common, machine = {"threads": threads}, {"cores": cores}
    return Result("?", "time", "ms", repeats, common=common, machine=machine)


@pytest.mark.parametrize(
    ("work", "gives_up", "factor", "threads", "cores", "words"),
    [
        ("sleep", True, 1.0, 1, 1, "no slow-down"),
        ("numpy dot", True, 2.0, 1, 1, "2 busy threads had 1 core."),
        ("numpy dot", True, 1.5, 2, 2, "3 busy threads had 2 cores"),
        ("hash bytes", True, 1.5, 2, 2, "there are cores enough"),
        ("numpy dot", True, 1.0, 1, 8, "no slow-down"),
        ("Python loop", False, 2.0, 1, 8, "and the Python code waited"),
        ("Python loop", False, 1.0, 1, 8, "no slow-down can be told here."),
    ],
)
def test_the_reason_is_the_lock_or_the_cores(work, gives_up, factor, threads, cores, words):
    result = found(cores, threads, **{work.replace(" ", "_"): factor})
    said = beside.why(result, {work: gives_up})
    assert said.startswith(f"{work}: ")
    assert words in said


def test_too_few_repeats_tell_nothing():
    result = found(2, 1, sleep=1.0)
    few = Result(
        "?",
        "time",
        "ms",
        {k: v[:2] for k, v in result.repeats.items()},
        common=result.common,
        machine=result.machine,
    )
    assert "too few repeats" in beside.why(few, {"sleep": True})


# The picture of the turns


def test_turns_are_told_by_their_share_and_their_longest_gap():
    some = turns.Turns("digging", 0.1, ((0.0, 0.03), (0.07, 0.1)), ((0.03, 0.07),))
    assert some.share == pytest.approx(0.6)
    assert some.longest_gap == pytest.approx(0.04)
    assert "60% of the time; the longest gap took 40.0 ms" in str(some)
    assert "no gap" in str(turns.Turns("digging", 0.1, ((0.0, 0.1),), ()))


def test_beside_a_loop_the_main_thread_has_gaps_in_which_the_other_one_runs():
    (watched,) = turns.beside(["Python loop"], seconds=0.1)
    assert 0 < watched.share < 0.9
    assert len(watched.main) > 1
    for bars in (watched.main, watched.other):
        assert all(0 <= start < end <= 0.1 for start, end in bars)
    shared = sum(
        max(0.0, min(end, other_end) - max(start, other_start))
        for start, end in watched.main
        for other_start, other_end in watched.other
    )
    assert shared < 0.01  # two threads never run Python code at the same time


def test_a_watched_work_that_fails_is_told_and_not_waited_for(monkeypatch):
    def fail():
        raise LookupError("no such work")

    monkeypatch.setattr(turns, "make", lambda name: fail)
    with pytest.raises(LookupError, match="no such work"):
        turns.beside(["sleep"])
    assert threading.active_count() == 1


def test_the_picture_says_what_it_shows_in_light_and_dark():
    bars = ((0.0, 0.03), (0.07, 0.1))
    picture = turns.show(
        [turns.Turns("digging", 0.1, bars, ()), turns.Turns("sleep", 0.1, bars, bars)]
    )
    assert "Beside digging" in picture.alt
    assert "Beside sleep" in picture.alt
    assert picture.png != png(picture.draw(True))


def test_the_panel_runs_one_thread_of_blas_or_several(monkeypatch):
    asked = []

    def note(settings, function, *, common, **options):
        asked.append(common["threads"])
        return Result("?", "time", "ms", dict.fromkeys(settings, (1.0,)))

    monkeypatch.setattr(beside, "measure", note)
    panel = panels.beside_python()
    (control,) = panel.controls
    for value in control.options.values():
        assert panel.run(threads=value).labels == panel.labels
    assert asked == list(control.options.values())
    assert asked[0] == 1 < asked[1]


THREADS_OF_A_PROCESS = """
import sys
import threading
import psutil
from labkit.lab.experiments import beside
threads, process = int(sys.argv[1]), psutil.Process()
before = process.num_threads() - threading.active_count()
with beside.several_threads(threads), beside.repeating(beside.make("torch matmul"), threads):
    print(process.num_threads() - threading.active_count() - before)
"""


def test_torch_takes_no_more_threads_in_another_thread_than_it_was_given():
    """Beside those of Python there are OpenMP's; on one core it makes none."""
    program = [sys.executable, "-c", THREADS_OF_A_PROCESS]
    assert int(output_of([*program, "1"])) == 0
    assert (int(output_of([*program, "2"])) > 0) == (cores() > 1)
