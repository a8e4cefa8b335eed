"""`python -m labkit record`, tried on the simulated device: what it writes, keeps, and leaves out.

No test asserts how fast anything is.
"""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from labkit.__main__ import main
from labkit.lab import recorded
from labkit.lab.bench.results import Measured
from labkit.lab.experiments import Cancelled
from labkit.lab.on_device import EXPERIMENTS, Experiment
from labkit.lab.record import jobs
from labkit.lab.record.check import Check, carried_out
from labkit.lab.record.correctness import wrong_values
from labkit.lab.record.loads import Amounts
from labkit.lab.record.self_check import after_a_refusal
from labkit.lab.record.session import Job, Session
from labkit.lab.recorded import Index, Recording
from labkit.lab.recorded.index import INDEX
from labkit.simulated import SimulatedDevice
from tests.lab import recordings
from tests.scripts import alive, environment, family_of, seconds_until, started

no_accelerator = pytest.mark.skipif(torch.accelerator.is_available(), reason="there is one")

WITHOUT_THE_LAB = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in REFUSED:
            raise ImportError(f"{name} is not installed")

REFUSED = {"matplotlib", "ipywidgets", "IPython", "psutil", "tqdm", "PIL", "pygments",
           "threadpoolctl", "pytest"}
sys.meta_path.insert(0, Refuse())
from labkit.__main__ import main
code = main(sys.argv[1:])
assert not REFUSED & {name.split(".")[0] for name in sys.modules}
sys.exit(code)
"""

SMALL = Amounts((2, 3, 8, 8), (2, 16), 12, 1e-5, 1, 1, 2, 0.1)


@pytest.fixture(scope="module")
def tried(tmp_path_factory):
    """What the whole command wrote, without the packages of the lab; and what it said."""
    folder = tmp_path_factory.mktemp("recording") / "here"
    command = ["record", "--simulated", "--seconds", "60", "--out", str(folder)]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_LAB, *command, "--commit", "abc"],
        capture_output=True,
        text=True,
        timeout=170,
        env={**environment(), "LABKIT_MEASURE_SECONDS": "0.2"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


def checks_in(folder, name) -> dict[str, dict]:
    found = Recording.read(folder / f"{name}.json").found["checks"]
    return {check["name"]: check for check in found}


# A whole recording


def test_all_that_is_run_is_in_the_index_and_fits_the_schema(tried):
    folder, said = tried
    index = Index.read(folder / INDEX)
    wanted = sum(len(experiment.settings(True)) for experiment in EXPERIMENTS.values())
    kinds = [entry.kind for entry in index.entries]
    assert kinds == ["checks", "checks", "bench", "trace"] + ["experiment"] * wanted
    assert {entry.file for entry in index.entries} | {INDEX} == {p.name for p in folder.iterdir()}
    assert (index.left_out, index.failures, index.interrupted) == ({}, {}, False)
    for entry in index.entries:
        if entry.kind == "trace":
            continue
        found = Recording.read(folder / entry.file)
        assert found.simulated
        assert found.is_current()
        assert found.machine["commit"] == "abc"
        assert {"date", "torch", "cuda", "python", "numpy", "labkit"} - found.machine.keys() <= {
            "cuda"
        }
    assert f"{len(index.entries)} files in {folder}" in said
    assert "a try, and no panel shows it" in said


def test_every_experiment_is_there_with_all_repeats_and_is_found_by_its_settings(tried):
    folder, _ = tried
    for name, experiment in EXPERIMENTS.items():
        for settings in experiment.settings(True):
            assert recorded.find(name, settings, folder) is None  # a simulated one is no recording
            found = recorded.find(name, settings, folder, simulated=True)
            assert found.result.origin == "recorded"
            assert all(found.result.repeats.values())
            assert found.result.machine["simulated"]


def test_the_self_check_and_the_values_are_as_wanted_on_the_simulated_device(tried):
    folder, _ = tried
    itself, values = checks_in(folder, "self-check"), checks_in(folder, "correctness")
    assert len(itself) == 6
    passed = {check["name"]: check["passed"] for check in (*itself.values(), *values.values())}
    assert passed.pop("copies from a slot") is None  # a simulated speed is no speed
    assert passed.pop("rate while loading") is None
    assert passed.pop("device memory") in (True, None)  # too few epochs on a busy machine
    assert set(passed.values()) == {True}
    assert sum("wrong values" in name for name in passed) == 3
    assert values["device memory"]["numbers"]["reserved_bytes"]


def test_the_bench_has_both_sides_and_the_steps_alone_with_checked_values(tried):
    folder, _ = tried
    found = Recording.read(folder / "bench.json").found
    names = ["no compute", "short step", "long step"]
    assert [w["name"] for w in found["workloads"]] == [f"simulated device, {n}" for n in names]
    assert [set(w["seconds"]) - {"step"} for w in found["workloads"]] == [{"labkit", "torch"}] * 3
    assert ["step" in w["seconds"] for w in found["workloads"]] == [False, True, True]
    assert found["failures"] == {}


def test_the_trace_has_the_copies_and_the_steps_of_an_epoch(tried):
    folder, _ = tried
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    named = [event["name"] for event in events if event["ph"] == "X"]
    assert sum(name.startswith("copy") for name in named) >= 24
    assert any(name.startswith("step") for name in named)


# What it does with its time


def a_job(name, run, share=1.0) -> Job:
    return Job(name, share, run)


def run_jobs(folder, *jobs, seconds=30.0) -> Index:
    with SimulatedDevice(launch_us=0) as device:
        return Session(device, folder, seconds, commit="abc").run(jobs)


def test_time_is_shared_out_and_what_is_left_goes_to_those_that_follow(tmp_path):
    given = {}

    def note(turn):
        given[len(given)] = turn.seconds

    run_jobs(tmp_path, a_job("a", note, 1), a_job("b", note, 2), a_job("c", note, 1), seconds=40)
    assert given[0] == pytest.approx(10, abs=3)
    assert given[1] == pytest.approx(2 / 3 * 40, abs=6)
    assert given[2] == pytest.approx(40, abs=8)


def test_what_does_not_fit_is_left_out_and_named(tmp_path):
    done = []
    slow = a_job("slow", lambda turn: time.sleep(0.7), share=9)
    index = run_jobs(tmp_path, slow, a_job("late", done.append), seconds=1.1)
    assert index.left_out == {"late": "no time was left"}
    assert not done
    assert Index.read(tmp_path / INDEX).left_out == index.left_out


def test_a_job_that_fails_is_named_and_the_others_go_on(tmp_path):
    def fail(turn):
        raise LookupError("nothing here")

    def write(turn):
        turn.write("b.json", "checks", "b", {"checks": []})

    def look(turn):
        assert Index.read(tmp_path / INDEX).failures == {"a": "LookupError: nothing here"}

    index = run_jobs(tmp_path, a_job("a", fail), a_job("look", look), a_job("b", write))
    assert index.failures == {"a": "LookupError: nothing here"}
    assert [entry.file for entry in index.entries] == ["b.json"]


def test_a_check_that_fails_or_raises_is_told_and_recorded_and_the_rest_goes_on():
    def broken():
        raise RuntimeError("CUDA error: no\nmore")

    good = Check("good", "1", "1", True)
    found = list(carried_out({"broken": broken, "good": lambda: good}))
    assert found[0].passed is False
    assert "RuntimeError: CUDA error: no" in found[0].found
    assert found[1] == good
    assert "NOT as wanted" in str(found[0])


def test_what_checks_have_found_is_on_the_disk_before_the_next_one(tmp_path):
    def look():
        (found,) = checks_in(tmp_path, "a").values()
        return Check("there already", found["name"], "good", found["name"] == "good")

    checks = {"good": lambda: Check("good", "1", "1", True), "there already": look}
    index = run_jobs(tmp_path, a_job("a", lambda turn: jobs._carry_out(turn, "a", checks)))
    assert index.failures == {}
    assert list(checks_in(tmp_path, "a")) == list(checks)
    assert [entry.file for entry in index.entries] == ["a.json"]


def test_what_the_bench_has_measured_is_on_the_disk_before_it_goes_on(tmp_path, monkeypatch):
    seen = []

    class Bench:
        def __init__(self, device, options, run, limit_s):
            self.run = run

        def measure(self, bar):
            for seconds in (1.0, 2.0):
                self.run.workloads = [Measured("w", "", 1, seconds={"labkit": [seconds]})]
                bar.update()
                (workload,) = Recording.read(tmp_path / "bench.json").found["workloads"]
                seen.append(workload["seconds"]["labkit"])

    monkeypatch.setattr(jobs, "DeviceGroupRun", Bench)
    index = run_jobs(tmp_path, a_job("bench", jobs._bench))
    assert index.failures == {}
    assert seen == [[1.0], [2.0]]
    assert [entry.file for entry in index.entries] == ["bench.json"]


def test_an_experiment_that_takes_far_too_long_keeps_what_it_has(tmp_path, monkeypatch):
    monkeypatch.setattr("labkit.lab.record.session._GRACE_SECONDS", 0.0)
    monkeypatch.setattr("labkit.lab.record.session._LEAST_SECONDS", 0.0)

    def endless(device=None, kind="", *, seconds, so_far, cancel):
        if kind == "told":
            so_far(recordings.measured())
        assert cancel.wait(30)
        raise Cancelled("cancelled")

    experiment = Experiment(endless, ({"kind": "told"}, {"kind": "silent"}))
    monkeypatch.setattr(jobs, "EXPERIMENTS", {"endless": experiment})
    with SimulatedDevice(launch_us=0) as device:
        endless_jobs = jobs.jobs_for(device, ["endless"])
        index = Session(device, tmp_path, 2.4, commit="abc").run(endless_jobs)
    late = "it took more than its time"
    assert index.left_out == {"endless (kind=told)": late, "endless (kind=silent)": late}
    (entry,) = index.entries
    assert "before it had all repeats" in Recording.read(tmp_path / entry.file).result.notes[0]


def test_wrong_values_are_counted():
    class Late(SimulatedDevice):
        """A device whose copies bring something else."""

        def to_device(self, tensor, non_blocking=True):
            return super().to_device(tensor + (tensor == 3), non_blocking)

    def consumer(device, batches, seconds):
        for number, batch in enumerate(batches):
            yield device.run(lambda values, n=number: (values != n).sum(), batch, seconds=0)

    with Late(launch_us=0) as device:
        check = wrong_values("a test", consumer, device, SMALL, seconds=60)
    assert check.passed is False
    assert check.numbers == {"checked": 12, "wrong": 1, "wanted_batches": 12}


def test_a_refusal_that_a_later_step_hears_of_is_found():
    class Resentful(SimulatedDevice):
        refused = False

        def lock_pages(self, address, nbytes):
            locked = super().lock_pages(address, nbytes)
            self.refused |= not locked
            return locked

        def run(self, *args, **options):
            if self.refused:
                raise RuntimeError("CUDA error: part or all of it is locked already")
            return super().run(*args, **options)

    with Resentful(launch_us=0) as device:
        check = after_a_refusal(device)
    assert check.passed is False
    assert "locked already" in check.found


# Its end, and bad arguments


def test_ctrl_c_keeps_what_is_done_and_leaves_no_process(tmp_path):
    folder = tmp_path / "here"
    script = f"""
    from labkit.__main__ import main
    raise SystemExit(main(["record", "--simulated", "--out", {str(folder)!r}]))
    """
    with started(script) as program:
        seconds_until(lambda: (folder / "self-check.json").exists(), limit=100)
        seconds_until(lambda: len(family_of(program.pid)) > 0, limit=60)
        family = family_of(program.pid)
        assert family
        os.killpg(program.pid, signal.SIGINT)
        said, _ = program.communicate(timeout=60)
        assert program.returncode == 130
        assert seconds_until(lambda: not any(alive(p.pid) for p in family), limit=20) < 20
    assert "Interrupted: what was done until then is kept." in said
    index = Index.read(folder / INDEX)
    assert index.interrupted
    assert index.left_out["trace"] == "Ctrl-C came before its end"
    assert Recording.read(folder / index.entries[0].file).name == "self-check"
    assert not list(folder.glob("*.part"))


@no_accelerator
def test_without_a_device_it_says_the_ways_out(tmp_path, capsys):
    assert main(["record", "--out", str(tmp_path / "new")]) == 2
    said = capsys.readouterr().err
    assert "finds no accelerator on this machine" in said
    assert "--simulated" in said
    assert not (tmp_path / "new").exists()


def test_a_folder_with_files_is_refused(tmp_path, capsys):
    (tmp_path / "index.json").write_text("{}")
    assert main(["record", "--simulated", "--out", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert main(["record", "--simulated", "--out", str(tmp_path / "index.json" / "x")]) == 2
    assert "cannot be written to" in capsys.readouterr().err


def test_a_full_disk_is_told_and_leaves_no_half_file(tmp_path, capsys, monkeypatch):
    write_text = Path.write_text
    room = iter([True, True])

    def write(path, text, **named):
        write_text(path, text[: None if (enough := next(room, False)) else 100], **named)
        if not enough:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", write)
    command = ["record", "--simulated", "--out", str(tmp_path), "--only", "copies"]
    assert main(command) == 2
    assert "can no longer be written to: [Errno 28] No space left" in capsys.readouterr().err
    assert Index.read(tmp_path / INDEX)
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("bad", [["--seconds", "soon"], ["--seconds", "0"], ["--seconds", "inf"]])
def test_a_time_that_is_none_is_refused(bad, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["record", "--simulated", "--out", str(tmp_path), *bad])
    assert "is no number of seconds" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "wrong"), [("trace,polka", "polka"), ("trace,", "")])
def test_a_word_that_no_job_begins_with_is_refused_and_all_are_named(
    words, wrong, tmp_path, capsys
):
    command = ["record", "--simulated", "--out", str(tmp_path), "--only", words]
    assert main(command) == 2
    assert f"begins with {wrong!r}: there are self-check, correctness" in capsys.readouterr().err
