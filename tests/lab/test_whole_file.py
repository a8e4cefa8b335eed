"""A file that is replaced as a whole, also where writing it fails."""

import os

import pytest

from labkit.lab.whole_file import write_whole


def test_what_is_written_takes_the_place_of_what_was_there(tmp_path):
    file = tmp_path / "kept.json"
    for content in (b"one", b"two"):
        write_whole(file, content)
        assert file.read_bytes() == content
    assert list(tmp_path.iterdir()) == [file]


def test_what_was_there_stays_when_writing_fails(tmp_path, monkeypatch):
    file = tmp_path / "kept.json"
    write_whole(file, b"one")

    def full(descriptor: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_whole(file, b"two")
    assert file.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_that_is_not_there_is_told(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "nowhere" / "kept.json", b"one")
