"""A piece of memory that two processes map, and what it says when there is none."""

import ctypes
import errno
import gc
import mmap
import os
import tempfile

import numpy as np
import pytest
import torch

from labkit.errors import LabkitError, SharedMemoryFull, TooManyOpenFiles
from labkit.sharing.segment import Segment, as_labkit_error


@pytest.fixture(params=["memfd", "unlinked file"])
def created(request, monkeypatch, tmp_path):
    """Make segments as Linux does, and as a system without memfd does."""
    if request.param == "unlinked file":
        monkeypatch.delattr(os, "memfd_create", raising=False)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    elif not hasattr(os, "memfd_create"):
        pytest.skip("this system has no memfd")
    yield Segment.create
    assert list(tmp_path.iterdir()) == []


def open_fds() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_new_memory_is_zero(created):
    segment = created(5000)
    assert bytes(segment.exporter(0, 5000)) == bytes(5000)
    segment.close()


def test_two_mappings_of_one_descriptor_see_the_same_bytes(created):
    ours = created(100)
    theirs = Segment(os.dup(ours.fd), 100)
    writer, reader = ours.exporter(0, 100), theirs.exporter(10, 90)
    writer[10:13] = b"abc"
    assert reader[:3] == b"abc"
    ours.close()
    theirs.close()


def test_a_child_sees_what_its_parent_writes_later(created):
    segment = created(8)
    memory = segment.exporter(0, 8)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(reader, 1)
        os._exit(memory[0][0])
    memory[0] = b"\x07"
    os.write(writer, b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    os.close(reader)
    os.close(writer)
    segment.close()


@pytest.mark.parametrize("view", [torch.frombuffer, np.frombuffer], ids=["torch", "numpy"])
def test_the_memory_lives_as_long_as_a_view_of_it(created, view):
    segment = created(16)
    array = view(segment.exporter(8, 8), dtype=torch.uint8 if view is torch.frombuffer else "u1")
    array[:] = 3
    part = array[2:4]
    segment.close()
    del array, segment
    gc.collect()
    assert part.tolist() == [3, 3]


def test_closing_gives_the_descriptor_back_and_may_be_repeated(created):
    before = open_fds()
    segment = created(16)
    segment.close()
    segment.close()
    del segment
    assert open_fds() == before


def test_whole_pages_are_discarded_and_the_rest_is_kept(created):
    page = mmap.PAGESIZE
    segment = created(4 * page)
    memory = segment.exporter(0, 4 * page)
    ctypes.memset(memory, 1, 4 * page)
    segment.discard(page // 2, 3 * page + page // 2)
    assert set(memory[:page]) == {1}
    assert set(memory[3 * page :]) == {1}
    assert set(memory[page : 3 * page]) <= {0, 1}  # a file system may refuse
    segment.close()


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no memfd")
def test_discarded_pages_of_a_memfd_take_no_memory():
    segment = Segment.create(1 << 20)
    ctypes.memset(segment.exporter(0, 1 << 20), 1, 1 << 20)
    assert os.fstat(segment.fd).st_blocks * 512 >= 1 << 20
    segment.discard(0, 1 << 20)
    assert os.fstat(segment.fd).st_blocks == 0
    segment.close()


def test_private_memory_has_no_descriptor():
    before = open_fds()
    segment = Segment.private(1 << 16)
    assert open_fds() == before
    memory = segment.exporter(16, 4)
    memory[:] = b"abcd"
    segment.close()
    assert memory[:] == b"abcd"


@pytest.mark.parametrize("call", ["ftruncate", "mmap"])
@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EMFILE, TooManyOpenFiles),
        (errno.ENFILE, TooManyOpenFiles),
        (errno.ENOMEM, SharedMemoryFull),
        (errno.ENOSPC, SharedMemoryFull),
        (errno.EPERM, PermissionError),
    ],
)
def test_a_refusal_of_the_system_leaves_no_descriptor(created, monkeypatch, call, number, kind):
    def refuse(*arguments):
        raise OSError(number, os.strerror(number))

    if call == "ftruncate":
        monkeypatch.setattr(os, "ftruncate", refuse)
    else:
        monkeypatch.setattr("labkit.sharing.segment._Mapping", refuse)
    before = open_fds()
    with pytest.raises(kind) as caught:
        created(4096)
    assert open_fds() == before
    if issubclass(kind, LabkitError):
        assert isinstance(caught.value.__cause__, OSError)


def test_the_error_of_a_full_memory_names_wanted_free_and_the_ways_out(tmp_path):
    error = as_labkit_error(OSError(errno.ENOSPC, "No space left"), 12_000_000, str(tmp_path))
    status = os.statvfs(tmp_path)
    assert error.wanted == 12_000_000
    assert error.free == pytest.approx(status.f_bavail * status.f_frsize, rel=0.2)
    for word in ("12,000,000 bytes", "sharing_strategy=", "batches", "size="):
        assert word in str(error)


def test_the_error_of_too_many_files_names_the_limit_and_the_ways_out():
    error = as_labkit_error(OSError(errno.EMFILE, "Too many open files"), 1)
    for word in ("Too many open files", str(error.limit), "ulimit -n", "sharing_strategy"):
        assert word in str(error)
