"""What other systems lack is noticed, said, and done without."""

import multiprocessing
import os
import pathlib
import socket
import sys
import tempfile

import pytest
import torch

import labkit
import labkit.sharing as sharing
from labkit.sharing import names
from tests.datasets import Mapped, Recipe, Samples
from tests.leftovers import NAMES_ARE_OURS
from tests.scripts import run_script


@pytest.fixture(autouse=True)
def the_default_stays_what_it_is(monkeypatch):
    monkeypatch.setattr(sharing, "_chosen", None)


def batches(**options):
    options = {"batch_size": 4, "num_workers": 2, "multiprocessing_context": "fork", **options}
    recipe = Recipe("large")
    return labkit.DataLoader(Samples(16, recipe), **options)


def assert_right(loader):
    theirs = torch.utils.data.DataLoader(loader.dataset, batch_size=4)
    for ours, expected in zip(list(loader), theirs, strict=True):
        assert torch.equal(ours, expected)


def assert_all_work(expected):
    assert labkit.get_all_sharing_strategies() == expected
    assert_right(batches())
    for strategy in sorted(expected):
        assert_right(batches(sharing_strategy=strategy))


ALL = {"copy", "file_descriptor", "file_system", "arena"}


def test_without_memfd_segments_are_files_without_a_name(monkeypatch, tmp_path):
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert labkit.get_sharing_strategy() == "arena"
    assert_all_work(ALL)
    assert list(tmp_path.iterdir()) == []


def test_without_descriptors_that_travel_copy_and_names_are_left(monkeypatch):
    monkeypatch.delattr(socket, "send_fds")
    assert labkit.get_sharing_strategy() == "copy"
    assert_all_work({"copy", "file_system"})


def test_without_links_there_is_no_file_system(monkeypatch):
    monkeypatch.delattr(os, "link")
    assert_all_work(ALL - {"file_system"})
    with pytest.raises(ValueError, match="unknown sharing_strategy 'file_system': on this machine"):
        batches(sharing_strategy="file_system")


def test_without_dev_shm_names_are_in_the_folder_for_temporary_files(monkeypatch, tmp_path):
    isdir = os.path.isdir
    monkeypatch.setattr(os.path, "isdir", lambda path: path != "/dev/shm" and isdir(path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert names.directory() == str(tmp_path)
    shm = set(os.listdir("/dev/shm"))
    assert_right(batches(sharing_strategy="file_system"))
    assert list(tmp_path.iterdir()) == []
    if NAMES_ARE_OURS:
        assert not [name for name in {*os.listdir("/dev/shm")} - shm if name.startswith("labkit")]


def test_without_posix_fallocate_names_still_work(monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate")
    assert_right(batches(sharing_strategy="file_system"))


def test_without_madvise_that_gives_pages_back_the_arena_still_works(monkeypatch):
    for advice in ("MADV_REMOVE", "MADV_DONTNEED"):
        monkeypatch.delattr("mmap." + advice)
    assert_right(batches(sharing_strategy="arena"))
    assert_right(batches(num_workers=0, multiprocessing_context=None))


def test_without_fork_workers_are_spawned(monkeypatch):
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none=False: None)
    with pytest.raises(ValueError, match="valid start method in \\['spawn'\\]"):
        batches()
    assert_right(batches(multiprocessing_context=None, num_workers=1))


# What is looked at when the package is imported: in a program of its own, before the import.

_WITHOUT = """
    import multiprocessing, mmap, os, select, signal, socket, sys
    from multiprocessing import resource_tracker
    import torch

    resource_tracker.ensure_running()  # like torch it is this system's, and needs what goes now

    for module, lacks in {
        os: "fork register_at_fork memfd_create MFD_CLOEXEC posix_fallocate",
        socket: "send_fds recv_fds CMSG_SPACE CMSG_LEN SCM_RIGHTS",
        signal: "pthread_sigmask SIGRTMIN",
        select: "poll POLLRDHUP",
        mmap: "MADV_REMOVE MADV_DONTNEED MAP_PRIVATE MAP_ANONYMOUS",
    }.items():
        for name in lacks.split():
            if hasattr(module, name):
                delattr(module, name)
    sys.modules["resource"] = None
"""
_RUN = """
    multiprocessing.get_all_start_methods = lambda: ["spawn"]
    multiprocessing.set_start_method("spawn", force=True)
    import labkit
    from tests.datasets import Mapped

    if __name__ == "__main__":
        print(labkit.get_sharing_strategy(), *sorted(labkit.get_all_sharing_strategies()))
        for num_workers in (0, 2):
            loader = labkit.DataLoader(
                Mapped(torch.tensor, 40), batch_size=4, num_workers=num_workers
            )
            print(torch.cat(list(loader)).tolist() == list(range(40)))
"""


def test_on_a_system_with_all_that_windows_lacks_it_runs(tmp_path):
    done = run_script(_WITHOUT + _RUN, tmp_path / "program.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["copy", "copy", "file_system", "True", "True"]


def test_on_windows_names_in_use_cannot_be_removed_so_there_is_no_file_system(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.delattr(socket, "send_fds")
    assert labkit.get_all_sharing_strategies() == {"copy"}
    assert labkit.get_sharing_strategy() == "copy"
    assert pathlib.Path(names.directory()).is_dir()
    assert_right(labkit.DataLoader(Mapped(torch.tensor, 8), batch_size=4))
