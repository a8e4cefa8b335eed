"""Programs of the lab end with all that they started."""

import os
import subprocess
import sys

import psutil
import pytest

from labkit.lab import child

LEAVES_AN_ORPHAN = """
import subprocess
orphan = subprocess.Popen(
    ["sh", "-c", "trap '' INT; echo ready; sleep 60; true"], stdout=subprocess.PIPE
)
orphan.stdout.readline()
print(orphan.pid, flush=True)
"""


def test_what_a_program_prints():
    assert child.output_of([sys.executable, "-c", "print(6 * 7)"]) == "42\n"


def test_a_program_that_fails_is_told_with_what_it_wrote():
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        child.output_of([sys.executable, "-c", "1 / 0"])


def test_an_orphan_that_ignores_interrupts_ends_with_its_program(monkeypatch):
    monkeypatch.setattr(child, "_TIDY_SECONDS", 0.2)
    program = child.start(
        [sys.executable, "-c", LEAVES_AN_ORPHAN], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    orphan = psutil.Process(int(program.stdout.readline()))
    os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
    child.end(program)
    assert program.returncode == 0
    orphan.wait(5)
