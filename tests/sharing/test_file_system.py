"""`file_system`: full memory is an error, and every name goes, but only when nobody needs it."""

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
import torch

import labkit
from labkit.errors import SharedMemoryGone, WorkerDied
from labkit.sharing import names
from tests.datasets import Mapped
from tests.scripts import alive, environment, seconds_until, started

SHM = Path("/dev/shm")
FOREIGN = ["labkit", "labkit-", "labkit-1-2-3", "labkit-1-abc-2-0123456789abcdef", "sem.labkit-x"]


def image(index):
    return torch.full((1000,), float(index + 1))


def loader(length=400, **options):
    options = {"batch_size": 4, "num_workers": 1, "multiprocessing_context": "fork", **options}
    return labkit.DataLoader(Mapped(image, length), sharing_strategy="file_system", **options)


def ours() -> set[str]:
    return {name for name in os.listdir(SHM) if name.startswith("labkit")}


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Names in a folder of their own, for a test that plants some."""
    monkeypatch.setattr(names, "directory", lambda: str(tmp_path))
    return tmp_path


@pytest.fixture
def dead_pid():
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


# A full /dev/shm

FULL = """
    import gc, json, os, time
    import torch, labkit
    from tests.datasets import Mapped

    def image(index):
        return torch.full((3, 1000, 1000), float(index))  # 12 MB

    def custom(samples):
        return samples[0][None].clone()

    def run(strategy, collate, keep):
        loader = labkit.DataLoader(
            Mapped(image, 12), num_workers=1, collate_fn=collate, sharing_strategy=strategy,
            multiprocessing_context="fork",
        )
        kept, start = [], time.monotonic()
        try:
            for batch in loader:
                assert (batch == kept.count(None) + len(kept)).all()
                kept.append(batch if keep else None)
        except Exception as error:
            return {
                "error": type(error).__name__, "text": str(error), "batches": len(kept),
                "seconds": time.monotonic() - start,
                "wanted": error.wanted, "free": error.free,
            }
        return {"error": None, "batches": len(kept)}

    report = []
    for strategy in ("arena", "file_descriptor", "file_system"):
        for collate in (None, custom):
            report.append([strategy, run(strategy, collate, keep=True)])
    gc.collect()  # an error and its traceback know each other, and that knows the batches
    report.append(["names", os.listdir("/dev/shm")])
    status = os.statvfs("/dev/shm")
    report.append(["used", (status.f_blocks - status.f_bfree) * status.f_frsize])
    print(json.dumps(report))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a /dev/shm of its own")
@pytest.mark.parametrize(("megabytes", "batches"), [(8, 0), (64, 5)])
def test_a_full_dev_shm_is_an_error_with_three_ways_out(megabytes, batches):
    mount = f"mount -t tmpfs -o size={megabytes}m tmpfs /dev/shm"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f'{mount} && exec "$0" -', sys.executable],
        input=textwrap.dedent(FULL),
        capture_output=True,
        text=True,
        timeout=90,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    *results, (_, left), (_, used) = json.loads(done.stdout)
    assert left == []
    assert used == 0
    for strategy, result in results:
        if strategy != "file_system":
            assert result == {"error": None, "batches": 12}
            continue
        assert result["error"] == "SharedMemoryFull"
        assert result["seconds"] < 5
        assert result["batches"] <= batches
        assert result["wanted"] == 12_000_000
        assert 0 <= result["free"] < 12_000_000
        assert f"{result['wanted']:,} bytes are wanted" in result["text"]
        assert f"/dev/shm has {result['free']:,} bytes free" in result["text"]
        for way_out in ("sharing_strategy='arena'", "--shm-size", "smaller batches"):
            assert way_out in result["text"]


# What a name is


def test_a_name_is_readable_by_its_user_only(folder):
    before = os.umask(0)
    try:
        path = folder / names.create(100)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_size == 100


def test_names_cannot_be_guessed(folder):
    tokens = {names.create(1).rsplit("-", 1)[1] for _ in range(100)}
    assert len(tokens) == 100
    assert all(re.fullmatch("[0-9a-f]{16}", token) for token in tokens)
    bits = [sum(int(token, 16) >> bit & 1 for token in tokens) for bit in range(64)]
    assert all(10 < ones < 90 for ones in bits)  # a fair coin fails one time in 10^14


def test_a_file_that_is_there_already_is_neither_taken_nor_removed(folder, monkeypatch):
    monkeypatch.setattr(secrets, "token_hex", lambda n: "0" * 2 * n)
    target = folder / "precious"
    target.write_text("precious")
    planted = folder / names._new_name(os.getpid())
    planted.symlink_to(target)
    with pytest.raises(FileExistsError):
        names.create(100)
    assert planted.is_symlink()
    assert target.read_text() == "precious"


def test_a_name_takes_all_its_memory_at_once(folder):
    path = folder / names.create(1 << 20)
    assert path.stat().st_blocks * 512 >= 1 << 20


def test_a_name_that_is_gone_is_an_error_and_is_not_made_anew(folder):
    name = names.create(100)
    names.remove(name)
    with pytest.raises(SharedMemoryGone, match=name):
        names.map_named(name, 100)
    with pytest.raises(SharedMemoryGone, match=name):
        names.link(name, os.getpid())
    assert list(folder.iterdir()) == []


# When names go


def test_the_name_of_a_batch_is_gone_when_it_was_received():
    before = ours()
    kept = list(loader(length=40))
    assert ours() == before
    assert [int(batch[0, 0]) for batch in kept] == [1 + 4 * n for n in range(10)]


def killed_with_batches_in_flight():
    iterator = iter(loader())
    first = next(iterator)
    assert (first[:, 0] == torch.arange(1, 5)).all()
    pid = iterator._pool.pid(0)
    # The batches that were asked for in advance are made and sent: a name for each of them.
    assert seconds_until(lambda: len(in_flight(pid)) >= 1, limit=10) < 10
    os.kill(pid, signal.SIGKILL)
    assert seconds_until(lambda: not alive(pid), limit=10) < 10
    return iterator, pid


def in_flight(pid):
    return [name for name in ours() if f"-{os.getpid()}-{pid}-" in name]


def test_names_of_a_killed_worker_go_when_its_death_is_noticed():
    iterator, pid = killed_with_batches_in_flight()
    with pytest.raises(WorkerDied):
        for _ in iterator:
            pass
    assert not [name for name in ours() if f"-{pid}-" in name]


def test_names_of_a_killed_worker_go_when_its_loader_closes():
    iterator, pid = killed_with_batches_in_flight()
    iterator.close()
    assert not [name for name in ours() if f"-{pid}-" in name]


def test_what_a_killed_worker_has_sent_stays_for_its_receiver_while_others_clean():
    iterator, _ = killed_with_batches_in_flight()
    list(loader(length=8))  # its worker removes orphans
    with pytest.raises(WorkerDied):
        for number, batch in enumerate(iterator, start=1):
            assert (batch[:, 0] == torch.arange(4 * number + 1, 4 * number + 5)).all()


KILLED = """
    import os, signal, time
    import torch, labkit
    from tests.datasets import Mapped

    loader = labkit.DataLoader(
        Mapped(lambda i: torch.zeros(1000), 400), num_workers=2, prefetch_factor=4,
        sharing_strategy="file_system", multiprocessing_context="fork",
    )
    iterator = iter(loader)
    next(iterator)
    time.sleep(0.5)  # batches are in flight, and blocks in the workers
    pids = [iterator._pool.pid(0), iterator._pool.pid(1), os.getpid()]
    print(*pids, flush=True)
    time.sleep(60)
"""


def test_names_of_processes_that_were_all_killed_go_with_the_next_use():
    with started(KILLED) as process:
        pids = [int(pid) for pid in process.stdout.readline().split()]
        of_them = re.compile(rf"labkit-\d+-({'|'.join(map(str, pids))})-")
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        process.wait()
        assert seconds_until(lambda: not any(alive(pid) for pid in pids), limit=10) < 10
        assert [name for name in ours() if of_them.match(name)]
        list(loader(length=4))
        assert not [name for name in ours() if of_them.match(name)]


def name_of(folder, owner, namespace=None, maker=1):
    namespace = namespace or names._pid_namespace()
    path = folder / f"labkit-{namespace}-{owner}-{maker}-{secrets.token_hex(8)}"
    path.touch()
    return path


def test_only_names_whose_owner_is_dead_are_orphans(folder, dead_pid):
    orphan = name_of(folder, dead_pid)
    stay = [
        name_of(folder, os.getpid(), maker=dead_pid),
        name_of(folder, os.getppid()),
        name_of(folder, 1),
        name_of(folder, dead_pid, namespace="1234"),  # of another container
        *(folder / name for name in FOREIGN),
        folder / f"{orphan.name}.bak",
    ]
    for path in stay:
        path.touch()
    names.remove_orphans()
    assert sorted(folder.iterdir()) == sorted(stay)


@pytest.mark.skipif(sys.platform != "linux", reason="a zombie is told by /proc")
def test_a_process_that_has_ended_and_is_not_reaped_owns_nothing(folder):
    process = subprocess.Popen(["true"])
    try:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        orphan = name_of(folder, process.pid)
        names.remove_orphans()
        assert not orphan.exists()
    finally:
        process.wait()


def test_removing_what_a_worker_made_leaves_all_others(folder):
    gone = [name_of(folder, 1, maker=77), name_of(folder, 77, maker=77)]
    stay = [
        name_of(folder, 77, maker=7),
        name_of(folder, 1, maker=777),
        name_of(folder, 1, namespace="1234", maker=77),
        *(folder / name for name in FOREIGN),
    ]
    for path in stay:
        path.touch()
    names.remove_made_by(77)
    assert sorted(folder.iterdir()) == sorted(stay)
    assert not any(path.exists() for path in gone)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_orphans_of_another_user_are_left_without_a_word(monkeypatch, dead_pid):
    with tempfile.TemporaryDirectory(dir=SHM) as folder:
        os.chmod(folder, 0o1777)  # as /dev/shm is
        monkeypatch.setattr(names, "directory", lambda: folder)
        orphan = name_of(Path(folder), dead_pid)
        pid = os.fork()
        if pid == 0:
            try:
                os.setuid(65534)
                names.remove_orphans()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert orphan.exists()
        names.remove_orphans()
        assert not orphan.exists()
