"""`python -m labkit lab` hands out the course, and never writes over what somebody changed."""

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

from labkit.__main__ import main
from labkit.lab import notebooks
from labkit.lab.exercises import solution

LIST = ".labkit-notebooks.json"
FIRST = "00_start_here.ipynb"
COURSE = {
    FIRST: b"{}",
    "01_from_dataset_to_batch.ipynb": b'{"cells": []}',
    "TEACHING.md": b"# Teaching\n",
    "data/table.csv": b"a,b\r\n1,2\n",
    "solutions/01_from_dataset_to_batch.py": b"answer = 1\n",
}


@pytest.fixture
def course(tmp_path, monkeypatch) -> Path:
    """Where a wheel would have brought a small course; there is no checkout."""
    place = tmp_path / "site-packages" / "labkit" / "notebooks"
    for name, content in {**COURSE, "__pycache__/left.pyc": b"0"}.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
    monkeypatch.setattr(notebooks, "places", lambda: [tmp_path / "no checkout", place])
    return place


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """A learner's folder, in which the command is given."""
    folder = tmp_path / "learner"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_from_a_wheel_all_of_the_course_is_copied_byte_by_byte(course, here, capsys):
    assert main(["lab"]) == 0
    found = contents(here)
    assert json.loads(found.pop(LIST)).keys() == COURSE.keys()
    assert found == COURSE
    said = capsys.readouterr().out
    assert str(here) in said
    assert "5 new" in said
    assert f"-m jupyter lab {FIRST}" in said


def test_another_folder_is_made_and_named(course, here, capsys):
    assert main(["lab", "my course/labkit"]) == 0
    assert contents(here / "my course" / "labkit").keys() == {*COURSE, LIST}
    assert f"-m jupyter lab 'my course/labkit/{FIRST}'" in capsys.readouterr().out


def test_a_second_time_nothing_is_written(course, here):
    notebooks.copy_to(here)
    times = {path: path.stat().st_mtime_ns for path in here.rglob("*.*") if path.name != LIST}
    copied = notebooks.copy_to(here)
    assert (len(copied.same), copied.new, copied.updated, copied.kept) == (len(COURSE), [], [], [])
    assert {path: path.stat().st_mtime_ns for path in times} == times


def test_after_a_copy_that_broke_off_a_newer_course_comes(course, here, monkeypatch):
    write = notebooks.write_whole

    def breaks_off(path, content):
        if path.name == "TEACHING.md":
            raise KeyboardInterrupt
        write(path, content)

    monkeypatch.setattr(notebooks, "write_whole", breaks_off)
    with pytest.raises(KeyboardInterrupt):
        notebooks.copy_to(here)
    monkeypatch.undo()
    assert contents(here).keys() >= {LIST, FIRST}
    (course / FIRST).write_bytes(b"newer")
    monkeypatch.setattr(notebooks, "places", lambda: [here / "no checkout", course])
    copied = notebooks.copy_to(here)
    assert FIRST in copied.updated
    assert copied.kept == []


def test_a_newer_course_comes_except_over_what_was_changed(course, here, capsys):
    notebooks.copy_to(here)
    (here / FIRST).write_bytes(b"my work")
    (here / "mine.ipynb").write_bytes(b"mine alone")
    for name in (FIRST, "TEACHING.md"):
        (course / name).write_bytes(b"newer")
    (course / "02_start_methods.ipynb").write_bytes(b"added")

    assert main(["lab"]) == 0
    found = contents(here)
    assert found[FIRST] == b"my work"
    assert found["mine.ipynb"] == b"mine alone"
    assert (found["TEACHING.md"], found["02_start_methods.ipynb"]) == (b"newer", b"added")
    said = capsys.readouterr().out
    assert "1 new, 1 updated, 3 as they were, 1 kept, because they were changed" in said
    assert f"  kept: {FIRST}\n" in said
    assert "rename yours and repeat this command" in said


def test_what_was_changed_stays_kept_however_often_the_course_is_copied(course, here):
    notebooks.copy_to(here)
    (here / FIRST).write_bytes(b"my work")
    for version in (b"second", b"third"):
        (course / FIRST).write_bytes(version)
        assert notebooks.copy_to(here).kept == [FIRST]
    assert (here / FIRST).read_bytes() == b"my work"


def test_who_renames_a_file_gets_the_original_again(course, here):
    notebooks.copy_to(here)
    (here / FIRST).rename(here / "my_start.ipynb")
    assert notebooks.copy_to(here).new == [FIRST]
    assert (here / FIRST).read_bytes() == COURSE[FIRST]


def test_a_file_that_was_there_before_is_kept_unless_it_is_the_courses(course, here):
    (here / "TEACHING.md").write_bytes(b"another's")
    (here / FIRST).write_bytes(COURSE[FIRST])
    copied = notebooks.copy_to(here)
    assert (copied.kept, copied.same) == (["TEACHING.md"], [FIRST])
    (course / FIRST).write_bytes(b"newer")
    assert notebooks.copy_to(here).updated == [FIRST]


@pytest.mark.parametrize("damaged", ["", "{", "[1]", '{"00_start_here.ipynb": 7}', b"\xff\xfe"])
def test_without_a_readable_list_all_that_differs_is_kept(damaged, course, here):
    notebooks.copy_to(here)
    content = damaged if isinstance(damaged, bytes) else damaged.encode()
    (here / LIST).write_bytes(content)
    (course / FIRST).write_bytes(b"newer")
    copied = notebooks.copy_to(here)
    assert (copied.kept, len(copied.same)) == ([FIRST], len(COURSE) - 1)
    assert json.loads((here / LIST).read_text()).keys() == COURSE.keys() - {FIRST}


def test_a_link_is_left_alone_and_so_is_what_it_leads_to(course, here, tmp_path):
    elsewhere = tmp_path / "elsewhere.ipynb"
    elsewhere.write_bytes(COURSE[FIRST])
    (here / FIRST).symlink_to(elsewhere)
    assert notebooks.copy_to(here).kept == [FIRST]
    assert (here / FIRST).is_symlink()


def test_whoever_is_interrupted_has_the_old_file_and_no_half_one(course, here, monkeypatch):
    notebooks.copy_to(here)
    (course / FIRST).write_bytes(b"newer")

    def interrupted(*paths):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            notebooks.copy_to(here)
    assert contents(here).keys() == {*COURSE, LIST}
    assert (here / FIRST).read_bytes() == COURSE[FIRST]
    assert notebooks.copy_to(here).updated == [FIRST]


@pytest.mark.parametrize("in_the_way", ["data", "nowhere/else"])
def test_what_is_in_the_way_is_told_in_words(in_the_way, course, here, capsys):
    (here / in_the_way).parent.mkdir(exist_ok=True)
    (here / in_the_way).write_text("a file")
    folder = "." if in_the_way == "data" else in_the_way
    assert main(["lab", folder]) == 2
    assert f"the notebooks cannot be copied into {folder}: " in capsys.readouterr().err


def test_the_originals_are_not_copied_onto_themselves(course, here, capsys):
    assert main(["lab", str(course)]) == 2
    assert "these are the originals" in capsys.readouterr().err
    assert not (course / LIST).exists()


def test_in_a_checkout_it_says_where_they_are_and_copies_nothing(here, capsys):
    assert main(["lab"]) == 0
    assert contents(here) == {}
    said = capsys.readouterr().out
    assert str(Path(__file__).parents[2] / "notebooks" / FIRST) in said


def test_without_any_notebooks_it_says_so(course, here, monkeypatch, capsys):
    monkeypatch.setattr(notebooks, "places", lambda: [here / "a", here / "b"])
    assert main(["lab"]) == 2
    assert f"neither in {here / 'a'} nor in {here / 'b'}" in capsys.readouterr().err


def test_without_jupyterlab_it_says_what_to_install(course, here, monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["lab"]) == 0
    assert main(["lab", "--open"]) == 2
    assert capsys.readouterr().out.count("pip install 'labkit[lab]'") == 2


def test_open_becomes_jupyterlab_with_what_follows(course, here, monkeypatch):
    became = []
    monkeypatch.setattr(os, "execv", lambda *arguments: became.append(arguments))
    main(["lab", "there", "--open", "--no-browser", "--ip=0.0.0.0"])
    command = [sys.executable, "-m", "jupyter", "lab", f"there/{FIRST}"]
    assert became == [(sys.executable, [*command, "--no-browser", "--ip=0.0.0.0"])]


def test_solutions_are_found_where_a_wheel_brought_them(course, here):
    source = Path(__file__).parents[2] / "notebooks" / "solutions" / "00_start_here.py"
    (course / "solutions" / source.name).write_bytes(source.read_bytes())
    assert solution("00.most_workers").file == str(course / "solutions" / source.name)
