"""The machine on which the tests run the notebooks is as small as it says."""

import json
import os
import subprocess
import sys

import pytest

from scripts import small_machine
from scripts.small_machine import Limits
from tests.scripts import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")

LOOK = """
import json, os, resource, shutil, socket
def reaches(address):
    try:
        socket.create_connection(address, timeout=5).close()
        return True
    except OSError as error:
        return error.strerror
here = socket.create_server(("127.0.0.1", 0))
print(json.dumps({
    "cores": len(os.sched_getaffinity(0)),
    "shm": shutil.disk_usage("/dev/shm").total,
    "data": resource.getrlimit(resource.RLIMIT_DATA)[0],
    "itself": reaches(here.getsockname()),
    "others": reaches(("192.0.2.1", 9)),  # TEST-NET-1, RFC 5737
    "memory": open("/proc/self/cgroup").read(),
}))
"""


def seen(command: list[str]) -> dict:
    looked = [*command, sys.executable, "-c", LOOK]
    return json.loads(subprocess.run(looked, cwd=ROOT, check=True, capture_output=True).stdout)


def test_a_command_has_one_core_little_memory_and_a_loopback():
    limits, found = Limits.here(), seen([sys.executable, "-m", "scripts.small_machine"])
    assert (found["cores"], found["itself"]) == (1, True)
    if limits.unshare:
        assert found["shm"] == small_machine.SHM
        assert found["others"] == "Network is unreachable"
    if limits.group:
        assert "labkit-" in found["memory"]
        assert not list(limits.group.glob("labkit-*-command"))


def test_where_nothing_is_permitted_each_process_is_limited():
    found = seen(Limits((), None).command(None, min(os.sched_getaffinity(0))))
    assert (found["cores"], found["data"]) == (1, small_machine.MEMORY)
    assert str(Limits((), None)) == "1 core, 2 GB of memory a process"


def test_the_exit_code_is_the_commands():
    ran = subprocess.run([sys.executable, "-m", "scripts.small_machine", "false"], cwd=ROOT)
    assert ran.returncode == 1


def test_a_group_tells_what_its_processes_hold():
    limits = Limits.here()
    if limits.group is None:
        pytest.skip("no control group can be made here")
    group = small_machine.Group(limits.group, "of-a-test")
    try:
        held = "held = bytearray(b'x') * (100 << 20); print(flush=True); input()"
        command = [*limits.command(group, min(os.sched_getaffinity(0))), sys.executable, "-c", held]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            used = group.used()
            process.communicate(b"\n")
        assert 100 << 20 < used < 200 << 20
    finally:
        group.remove()
    assert not group.folder.exists()
