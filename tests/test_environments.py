"""pip, conda and Binder install the same things, and the pinned versions are ones that work."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
CONDA_NAMES = {"torch": "pytorch-cpu"}


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def requirements(*extras: str) -> dict[str, Requirement]:
    """Return the package's own requirements, with those of its extras."""
    texts = list(project()["dependencies"])
    for extra in extras:
        texts += project()["optional-dependencies"][extra]
    return {canonicalize_name(r.name): r for r in map(Requirement, texts)}


def pins() -> list[Requirement]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def conda_requirements() -> dict[str, Requirement]:
    listed = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    return {r.name: r for r in (Requirement(re.sub(r"(?<![=<>~])=(?!=)", "==", s)) for s in listed)}


def test_every_dependency_is_pinned_to_one_version_within_its_range():
    pinned = {canonicalize_name(pin.name) for pin in pins()}
    assert set(requirements("lab", "dev")) <= pinned
    for pin in pins():
        (specifier,) = pin.specifier
        assert specifier.operator == "=="
        wanted = requirements("lab", "dev").get(canonicalize_name(pin.name))
        assert wanted is None or wanted.specifier.contains(specifier.version), str(pin)


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13"])
def test_on_every_python_one_pin_counts_for_each_package(python):
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    valid = [
        canonicalize_name(pin.name)
        for pin in pins()
        if pin.marker is None or pin.marker.evaluate(environment)
    ]
    assert len(valid) == len(set(valid))
    needed = {
        name
        for name, wanted in requirements("lab", "dev").items()
        if wanted.marker is None or wanted.marker.evaluate(environment)
    }
    assert needed <= set(valid)


def test_the_tested_torch_is_2_13():
    assert "torch==2.13.0" in [str(pin) for pin in pins()]


def test_conda_installs_what_the_loader_and_the_lab_need_in_the_same_ranges():
    listed = conda_requirements()
    for name, wanted in requirements("lab").items():
        assert listed[CONDA_NAMES.get(name, name)].specifier == wanted.specifier, name


def test_conda_takes_one_python_and_no_path_of_this_machine():
    text = (ROOT / "environment.yml").read_text()
    assert str(conda_requirements()["python"].specifier) == "==3.12"
    assert yaml.safe_load(text)["channels"] == ["conda-forge"]
    assert not re.search(r"(^|\s)(-e|\.|\.?/)\s*$", text, re.MULTILINE)


def test_binder_has_an_equal_environment_and_no_second_configuration():
    assert (ROOT / "binder/environment.yml").read_bytes() == (ROOT / "environment.yml").read_bytes()
    assert not (ROOT / ".binder").exists()


def test_binder_installs_the_package_itself():
    script = ROOT / "binder/postBuild"
    assert os.access(script, os.X_OK)
    assert "set -euo pipefail" in script.read_text()
    assert (
        "pip install --no-deps --no-build-isolation --config-settings editable_mode=compat -e ."
        in script.read_text()
    )


def test_repo2docker_picks_conda_python_3_12_and_post_build():
    command = [sys.executable, "-m", "repo2docker", "--no-build", "--debug", "."]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "Building conda environment for python=3.12" in result.stderr
    dockerfile = result.stdout
    assert re.search(r'env update .* --file "binder/environment\.yml"', dockerfile)
    assert "RUN ./binder/postBuild" in dockerfile
    assert "requirements.txt" not in dockerfile
