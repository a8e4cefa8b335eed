"""`python -m labkit advise`, and `labkit.lab.advise`, from end to end."""

import signal
import sys
import threading

import pytest
from matplotlib import font_manager

from labkit.lab import advise
from labkit.lab.advising import NoAdvice, command
from labkit.lab.experiments import Cancelled
from tests.lab.advising import samples
from tests.scripts import run_script

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded")

PROGRAM = """
import time
import torch
from torch.utils.data import Dataset

class Images(Dataset):
    def __len__(self): return 60
    def __getitem__(self, index):
        print("reading", index)
        return torch.ones(index % 3 + 1)

dataset = Images()
def pad(batch): return torch.nn.utils.rnn.pad_sequence(batch)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A user's folder with a program; one round of each measurement."""
    monkeypatch.setenv("LABKIT_MEASURE_SECONDS", "0.02")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_images.py").write_text(PROGRAM)
    yield tmp_path
    font_manager._get_font.cache_clear()  # matplotlib keeps the fonts open that a thread has used


def test_the_command_advises_and_writes_a_report(folder, capsys):
    arguments = ["--collate", "my_images:pad", "--batch-size", "4", "--html", "report.html"]
    assert command.main(["my_images.py:dataset", "--seconds", "2", *arguments]) == 0
    said, errors = capsys.readouterr()
    assert "What holds it back" in said
    assert "labkit.DataLoader(dataset, batch_size=4, shuffle=True, collate_fn=pad" in said
    assert "Loading printed" in said
    assert "%|" in errors
    assert "<img alt=" in (folder / "report.html").read_text(encoding="utf-8")
    assert "my_images" not in sys.modules


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["my_images:dataset"], "--collate module:function"),
        (["my_images:pad"], "is called without arguments"),
        (["nothing:dataset"], "there is no module 'nothing'"),
        (["my_images:dataset", "--seconds", "0"], "seconds is more than 0"),
        (["my_images:dataset", "--memory-mb", "nan"], "--memory-mb is a number above 0"),
        (["my_images:dataset", "--device", "gpu0"], "there is no device 'gpu0' here"),
    ],
)
def test_without_advice_it_says_what_to_write(arguments, words, capsys):
    assert command.main(arguments) == 1
    said, errors = capsys.readouterr()
    assert said == ""
    assert words in errors


ENDS_IN_WORKERS = """
import os, signal
import labkit
from my_images import Images

class Ends(Images):
    def __getitem__(self, index):
        if labkit.get_worker_info() is not None:
            os.kill(os.getppid(), signal.SIGKILL)
        return index

dataset = Ends()
"""


def test_an_early_end_tells_where_and_what_was_found_until_then(folder, capsys):
    (folder / "ends.py").write_text(ENDS_IN_WORKERS)
    assert command.main(["ends.py:dataset", "--seconds", "2"]) == 1
    said, errors = capsys.readouterr()
    assert "exit code -9" in errors
    assert "It was at: workers: num_workers=" in errors
    assert "It came to an early end. This is what was found." in said
    assert "What holds it back" in said
    assert "Write" not in said


def test_ctrl_c_tells_what_was_found_until_then(capsys, monkeypatch):
    def interrupted(part, text):
        if text.startswith("workers"):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(command, "_bar", lambda: _as_context(interrupted))
    assert command.main(["my_images:dataset", "--collate", "my_images:pad"]) == 130
    said, _ = capsys.readouterr()
    assert "Interrupted. This is what was found." in said
    assert "fetch" in said


def _as_context(progress):
    class Bar:
        def __enter__(self):
            return progress

        def __exit__(self, *_):
            return None

    return Bar()


def test_ctrl_c_before_anything_says_so(capsys, monkeypatch):
    def interrupted(part, text):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(command, "_bar", lambda: _as_context(interrupted))
    assert command.main(["my_images:dataset"]) == 130
    assert "before anything was found" in capsys.readouterr().err


def test_a_report_that_cannot_be_written_is_told(capsys):
    arguments = ["--collate", "my_images:pad", "--html", "no/such/folder.html", "--seconds", "1"]
    assert command.main(["my_images:dataset", *arguments]) == 2
    said, errors = capsys.readouterr()
    assert "Write" in said
    assert "could not be written" in errors


def test_a_program_without_a_guard_gets_advice_for_its_own_class(tmp_path):
    program = """
    import torch
    from torch.utils.data import Dataset
    import labkit.lab

    (torch.rand(800, 800) @ torch.rand(800, 800)).sum()  # PyTorch has threads now

    class Mine(Dataset):
        def __len__(self): return 40
        def __getitem__(self, index): return torch.rand(300, 300) @ torch.rand(300, 300)

    print(labkit.lab.advise(Mine(), batch_size=4, seconds=1).line)
    """
    done = run_script(program, tmp_path / "train.py", limit=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("labkit.DataLoader(dataset, batch_size=4, shuffle=True") == 1


def test_a_cancellation_and_what_ends_the_process_are_told():
    cancel = threading.Event()
    with pytest.raises(Cancelled):
        advise(
            samples.WithLock(), seconds=1, progress=lambda part, text: cancel.set(), cancel=cancel
        )
    crashing = samples.Crashing()
    crashing.lock = threading.Lock()  # so that it is forked, which is quicker
    with pytest.raises(NoAdvice, match=r"died \(exit code 41"):
        advise(crashing, seconds=1)
    with pytest.raises(NoAdvice, match="step_seconds is 0 or more"):
        advise(crashing, step_seconds=-1)
