"""The doctor reads what the system grants, wherever it is written, and says what to make of it."""

import json
import multiprocessing
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import labkit
from labkit.__main__ import main
from labkit.lab.doctor import Finding, Findings, accelerator, examine, link, loading, sizes, system
from labkit.lab.doctor import limits as limits_module
from labkit.lab.doctor.limits import Limits, read_limits
from labkit.lab.doctor.link import Device
from labkit.lab.doctor.sizing import sizes_for
from labkit.lab.machine import cores
from labkit.lab.results import DEFAULT_REPEATS
from tests.scripts import ROOT, environment

linux = pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")

MIB, GIB = 2**20, 2**30
NAMES = [
    "cores", "memory", "/dev/shm", "open files", "start methods", "sharing strategies", "torch",
    "device", "link", "load",
]  # fmt: skip


def machine_of(root: Path, files: dict[str, object]) -> Path:
    """A tree in which these files stand."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


V2 = {
    "proc/self/cgroup": "0::/user/job",
    "proc/self/mountinfo": "30 23 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw",
    "proc/meminfo": "MemTotal: 8388608 kB\nMemAvailable: 6291456 kB",
}
V1 = {
    "proc/self/cgroup": "5:cpu,cpuacct:/user/job\n4:memory:/user/job\n1:name=systemd:/other",
    "proc/self/mountinfo": "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
    "proc/meminfo": V2["proc/meminfo"],
}
CPU_V1, MEMORY_V1 = "sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup/memory"


# Control groups


@pytest.mark.parametrize(
    ("text", "quota"),
    [
        ("150000 100000", 1.5),
        ("max 100000", None),
        ("50000 50000", 1.0),
        ("20000 100000", 0.2),
        ("", None),
        ("nonsense", None),
        ("100000 0", None),
    ],
)
def test_the_quota_of_version_2(tmp_path, text, quota):
    machine_of(tmp_path, {**V2, "sys/fs/cgroup/user/job/cpu.max": text})
    assert read_limits(tmp_path).cpu_quota == quota


@pytest.mark.parametrize(
    ("quota_us", "period_us", "quota"),
    [("150000", "100000", 1.5), ("-1", "100000", None), ("400000", "100000", 4), ("", "", None)],
)
def test_the_quota_of_version_1(tmp_path, quota_us, period_us, quota):
    files = {"cpu.cfs_quota_us": quota_us, "cpu.cfs_period_us": period_us}
    machine_of(tmp_path, {**V1, **{f"{CPU_V1}/user/job/{k}": v for k, v in files.items()}})
    assert read_limits(tmp_path).cpu_quota == quota


quotas = st.none() | st.integers(1, 64_000).map(lambda thousandths: thousandths / 1000)


@given(groups=st.lists(quotas, min_size=3, max_size=3), version=st.sampled_from([1, 2]))
def test_of_nested_groups_the_smallest_quota_counts(tmp_path_factory, groups, version):
    root = machine_of(tmp_path_factory.mktemp("root"), V1 if version == 1 else V2)
    top = "sys/fs/cgroup" if version == 2 else CPU_V1
    for folder, quota in zip((top, f"{top}/user", f"{top}/user/job"), groups, strict=True):
        share = None if quota is None else round(quota * 100_000)
        if version == 2:
            files = {"cpu.max": f"{'max' if share is None else share} 100000"}
        else:
            files = {"cpu.cfs_quota_us": -1 if share is None else share}
            files["cpu.cfs_period_us"] = 100_000
        machine_of(root, {f"{folder}/{name}": text for name, text in files.items()})
    there = [quota for quota in groups if quota is not None]
    assert read_limits(root).cpu_quota == (min(there) if there else None)


def test_a_group_beside_this_process_s_own_does_not_count(tmp_path):
    others = {"sys/fs/cgroup/user/other/cpu.max": "10000 100000"}
    machine_of(tmp_path, {**V2, **others, "sys/fs/cgroup/user/job/cpu.max": "200000 100000"})
    assert read_limits(tmp_path).cpu_quota == 2


def test_the_memory_limit_of_version_2_and_what_is_left_of_it(tmp_path):
    job = "sys/fs/cgroup/user/job"
    files = {
        f"{job}/memory.max": 2 * GIB,
        f"{job}/memory.current": 1536 * MIB,
        f"{job}/memory.stat": f"anon 5\ninactive_file {512 * MIB}\nactive_file 7",
        "sys/fs/cgroup/user/memory.max": "max",
    }
    found = read_limits(machine_of(tmp_path, {**V2, **files}))
    assert (found.memory_total, found.memory_limit) == (8 * GIB, 2 * GIB)
    assert found.memory_available == GIB  # the kernel gives up its file cache


def test_the_memory_limit_of_version_1_and_what_is_left_of_it(tmp_path):
    files = {
        f"{MEMORY_V1}/user/job/memory.limit_in_bytes": 3 * GIB,
        f"{MEMORY_V1}/user/job/memory.usage_in_bytes": GIB,
        f"{MEMORY_V1}/user/job/memory.stat": f"inactive_file 1\ntotal_inactive_file {256 * MIB}",
        f"{MEMORY_V1}/user/memory.limit_in_bytes": 1 * GIB,
        f"{MEMORY_V1}/user/memory.usage_in_bytes": 768 * MIB,
    }
    found = read_limits(machine_of(tmp_path, {**V1, **files}))
    assert (found.memory_limit, found.memory_available) == (GIB, 256 * MIB)


@pytest.mark.parametrize("text", [9223372036854771712, 100 * GIB, "max", ""])
def test_a_memory_limit_above_what_there_is_limits_nothing(tmp_path, text):
    for tree, name in ((V1, f"{MEMORY_V1}/user/job/memory.limit_in_bytes"),
                       (V2, "sys/fs/cgroup/user/job/memory.max")):  # fmt: skip
        found = read_limits(machine_of(tmp_path / name.replace("/", "-"), {**tree, name: text}))
        assert found.memory_limit is None
        assert found.memory_available == 6 * GIB


def test_a_container_that_sees_only_its_own_group_as_the_root(tmp_path):
    """Version 1 without a cgroup namespace: the path is the host's, the mount begins there."""
    files = {
        "proc/self/cgroup": "4:memory:/docker/abc\n5:cpu:/docker/abc",
        "proc/self/mountinfo": "33 31 0:30 /docker/abc /sys/fs/cgroup/memory ro - cgroup c memory\n"
        "34 31 0:31 /docker/abc /sys/fs/cgroup/cpu ro - cgroup c rw,cpu",
        "proc/meminfo": V2["proc/meminfo"],
        f"{MEMORY_V1}/memory.limit_in_bytes": GIB,
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": 150_000,
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": 100_000,
    }
    found = read_limits(machine_of(tmp_path, files))
    assert (found.memory_limit, found.cpu_quota) == (GIB, 1.5)


@pytest.mark.parametrize("path", ["/", "/../outside", "/not/mounted/here"])
def test_where_the_group_is_not_to_be_seen_the_topmost_that_is_counts(tmp_path, path):
    files = {"proc/self/cgroup": f"0::{path}", "sys/fs/cgroup/cpu.max": "150000 100000"}
    assert read_limits(machine_of(tmp_path, {**V2, **files})).cpu_quota == 1.5


def test_the_two_versions_side_by_side_are_read_where_each_controller_lives(tmp_path):
    unified = "\n41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"
    files = {
        "proc/self/cgroup": f"{V1['proc/self/cgroup']}\n0::/user/job",
        "proc/self/mountinfo": V1["proc/self/mountinfo"] + unified,
        "sys/fs/cgroup/unified/user/job/cpu.max": "100000 100000",  # stands, but holds nothing
        f"{CPU_V1}/user/job/cpu.cfs_quota_us": 300_000,
        f"{CPU_V1}/user/job/cpu.cfs_period_us": 100_000,
    }
    assert read_limits(machine_of(tmp_path, {**V1, **files})).cpu_quota == 3


def test_a_mount_point_with_a_space_in_its_name(tmp_path):
    files = {
        "proc/self/mountinfo": "30 23 0:27 / /my\\040groups rw - cgroup2 cgroup2 rw",
        "my groups/user/job/cpu.max": "250000 100000",
    }
    assert read_limits(machine_of(tmp_path, {**V2, **files})).cpu_quota == 2.5


@given(
    st.dictionaries(
        st.sampled_from(
            [*V1, "sys/fs/cgroup/cpu.max", "sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.stat"]
        ),
        st.sampled_from([*V1.values(), *V2.values()]) | st.text(max_size=30),
    )
)
def test_whatever_stands_in_the_files_the_limits_can_be_read(tmp_path_factory, files):
    root = tmp_path_factory.mktemp("root")
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8", errors="surrogateescape")
    assert sizes_for(read_limits(root)).workers >= 1


def test_without_proc_as_on_other_systems_memory_is_known_and_the_rest_is_none(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(limits_module, "resource", None)
    monkeypatch.delattr(os, "statvfs")
    monkeypatch.delattr(os, "getloadavg")
    found = examine(tmp_path)
    limits = found.limits
    assert limits.memory_total == psutil.virtual_memory().total
    assert limits.memory_available is not None
    assert limits.affinity == cores()
    nothing = ("cpu_quota", "memory_limit", "shm_size", "shm_free", "open_files", "open_files_hard")
    assert [getattr(limits, name) for name in nothing] == [None] * len(nothing)
    assert [finding.name for finding in found] == NAMES
    assert found["/dev/shm"].value == "there is none"
    assert found["open files"].value == "soft limit none, hard limit none"
    assert not found["open files"].concern
    assert found["load"].raw["load_average"] is None


# This machine


@pytest.fixture(scope="module")
def here() -> Findings:
    return examine()


def test_all_is_said_of_this_machine(here):
    assert [finding.name for finding in here] == NAMES
    assert all(finding.value and finding.meaning.endswith(".") for finding in here)
    assert all(finding.advice for finding in here.concerns)
    assert here["cores"].raw["affinity"] == cores()
    assert here["start methods"].raw["all"] == multiprocessing.get_all_start_methods()
    assert here["start methods"].raw["default"] in multiprocessing.get_all_start_methods()
    assert set(here["sharing strategies"].raw["all"]) == labkit.get_all_sharing_strategies()
    assert here["torch"].raw == {
        "version": torch.__version__,
        "threads": torch.get_num_threads(),
    }


@linux
def test_what_this_machine_has_is_what_the_system_says(here):
    assert here.limits.memory_total == psutil.virtual_memory().total
    status = os.statvfs("/dev/shm")
    assert here.limits.shm_size == status.f_blocks * status.f_frsize
    assert here["/dev/shm"].raw["used"] == here.limits.shm_size - here.limits.shm_free


def test_looking_does_not_choose_a_start_method(monkeypatch):
    """Asked without `allow_none`, multiprocessing would settle on one for good."""
    asked = []
    monkeypatch.setattr(
        multiprocessing, "get_start_method", lambda allow_none=False: asked.append(allow_none)
    )
    default = loading.start_methods().raw["default"]
    assert asked == [True]
    assert default == multiprocessing.get_all_start_methods()[0]


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="mounts a file system of its own"
)
def test_a_small_dev_shm_and_few_files_are_seen_as_json():
    script = (
        "mount -t tmpfs -o size=64m tmpfs /dev/shm && head -c 8388608 /dev/zero > /dev/shm/used && "
        'ulimit -Sn 300 && ulimit -Hn 500 && exec "$0" -m labkit doctor --json'
    )
    command = ["unshare", "-m", "sh", "-c", script, sys.executable]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment(), cwd=ROOT, timeout=60
    )
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(f"may not mount: {done.stderr}")
    found = json.loads(done.stdout)
    limits = found["limits"]
    assert (limits["shm_size"], limits["shm_free"]) == (64 * MIB, 56 * MIB)
    assert (limits["open_files"], limits["open_files_hard"]) == (300, 500)
    by_name = {finding["name"]: finding for finding in found["findings"]}
    assert by_name["/dev/shm"]["concern"]
    assert "--shm-size" in by_name["/dev/shm"]["advice"]
    assert by_name["open files"]["advice"].startswith("ulimit -n 500 ")
    sized = found["sizes"]
    assert sized["batch_bytes"] * (2 * sized["workers"] + 2) <= 14 * MIB


def test_the_command_prints_a_line_for_everything(capsys):
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert all(f"  {name} " in printed or f"! {name} " in printed for name in NAMES)
    assert f"{DEFAULT_REPEATS} repeats" in printed
    assert max(map(len, printed.splitlines()[:-1])) <= 96


def test_the_command_refuses_what_it_does_not_know(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["doctor", "--jsonn=x"])
    assert "--json" in capsys.readouterr().err


# What it means


@pytest.mark.parametrize(
    ("limits", "value", "advice", "concern"),
    [
        (Limits(8), "8 by affinity, no quota", None, False),
        (Limits(8, cpu_quota=1.5), "1.5 to use", "num_workers=1,", True),
        (Limits(8, cpu_quota=4), "4 to use", "num_workers=4,", False),
        (Limits(8, cpu_quota=0.5), "0.5 to use", "num_workers=1,", True),
        (Limits(2, cpu_quota=16), "2 to use", None, False),
        (Limits(1), "1 by affinity", "second core", True),
    ],
)
def test_cores(limits, value, advice, concern):
    finding = system.cores(limits)
    assert value in finding.value
    assert finding.concern is concern
    assert advice is None if finding.advice is None else advice in finding.advice


def test_memory_that_is_short_is_a_concern():
    enough = Limits(2, memory_total=8 * GIB, memory_limit=2 * GIB, memory_available=3 * GIB // 2)
    short = Limits(2, memory_total=8 * GIB, memory_available=GIB // 2)
    assert system.memory(enough).value == (
        "8.0 GiB in the machine, limit 2.0 GiB, 1.5 GiB available"
    )
    assert not system.memory(enough).concern
    assert system.memory(short).concern
    assert "no limit" in system.memory(Limits(2)).value


@pytest.mark.parametrize(
    ("soft", "hard", "advice"),
    [
        (1024, 1_048_576, "ulimit -n 65536 "),
        (1024, None, "ulimit -n 65536 "),
        (1024, 1024, "hard limit raised"),
        (65536, 65536, None),
        (None, None, None),
    ],
)
def test_open_files(soft, hard, advice):
    finding = system.open_files(Limits(2, open_files=soft, open_files_hard=hard))
    assert finding.concern is (advice is not None)
    assert finding.advice is None if advice is None else advice in finding.advice


@pytest.mark.parametrize(("threads", "concern"), [(1, False), (2, True)])
def test_more_threads_than_the_quota_grants_are_a_concern(monkeypatch, threads, concern):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    finding = loading.torch_threads(Limits(8, cpu_quota=1.5))
    assert finding.concern is concern
    assert finding.advice is None or "torch.set_num_threads(1)" in finding.advice


@pytest.mark.parametrize(("percent", "concern"), [(3.0, False), (80.0, True)])
def test_a_busy_machine_is_a_concern(monkeypatch, percent, concern):
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: percent)
    finding = system.load()
    assert finding.concern is concern
    assert finding.value.startswith(f"{percent:.0f}% busy")


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_every_start_method_is_explained(monkeypatch, method):
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none: method)
    finding = loading.start_methods()
    assert finding.value.startswith(f"{method} by default")


@pytest.mark.parametrize("strategy", sorted(labkit.get_all_sharing_strategies()))
def test_every_sharing_strategy_is_explained(strategy):
    before = labkit.get_sharing_strategy()
    labkit.set_sharing_strategy(strategy)
    try:
        assert loading.sharing_strategies().value.startswith(f"{strategy} by default")
    finally:
        labkit.set_sharing_strategy(before)


# An accelerator


@pytest.fixture
def fresh_device():
    link.find_device.cache_clear()
    yield
    link.find_device.cache_clear()


GPU = Device("cuda", "A GPU", 2, pageable=6.25, pinned=50.0)


def test_without_an_accelerator_all_is_fine(monkeypatch):
    monkeypatch.setattr(accelerator, "find_device", lambda: None)
    device, problem = accelerator.device_or_problem()
    finding = accelerator.device(device, problem)
    assert (finding.value, finding.advice, finding.concern) == ("none", None, False)
    assert "that is fine" in finding.meaning
    assert accelerator.link(device).value == "none"


def test_an_accelerator_and_its_link_are_told(monkeypatch):
    monkeypatch.setattr(accelerator, "find_device", lambda: GPU)
    device, problem = accelerator.device_or_problem()
    assert accelerator.device(device, problem).value == "2 × A GPU (cuda)"
    assert "pin_memory=True" in accelerator.device(device, problem).advice
    found = accelerator.link(device)
    assert found.value == "6.2 GB/s from ordinary memory, 50.0 GB/s from page-locked memory"
    assert (found.raw, found.unit) == ({"pageable": 6.25, "pinned": 50.0}, "GB/s")
    assert "100 MB takes 2.0 ms" in found.meaning


def test_an_accelerator_that_does_not_work_is_a_concern_and_says_why(monkeypatch, fresh_device):
    def fails(command, limit_s):
        raise RuntimeError("the program failed:\nTraceback\nRuntimeError: driver too old\n")

    monkeypatch.setattr(link, "output_of", fails)
    gpu = torch.device("cuda")
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: gpu)
    finding = accelerator.device(*accelerator.device_or_problem())
    assert finding.concern
    assert "driver too old" in finding.advice


def test_an_accelerator_that_never_answers_is_given_up(monkeypatch, fresh_device):
    def hangs(command, limit_s):
        raise subprocess.TimeoutExpired(command, limit_s)

    monkeypatch.setattr(link, "output_of", hangs)
    gpu = torch.device("cuda")
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: gpu)
    with pytest.raises(RuntimeError, match="no answer in 60 s"):
        link.find_device()


def test_a_program_of_its_own_looks_for_the_accelerator(monkeypatch, fresh_device):
    if torch.accelerator.is_available():
        device = link.find_device()
        assert device is not None
        assert device.pageable > 0
    else:  # it looks, though this build is said to know an accelerator, and finds none
        gpu = torch.device("cuda")
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: gpu)
        assert link.find_device() is None


def test_the_speed_of_copying_is_measured_in_gigabytes_a_second():
    source = torch.ones(2**22, dtype=torch.uint8)
    assert 0 < link.gigabytes_a_second(source, torch.device("cpu")) < 10_000


# Sizes

any_limits = st.builds(
    Limits,
    affinity=st.integers(1, 256),
    cpu_quota=st.none() | st.floats(0.1, 256),
    memory_available=st.none() | st.integers(0, 2**42),
    shm_free=st.none() | st.integers(0, 2**40),
)


@given(any_limits)
def test_sizes_fit_into_the_machine(limits):
    found = sizes_for(limits)
    memory = GIB if limits.memory_available is None else limits.memory_available
    shm = 64 * MIB if limits.shm_free is None else limits.shm_free
    assert 1 <= found.workers <= 8
    assert found.workers == 1 or found.workers * 400 * MIB <= memory
    assert found.workers <= max(2, limits.usable_cores)
    assert found.batch_bytes & (found.batch_bytes - 1) == 0
    least = found.batch_bytes == 64 * 1024
    assert least or found.shared_bytes <= min(shm / 4, memory / 16)
    assert 64 * 1024 <= found.batch_bytes <= 16 * MIB
    assert 32 <= found.batches <= 128
    assert found.repeats == DEFAULT_REPEATS


@given(any_limits, any_limits)
def test_a_larger_machine_gets_no_smaller_experiments(one, other):
    def larger(name):
        values = [getattr(one, name), getattr(other, name)]
        return None if None in values else max(values)

    if None in (one.memory_available, other.memory_available, one.shm_free, other.shm_free):
        return
    large = Limits(
        affinity=max(one.affinity, other.affinity),
        cpu_quota=larger("cpu_quota"),
        memory_available=larger("memory_available"),
        shm_free=larger("shm_free"),
    )
    small, big = sizes_for(one), sizes_for(large)
    assert big.workers >= small.workers
    assert big.batches >= small.batches
    assert big.shared_bytes * 2 >= small.shared_bytes  # a batch is a power of two, so up to half


@pytest.mark.parametrize(
    ("limits", "batch_bytes", "batches", "workers"),
    [
        (Limits(1, memory_available=3 * GIB // 2, shm_free=64 * MIB), 2 * MIB, 32, 2),
        (Limits(2, memory_available=20 * GIB, shm_free=20 * GIB), 4 * MIB, 64, 2),
        (Limits(8, 1.5, memory_available=GIB // 2, shm_free=64 * MIB), 2 * MIB, 32, 1),
        (Limits(16, memory_available=100 * GIB, shm_free=60 * GIB), 16 * MIB, 128, 8),
        (Limits(2, memory_available=20 * GIB, shm_free=0), 64 * 1024, 64, 2),
        (Limits(2), 2 * MIB, 64, 2),
    ],
)
def test_sizes_of_some_machines(limits, batch_bytes, batches, workers):
    found = sizes_for(limits)
    assert (found.batch_bytes, found.batches, found.workers) == (batch_bytes, batches, workers)


def test_sizes_follow_from_the_findings_or_from_a_look_of_their_own():
    limits = Limits(16, memory_available=100 * GIB, shm_free=60 * GIB)
    assert sizes(Findings((), limits)) == sizes_for(limits)
    assert sizes().repeats == DEFAULT_REPEATS
    assert str(sizes_for(limits)) == (
        "Experiments here use 128 batches of 16 MiB, 8 workers and 9 repeats; at most 288 MiB of "
        "batches exist at once."
    )


# How it is shown


class Table(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def test_the_table_has_a_caption_and_says_what_each_header_heads(here):
    table = Table(here._repr_html_())
    names = [tag for tag, _ in table.tags]
    assert names.count("caption") == names.count("table") == 1
    scopes = [attributes["scope"] for tag, attributes in table.tags if tag == "th"]
    assert scopes == ["col"] * 4 + ["row"] * len(NAMES)
    assert names.count("td") == 3 * len(NAMES)
    styles = " ".join(attributes.get("style") or "" for _, attributes in table.tags)
    assert "background" not in styles  # the page's own, light or dark


def test_words_are_escaped_and_concerns_marked_in_words():
    fine = Finding("a<b", "1 & 2", 3, None, "Means <i>much</i>.")
    bad = Finding("disk", "slow", 3, None, "It waits.", "Take another.", concern=True)
    found = Findings((fine, bad), Limits(1))
    html = found._repr_html_()
    assert "a&lt;b" in html
    assert "<i>" not in html
    assert "! disk" in Table(html).text
    assert "marked with ! (disk)" in Table(html).text
    assert "! disk" in str(found)
    assert "→ Take another." in str(found)
    assert str(Findings((fine,), Limits(1))).endswith("Nothing here will get in the way.")


def test_as_plain_data_it_fits_into_json(here):
    found = json.loads(json.dumps(here.to_dict()))
    assert [finding["name"] for finding in found["findings"]] == NAMES
    assert found["limits"]["affinity"] == cores()


def test_a_finding_that_is_not_there_is_refused_with_those_that_are(here):
    with pytest.raises(KeyError, match="no finding 'gpu': there are 'cores', 'memory'"):
        here["gpu"]
