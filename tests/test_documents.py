"""README and CONTRIBUTING name what exists, and the licence is there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):.*## ", text_of("Makefile"), re.MULTILINE))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_relative_link_leads_somewhere(name):
    links = re.findall(r"\]\(([^)#\s]+)", text_of(name))
    own = [link for link in links if not re.match(r"\w+:", link)]
    assert [link for link in own if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_make_command_is_a_target(name):
    blocks = re.findall(r"^```bash\n(.*?)^```", text_of(name), re.DOTALL | re.MULTILINE)
    quoted = re.findall(r"`(make [^`]+)`", text_of(name))
    commands = re.findall(r"^make ([a-z]+)", "\n".join([*blocks, *quoted]), re.MULTILINE)
    assert set(commands) <= make_targets()


def test_the_readme_begins_with_make_lab_and_make_test():
    first_block = re.search(r"```bash\n(.*?)```", text_of("README.md"), re.DOTALL)
    assert first_block
    assert re.findall(r"^make \w+", first_block[1], re.MULTILINE) == ["make lab", "make test"]


def test_every_notebook_that_the_readme_names_exists():
    named = set(re.findall(r"notebooks/\w+\.ipynb", text_of("README.md")))
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_readmes_python_runs(tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```", text_of("README.md"), re.DOTALL | re.MULTILINE)
    assert blocks
    scripts = [tmp_path / f"block_{number}.py" for number in range(len(blocks))]
    for script, block in zip(scripts, blocks, strict=True):
        script.write_text(block)
    # Each as a program of its own, but in one process: importing torch takes longer than they do.
    one_by_one = "import runpy, sys; [runpy.run_path(s, run_name='__main__') for s in sys.argv[1:]]"
    command = [sys.executable, "-c", one_by_one, *scripts]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""


def test_code_and_texts_have_their_licences():
    licence = text_of("LICENSE")
    assert "BSD 3-Clause License" in licence
    assert "CC BY 4.0" in licence
    assert "license: BSD-3-Clause" in text_of("CITATION.cff")


def test_the_version_is_the_same_everywhere():
    version = re.search(r'^version = "(.+)"', text_of("pyproject.toml"), re.MULTILINE)
    assert version
    assert f"version: {version[1]}\n" in text_of("CITATION.cff")
    assert f"## {version[1]}" in text_of("CHANGELOG.md")


def test_ci_runs_lint_then_tests():
    lines = text_of(".ci/run").splitlines()
    assert lines[-2:] == ["make lint", "make test"]
