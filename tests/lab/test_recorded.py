"""Recordings: what is written can be read, what is damaged says so, and the right one is found."""

import dataclasses
import json
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

from labkit.lab import recorded
from labkit.lab.on_device import EXPERIMENTS, Experiment
from labkit.lab.recorded.index import INDEX, Index
from labkit.lab.recorded.recording import DamagedRecording, Recording
from labkit.lab.recorded.sources import hashes, loader_modules, with_imports
from tests.lab import recordings
from tests.lab.recordings import MACHINE, REPEATS, recording, write
from tests.scripts import ROOT


@pytest.fixture(autouse=True)
def an_experiment(monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "which", Experiment(recordings.measured))


# One file


def test_what_is_written_is_read_and_says_where_it_comes_from(tmp_path):
    written = recording()
    written.write(tmp_path / "a.json")
    read = Recording.read(tmp_path / "a.json")
    assert read.result.repeats == REPEATS
    assert read.result.origin == "recorded"
    assert read.is_current()
    assert read.words == (
        "Recorded on NVIDIA H200, 2026-03-01, driver 570.86, CUDA 12.8, torch 2.11.0, "
        "Python 3.12.1, labkit 0.1.0, commit 0123456789ab."
    )
    assert read.result.notes[-1] == read.words
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_recording_of_other_code_is_older_and_names_what_has_changed():
    modules = {**hashes(loader_modules(False)), "labkit.preload": "0" * 16, "labkit.gone": "1"}
    older = recording(modules=modules)
    assert not older.is_current()
    assert older.changed_modules() == ["labkit.preload", "labkit.gone"]
    assert "older than the code in this copy (changed since: labkit.preload" in older.words


def test_a_recording_of_a_simulated_device_says_so():
    assert "on a simulated device (NVIDIA H200)" in recording(simulated=True).words


def without(fields, name):
    return {key: value for key, value in fields.items() if key != name}


DAMAGE = {
    "no JSON": lambda f: "{",
    "no object": lambda f: [1],
    "`schema` is 2": lambda f: {**f, "schema": 2},
    "`modules` is missing": lambda f: without(f, "modules"),
    "`simulated` is to be of type bool": lambda f: {**f, "simulated": "no"},
    "`machine.torch` is missing": lambda f: {**f, "machine": without(MACHINE, "torch")},
    "`kind` is 'song'": lambda f: {**f, "kind": "song"},
    "`found.unit` is missing": lambda f: {**f, "found": without(f["found"], "unit")},
    "is no result": lambda f: {**f, "found": {**f["found"], "repeats": {"a": [float("nan")]}}},
    "without repeats": lambda f: {**f, "found": {**f["found"], "repeats": {"a": []}}},
    "has no field": lambda f: {**f, "found": {**f["found"], "colour": 1}},
}


@pytest.mark.parametrize("said", DAMAGE)
def test_a_damaged_file_is_named_with_what_is_wrong(said, tmp_path):
    path = tmp_path / "a.json"
    fields = {"schema": 1, **json.loads(json.dumps(dataclasses.asdict(recording())))}
    damaged = DAMAGE[said](fields)
    path.write_text(damaged if isinstance(damaged, str) else json.dumps(damaged))
    with pytest.raises(DamagedRecording) as caught:
        Recording.read(path)
    words = {"no JSON": "line 1", "no object": "no JSON object", "has no field": "colour"}
    assert words.get(said, said) in str(caught.value)
    assert str(path) in str(caught.value)
    assert "python -m labkit record" in str(caught.value)


def test_nothing_is_written_that_could_not_be_read(tmp_path):
    with pytest.raises(DamagedRecording, match="is missing"):
        recording(machine={}).write(tmp_path / "a.json")
    assert list(tmp_path.iterdir()) == []


# A folder of them


def test_a_recording_is_found_by_its_settings_defaults_included(tmp_path):
    write(tmp_path / "one", recording(), recording({"slow": 3.0}))
    assert recorded.find("which", {}, tmp_path).settings == {"slow": 2.0, "kind": "plain"}
    assert recorded.find("which", {"kind": "plain"}, tmp_path) is not None
    assert recorded.find("which", {"slow": 3}, tmp_path).settings["slow"] == 3.0
    assert recorded.find("which", {"slow": 4.0}, tmp_path) is None
    assert recorded.find("which", {"kind": "other"}, tmp_path) is None
    assert recorded.find("which", {"new": 1}, tmp_path) is None
    with pytest.raises(KeyError, match="unknown experiment 'what'"):
        recorded.find("what", {}, tmp_path)


def test_of_several_it_is_one_of_this_code_and_the_latest(tmp_path):
    later = {**MACHINE, "date": "2026-04-01T10:00:00+00:00"}
    latest = {**MACHINE, "date": "2026-05-01T10:00:00+00:00"}
    write(tmp_path / "a", recording(machine=later))
    write(tmp_path / "b", recording())
    write(tmp_path / "c", recording(machine=latest, modules={"labkit.preload": "old"}))
    assert recorded.find("which", {}, tmp_path).machine == later


def test_a_simulated_one_counts_only_when_it_is_asked_for(tmp_path):
    write(tmp_path, recording(simulated=True))
    assert recorded.find("which", {}, tmp_path) is None
    assert recorded.find("which", {}, tmp_path, simulated=True).simulated


def test_what_is_damaged_in_a_simulated_one_keeps_no_real_one_away(tmp_path):
    write(tmp_path / "real", recording())
    write(tmp_path / "tried", recording(simulated=True))
    index = tmp_path / "tried" / INDEX
    index.write_text(index.read_text().replace('"simulated": false', '"simulated": true'))
    (tmp_path / "tried" / "0.json").write_text("damaged")
    assert not recorded.find("which", {}, tmp_path).simulated
    with pytest.raises(DamagedRecording):
        recorded.find("which", {}, tmp_path, simulated=True)


def test_a_module_that_has_no_module_name_is_one_that_is_gone():
    assert hashes(["../a", "", "labkit.gone.too"]) == {"../a": "", "": "", "labkit.gone.too": ""}


def test_a_file_that_the_index_names_and_nobody_has_is_told_of(tmp_path):
    write(tmp_path, recording())
    (tmp_path / "0.json").unlink()
    with pytest.raises(DamagedRecording, match="not in the folder"):
        recorded.find("which", {}, tmp_path)


def test_a_damaged_index_is_told_of(tmp_path):
    write(tmp_path, recording())
    fields = json.loads((tmp_path / INDEX).read_text())
    for entries, said in (([1], "no object"), ([{"file": 1}], "of type str")):
        (tmp_path / INDEX).write_text(json.dumps({**fields, "entries": entries}))
        with pytest.raises(DamagedRecording, match=said):
            Index.read(tmp_path / INDEX)


def test_every_recording_in_this_copy_can_be_read_and_is_of_a_real_device():
    for path in recorded.FOLDER.rglob(INDEX):
        index = Index.read(path)
        assert not index.simulated
        for entry in index.entries:
            if entry.kind != "trace":
                assert not Recording.read(path.parent / entry.file).simulated


# The code that is measured


def test_the_hash_is_of_the_experiments_modules_and_the_loaders():
    modules = with_imports("labkit.lab.on_device.steps")
    assert modules == {"labkit.lab.on_device.steps"}
    for experiment in EXPERIMENTS.values():
        assert experiment.run.__module__ in with_imports(experiment.run.__module__)
    for name in loader_modules(simulated=False):
        assert not name.startswith(("labkit.lab", "labkit.simulated"))
    assert {"labkit.preload", "labkit.sharing.arena"} <= set(loader_modules(simulated=False))
    assert "labkit.simulated.device" in loader_modules(simulated=True)
    assert all(hashes(loader_modules(simulated=True)).values())


def test_a_wheel_and_a_source_distribution_bring_the_recordings_along(tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(
        ROOT / "labkit", copy / "labkit", ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
    )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    write(copy / "labkit/lab/recorded/some-gpu", recording())
    program = (
        "import sys; from setuptools.build_meta import build_sdist, build_wheel; "
        "to = sys.argv[1]; build_wheel(to); build_sdist(to)"
    )
    out = tmp_path / "dist"
    out.mkdir()
    built = subprocess.run(
        [sys.executable, "-c", program, str(out)], cwd=copy, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    (wheel,), (source,) = out.glob("*.whl"), out.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        inside = ["/".join(name.split("/")[1:]) for name in archive.getnames()]
    for names in (zipfile.ZipFile(wheel).namelist(), inside):
        assert "labkit/lab/recorded/some-gpu/index.json" in names
        assert "labkit/lab/recorded/some-gpu/0.json" in names
        assert "labkit/lab/recorded/README.md" in names
