"""What a kill leaves is found, drawn and removed; and what outlives its sender."""

import os
import re
import signal
import time

import psutil
import pytest
from matplotlib import font_manager

from labkit.lab.plots.pictures import png
from labkit.lab.shared_memory import (
    LABKIT,
    PYTORCH,
    kill_main,
    killed,
    killed_picture,
    main_processes,
    read_after_the_end,
)
from labkit.lab.shared_memory.holdings import DEV_SHM
from labkit.lab.shared_memory.killed import Left
from tests.leftovers import NAMES_ARE_OURS

AFTER = {
    "file_system": ("gone", "none", "some", "none"),
    "arena": ("gone", "none", "none", "none"),
    "PyTorch: file_system": ("still there", "some", "some", "some"),
    "PyTorch: file_descriptor": ("still there", "none", "none", "none"),
}


@pytest.fixture
def nothing_is_left(monkeypatch):
    """Fails a test that leaves a manager of PyTorch's, or a name of a dead process."""
    monkeypatch.setattr(killed.secrets, "token_hex", lambda count: "of-a-test")
    before = names_of_the_dead()
    yield
    assert main_processes.managers("of-a-test") == []
    if NAMES_ARE_OURS:
        assert names_of_the_dead() <= before


def names_of_the_dead():
    of_a_process = re.compile(r"(?:torch_|labkit-\d+-)(\d+)")
    matches = filter(None, map(of_a_process.match, os.listdir(DEV_SHM)))
    return {match.string for match in matches if not psutil.pid_exists(int(match[1]))}


def test_each_way_leaves_what_it_must_and_the_experiment_leaves_nothing(
    monkeypatch, nothing_is_left
):
    """PyTorch's worker looks every 5 s whether its main process lives. Where the machine stood
    still before the kill, it looks early, and there are further tries.
    """
    monkeypatch.setenv("LABKIT_MEASURE_SECONDS", "0.5")  # it is watched no longer than it takes
    for _ in range(4):
        found = kill_main((LABKIT[1], LABKIT[3], *PYTORCH))
        after = {row[0]: tuple(row[1:]) for row in found.rows}
        if after == AFTER:
            break
    assert after == AFTER
    names_of = {one.way.label: one.names for one in found.left}
    assert names_of["PyTorch: file_system"] == 5  # three kept, two under way
    assert names_of["file_system"] in (1, 2)  # the main process may have received one of them


def test_when_it_fails_half_way_nothing_is_left_either(monkeypatch, nothing_is_left):
    monkeypatch.setattr(killed, "_kill_each", fail_half_way)
    with pytest.raises(RuntimeError, match="half way"):
        kill_main(PYTORCH[:1])


def fail_half_way(send, ways, mark, watch):
    case = main_processes.started(ways[0], mark)
    main_processes.wait_until_ready(case, send)
    os.kill(case.main.pid, 9)
    raise ValueError("half way")


@pytest.mark.parametrize("is_told", [True, False], ids=["pids known", "pids unknown"])
def test_when_it_is_interrupted_nothing_is_left_either(monkeypatch, nothing_is_left, is_told):
    tester = os.getpid()

    def kill_and_interrupt(send, ways, mark, watch):
        for way in ways:
            case = main_processes.started(way, mark)
            if is_told:
                main_processes.wait_until_ready(case, send)
                killed._kill(case, [case.main, *case.workers, *main_processes.managers(mark)])
            else:
                assert case.ready.poll(60)
        os.kill(tester, signal.SIGINT)
        time.sleep(600)

    monkeypatch.setattr(killed, "_kill_each", kill_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        kill_main((LABKIT[1], PYTORCH[0]))


@pytest.fixture(autouse=True)
def fonts_are_closed():
    """matplotlib keeps the fonts open that a thread has used."""
    yield
    font_manager._get_font.cache_clear()


def left(way, names, worker_s, names_s):
    return Left(way, names, worker_s, names_s, 0, 0, watched_s=8.0)


def test_the_picture_says_in_words_what_it_shows():
    found = [left(LABKIT[1], 2, 0.05, 0.06), left(PYTORCH[0], 5, 4.5, None)]
    picture = killed_picture.show(found)
    assert "file_system: worker gone after 0.05 s; 2 names, gone after 0.06 s." in picture.alt
    assert "PyTorch: file_system: worker gone after 4.50 s; 5 names, gone after more than" in (
        picture.alt
    )
    assert "was gone after 0.05 s (file_system), the last after 4.50 s (PyTorch: file_system)" in (
        picture.sentence
    )
    assert "file_system (for 0.06 s), PyTorch: file_system (for more than the 8.00 s" in (
        picture.sentence
    )
    assert picture.sentence in picture.alt
    texts = {text.get_text().strip() for text in picture.figure.axes[0].texts}
    assert texts == {"0.05", "0.06", "4.50", "still there"}
    assert png(picture.draw(True)) != picture.png


def test_only_what_the_sender_itself_must_hand_over_is_lost_with_it():
    found = dict(read_after_the_end().rows)
    value = "[0.0, 1.0, 2.0, 3.0]"
    assert [found[way.label] for way in LABKIT] == [value] * 4
    assert found["PyTorch: file_system"] == value
    assert found["PyTorch: file_descriptor"] == "no connection to it"
