"""The panel of failures: run, cancelled, run again, interrupted, two at once; nothing is left."""

import os
import signal
import threading

import pytest

from labkit.lab import panels
from labkit.lab.failures.noticing import noticing
from labkit.lab.panels.view import PanelView
from tests.scripts import seconds_until


def test_both_sides_are_measured_and_their_words_are_in_the_notes():
    steps, rounds = [], []
    result = noticing(
        "worker exits", repeats=2, patience_s=0.5,
        progress=lambda done, total, text: steps.append((done, total)), so_far=rounds.append,
    )  # fmt: skip
    assert {label: len(values) for label, values in result.repeats.items()} == {
        "PyTorch": 2,
        "labkit": 2,
    }
    assert min(result.repeats["PyTorch"]) >= 0.5
    pytorch, labkit = result.notes
    assert "its true time is longer" in pytorch
    assert "WorkerDied: DataLoader worker 0" in labkit
    assert "Stayed behind: nothing." in labkit
    assert (steps[0], steps[-1], len(rounds)) == ((0, 2), (2, 2), 1)


SLOW = {"failure": "full shared memory", "patience_s": 60.0, "repeats": 1}


def interrupt(panel, *, once):
    """Run it in this thread, and press Ctrl-C a little after it has told this."""
    ctrl_c = threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT])

    def press():
        if panel.progress[2].startswith(once) and ctrl_c.ident is None:
            ctrl_c.start()

    panel.on_change.append(press)
    with pytest.raises(KeyboardInterrupt):
        panel.run(**SLOW)
    panel.on_change.clear()
    assert not panel.running


def test_panels_that_are_interrupted_or_cancelled_run_again():
    """That no process and no name is left of any of it is seen by the fixture of all tests."""
    pressed, other = panels.failures(), panels.failures()
    view = PanelView(pressed)
    view.skip.click()
    run, pressed.run = pressed.run, lambda **chosen: run(**{**chosen, **SLOW})
    view.run.click()
    assert seconds_until(lambda: pressed.progress[2].startswith("full")) < 30
    interrupt(other, once="waiting")
    assert pressed.running  # the interrupt was for the cell that waited
    view.cancel.click()
    assert seconds_until(lambda: not pressed.running) < 30
    assert pressed.error == "Cancelled."

    interrupt(other, once="full")
    again = other.run(failure="worker exits", patience_s=0.3, repeats=1)
    assert again.labels == ["PyTorch", "labkit"]
