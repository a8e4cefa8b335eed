"""What a learner has passed is kept in a file, whatever happens to that file."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from labkit.lab import check, passes, progress, quiz
from labkit.lab.exercises import NotRight, graded
from labkit.lab.passes import FILE, forget, note, passed
from labkit.lab.quizzes.form import QuizForm
from tests.lab.answers import answers_00
from tests.lab.test_plots import fonts_are_open

__all__ = ["fonts_are_open"]  # a fixture

NOTES = """
import runpy
import sys
note = runpy.run_path(sys.argv[1])["note"]  # it needs nothing of labkit, which takes long to import
for number in range(40):
    note(f"{sys.argv[2]}.{number}")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """A learner's folder, in which the kernel works."""
    monkeypatch.delenv("LABKIT_PROGRESS")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(passes, "_pending", {})
    return tmp_path


def test_a_check_is_noted_when_it_is_right_and_not_before(folder):
    wrong, _ = answers_00.WRONG["00.most_workers"][0]
    check("00.most_workers", wrong)
    with pytest.raises(NotRight, match=r"00\.most_workers: Not right yet"):
        graded("00.most_workers", wrong)
    assert not (folder / FILE).exists()
    assert graded("00.most_workers", answers_00.RIGHT["00.most_workers"][0]).passed
    assert list(passed().when) == ["00.most_workers"]
    notebook = progress().notebooks[0]
    assert notebook.exercises == {"most_workers": True, "busiest_layer": False}
    assert not notebook.is_done


def test_right_answers_of_a_quiz_are_noted_in_text_and_in_the_form():
    letters = ["abcd"[[o.right for o in q.options].index(True)] for q in quiz("00").questions]
    quiz("00").choose(1, "abcd"[("abcd".index(letters[0]) + 1) % 3])
    assert passed().when == {}
    quiz("00").choose(1, letters[0])
    form = QuizForm(quiz("00")).questions[1]
    form.choice.index = "abcd".index(letters[1])
    form.check.click()
    assert sorted(passed().when) == ["00.quiz.1", "00.quiz.2"]
    assert list(progress().notebooks[0].questions.values())[:3] == [True, True, False]


def test_the_first_pass_counts_and_is_kept_as_a_time(folder):
    note("00.most_workers")
    kept = json.loads((folder / FILE).read_text())
    assert kept["passed"].keys() == {"00.most_workers"}
    old = kept["passed"]["00.most_workers"] = "2020-01-01T00:00:00+00:00"
    (folder / FILE).write_text(json.dumps(kept))
    note("00.most_workers")
    assert passed().when == {"00.most_workers": old}


def test_two_kernels_and_two_threads_at_once_lose_nothing_and_leave_nothing_else(folder):
    command = [sys.executable, "-c", NOTES, passes.__file__]
    kernels = [subprocess.Popen([*command, name]) for name in ("a", "b")]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(note, [f"c.{number}" for number in range(40)]))
    assert [kernel.wait(60) for kernel in kernels] == [0, 0]
    expected = {f"{name}.{number}" for name in "abc" for number in range(40)}
    assert passed().when.keys() == expected
    assert [path.name for path in folder.iterdir()] == [FILE]


@pytest.mark.parametrize(
    "damage",
    [b"", b'{"format": 1, "passed": {"00.x"', b"\xff\xfe", b"[]", b'{"format": 1, "passed": [1]}',
     b'{"format": 1, "passed": {"00.x": 3}}', b'{"format": 2, "passed": {}}',
     b"[" * 100_000],
)  # fmt: skip
def test_a_damaged_file_is_set_aside_with_words_and_nothing_is_lost(folder, damage):
    (folder / FILE).write_bytes(damage)
    note("00.most_workers")
    assert passed().when.keys() == {"00.most_workers"}
    aside = folder / "labkit-progress.damaged-1.json"
    assert aside.read_bytes() == damage
    assert f"{aside.name} is an earlier {FILE} that was damaged" in progress().as_text()
    (folder / FILE).write_bytes(damage)
    assert progress().sentence.startswith("Passed: 0 of")
    assert (folder / "labkit-progress.damaged-2.json").read_bytes() == damage


def test_where_nothing_can_be_written_this_kernel_remembers_and_says_so(folder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(passes, "write_whole", denied)  # root may write anywhere
        note("00.most_workers")
        assert "00.most_workers" in passed().when
        assert f"not kept, because {folder} cannot be written to" in progress().as_text()
    note("00.busiest_layer")
    assert json.loads((folder / FILE).read_text())["passed"].keys() == {
        "00.most_workers",
        "00.busiest_layer",
    }
    assert progress().remarks == ()


def denied(*_):
    raise PermissionError(13, "Permission denied")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_read_only_stops_no_check(folder):
    folder.chmod(0o500)
    note("00.most_workers")
    assert "cannot be written to" in progress().as_text()
    folder.chmod(0o700)


def test_a_file_that_cannot_be_read_and_a_folder_that_is_gone_stop_nothing(folder, monkeypatch):
    (folder / FILE).mkdir()
    note("00.most_workers")
    assert f"{FILE} cannot be read" in progress().as_text()
    monkeypatch.setenv("LABKIT_PROGRESS", str(folder / "gone" / "mine.json"))
    note("00.busiest_layer")
    assert "00.busiest_layer" in passed().when


def test_a_lock_that_is_not_given_up_delays_a_pass_and_loses_none(folder, monkeypatch):
    monkeypatch.setattr(passes, "_LOCK_SECONDS", 0.05)
    with passes._locked(folder):
        note("00.most_workers")
    assert not (folder / FILE).exists()
    note("00.busiest_layer")
    assert len(json.loads((folder / FILE).read_text())["passed"]) == 2


def test_resetting_takes_back_one_notebook_or_all():
    for id in ("00.most_workers", "00.quiz.1", "03.shard"):
        note(id)
    left = progress().reset("00")
    assert passed().when.keys() == {"03.shard"}
    assert "Passed: 1 of" in left.sentence
    with pytest.raises(ValueError, match=r"no notebook '3'. There are: 00, 01"):
        left.reset("3")
    assert "Passed: 0 of" in left.reset().sentence
    assert passed().when == {}


def test_off_keeps_nothing_and_a_path_keeps_elsewhere(folder, monkeypatch):
    monkeypatch.setenv("LABKIT_PROGRESS", "off")
    note("00.most_workers")
    assert "Nothing is kept" in progress().as_text()
    forget()
    assert passed().when == {}
    assert list(folder.iterdir()) == []
    monkeypatch.setenv("LABKIT_PROGRESS", str(folder / "mine.json"))
    note("00.most_workers")
    assert [path.name for path in folder.iterdir()] == ["mine.json"]


def test_it_is_shown_as_a_picture_with_alt_text_a_table_and_text():
    for number in range(1, 5):
        note(f"00.quiz.{number}")
    note("00.most_workers")
    note("00.busiest_layer")
    shown = progress()
    data, metadata = shown._repr_mimebundle_()
    assert "00: 2 of 2 exercises, 4 of 4 questions" in metadata["image/png"]["alt"]
    assert "✓ most_workers" in data["text/html"]
    assert data["text/plain"] == repr(shown)
    assert "1 of" in shown.sentence
    assert "labkit-progress.json in this folder" in repr(shown)
    squares = [line for line in shown.picture().figure.axes[0].lines if line.get_marker() == "s"]
    filled = [line for line in squares if line.get_markerfacecolor() != "none"]
    assert len(squares) == sum(len(book.exercises) for book in shown.notebooks)
    assert len(filled) == 2
