"""Under lowered limits each way fails, or does not, as it is built; and nothing is left."""

import json
import os

import pytest
import torch

import labkit
from labkit.lab.shared_memory import (
    LABKIT,
    PYTORCH,
    Bundles,
    full_dev_shm,
    holdings,
    keep_all,
    limits,
)
from labkit.lab.shared_memory.holdings import DEV_SHM, Holdings, names_of, remove_names
from labkit.lab.shared_memory.ways import in_a_child
from tests.leftovers import NAMES_ARE_OURS
from tests.scripts import ROOT


def test_descriptors_run_out_for_those_that_keep_them():
    found = keep_all((*LABKIT, *PYTORCH), batches=80, descriptors=40)
    failed = {way for way, outcome in found.items() if outcome.error}
    assert failed == {"file_descriptor", "PyTorch: file_descriptor"}
    assert found["file_descriptor"].error == "TooManyOpenFiles"
    assert "ulimit -n" in found["file_descriptor"].message
    assert all(10 < found[way].batches < 40 for way in failed)
    assert {outcome.batches for way, outcome in found.items() if way not in failed} == {80}
    assert found["copy"].words == "all 80 batches"


def outcomes_of(table):
    return {row[0]: tuple(row[1:]) for row in table.rows}


IN_A_SMALL_ONE = {
    "copy": ("all 2 batches", "nothing"),
    "file_system": ("SharedMemoryFull", "nothing"),
    "file_descriptor": ("all 2 batches", "nothing"),
    "arena": ("all 2 batches", "nothing"),
    "PyTorch: file_system": ("RuntimeError", "names"),
    "PyTorch: file_descriptor": ("RuntimeError", "names"),
}


def test_a_small_dev_shm_is_mounted_for_a_child_alone():
    if not limits.can_mount():
        pytest.skip("this system lets nobody mount a /dev/shm of its own")
    before = os.statvfs(DEV_SHM).f_blocks
    table = full_dev_shm()
    assert "8 MiB" in table.how
    assert outcomes_of(table) == IN_A_SMALL_ONE
    for words in ("12,000,000", "8,388,608", "sharing_strategy=", "smaller batches"):
        assert words in table.outcomes["file_system"].message
    assert os.statvfs(DEV_SHM).f_blocks == before


def test_without_a_mount_the_table_is_the_same_and_says_how(monkeypatch):
    monkeypatch.setattr(limits, "_can_mount", False)
    names = set(os.listdir(DEV_SHM))
    table = full_dev_shm()
    assert outcomes_of(table) == IN_A_SMALL_ONE
    assert "8 MiB" not in table.how
    if NAMES_ARE_OURS:
        assert not [name for name in {*os.listdir(DEV_SHM)} - names if name.startswith("torch_")]
    with pytest.raises(PermissionError, match="cannot be mounted"):
        keep_all(LABKIT, 1, shm_bytes=1 << 20)


def test_what_is_kept_is_counted():
    kept = {}
    for way in LABKIT:
        before = holdings()
        batches = list(way.loader(Bundles(5, tensors=2, tensor_bytes=100)))
        found = holdings() - before
        kept[way.strategy] = (found.descriptors, found.mappings, found.names)
        assert [int(batch[0][0, 0]) for batch in batches] == list(range(5))
        del batches
    assert kept == {
        "copy": (0, 0, 0),
        "file_system": (0, 10, 0),
        "file_descriptor": (10, 10, 0),
        "arena": (1, 1, 0),
    }


def test_what_is_counted_has_to_do_with_shared_memory(tmp_path):
    file = (tmp_path / "opened in between").open("w")
    before = holdings()
    file.close()
    assert holdings() - before == Holdings(0, 0, 0)
    with (tmp_path / "opened in between").open("w"):
        assert holdings() - before == Holdings(0, 0, 0)
    fd = os.memfd_create("counts")
    assert holdings() - before == Holdings(1, 0, 0)
    os.close(fd)


def test_the_notebooks_cell_on_memfds_says_the_same_when_it_is_run_again(capsys):
    cells = json.loads((ROOT / "notebooks/05_shared_memory.ipynb").read_text())["cells"]
    (cell,) = [text for cell in cells if "RssShmem" in (text := "".join(cell["source"]))]
    here = {"labkit": labkit, "os": os, "torch": torch}
    for _ in range(2):
        exec(cell, here)
    said = capsys.readouterr().out.splitlines()
    assert said[:3] == said[3:]
    assert said[2].endswith("True")


def test_names_are_found_by_their_process_and_removed():
    nobody = 2**22 + 5  # above the largest process id
    names = [f"torch_{nobody}_1_0", f"labkit-1-{nobody}-1-{'0' * 16}", f"other-{nobody}"]
    for name in names:
        (DEV_SHM / name).touch()
    try:
        assert sorted(names_of([nobody])) == sorted(names[:2])
        assert remove_names([nobody], grace_seconds=0.01) == 2
        assert names_of([nobody]) == []
        assert (DEV_SHM / names[2]).exists()
    finally:
        (DEV_SHM / names[2]).unlink()


def die(send):
    send("a message")
    os._exit(3)


def test_an_experiment_that_dies_is_an_error_and_is_tidied_up_first():
    tidied = []
    with pytest.raises(RuntimeError, match="died"):
        in_a_child(die, seconds=20, tidy=tidied.extend)
    assert tidied == ["a message"]
