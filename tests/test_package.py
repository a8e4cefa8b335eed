"""The wheel, in an environment of its own: what it holds, what it needs, and that it works there.

It is built from the sdist, as `python -m build` does it, from a copy of the sources. The new
environment sees the tested packages of this one as links, but only those that the wheel's metadata
ask for: what labkit imports and does not name is missing there. `LABKIT_INSTALL=1` has pip install
them from the index instead, which takes a minute or more.
"""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import labkit

ROOT = Path(__file__).resolve().parent.parent
NOT_SOURCES = shutil.ignore_patterns(
    "build", "dist", "*.egg-info", ".git", ".venv", "__pycache__", ".*_cache", ".hypothesis"
)
STRAY = ("mine.ipynb", "labkit-progress.json", ".ipynb_checkpoints/00_start_here-checkpoint.ipynb")
INSTALL = os.environ.get("LABKIT_INSTALL") == "1"

pytestmark = pytest.mark.timeout(900 if INSTALL else 300)

TRAIN = """
import importlib.metadata, importlib.util, json, sys, torch
from torch.utils.data import TensorDataset
import labkit

inputs = torch.randn(256, 3, generator=torch.Generator().manual_seed(0))
data = TensorDataset(inputs, inputs @ torch.tensor([[1.0], [2.0], [3.0]]))
model = torch.nn.Linear(3, 1)
optimiser = torch.optim.SGD(model.parameters(), lr=0.3)
losses = []
for x, y in labkit.DataLoader(data, batch_size=16, shuffle=True, num_workers=2):
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    losses.append(loss.item())
print(json.dumps({
    "file": labkit.__file__,
    "versions": [labkit.__version__, importlib.metadata.version("labkit")],
    "losses": losses,
    "there": [name for name in sys.argv[1:] if importlib.util.find_spec(name)],
}))
"""

USER = """\
import labkit
loader: labkit.DataLoader[int] = labkit.DataLoader([1, 2, 3], batch_size=2)
reveal_type(len(loader))
labkit.DataLoader([1], batch_size="two")
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> Path:
    """A copy of the sources, in which a learner has left some files."""
    copy = tmp_path_factory.mktemp("sources") / "labkit"
    shutil.copytree(ROOT, copy, ignore=NOT_SOURCES)
    for name in STRAY:
        path = copy / "notebooks" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
    return copy


@pytest.fixture(scope="module")
def built(sources, tmp_path_factory) -> Path:
    """The folder with the sdist and the wheel that was built from it."""
    out = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", out, sources])
    return out


@pytest.fixture(scope="module")
def wheel(built) -> Path:
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory) -> Path:
    """The interpreter of a new environment, with the wheel and what it needs without extras."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    interpreter = folder / "bin" / "python"
    pip(interpreter, "install", "--no-deps", "--no-index", wheel)
    provide(interpreter, wheel)
    return interpreter


def run(command: list, **options) -> str:
    """What a program prints that sees nothing of this checkout."""
    hidden = ("PYTHONPATH", "PYTEST_CURRENT_TEST")
    environment = {k: v for k, v in os.environ.items() if k not in hidden}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pip(interpreter: Path, *arguments) -> str:
    command = [sys.executable, "-m", "pip", "--python", interpreter, "--disable-pip-version-check"]
    return run([*command, *arguments])


def provide(interpreter: Path, wheel: Path, extra: str = "") -> None:
    """Give an environment what the wheel needs with this extra."""
    if INSTALL:
        wanted = f"{wheel}[{extra}]" if extra else str(wheel)
        pip(interpreter, "install", "-q", "-c", ROOT / "constraints.txt", wanted)
        return
    (site,) = interpreter.parents[1].glob("lib/python*/site-packages")
    (installed,) = importlib.metadata.distributions(name="labkit", path=[str(site)])
    for distribution in needed(installed, extra, {}):
        paths = {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
        for path in paths:
            if not (site / path).exists():
                (site / path).symlink_to(str(distribution.locate_file(path)))


def needed(distribution, extra: str, found: dict) -> Iterable[importlib.metadata.Distribution]:
    """What a distribution requires with one of its extras, and what that requires."""
    for requirement in map(Requirement, distribution.requires or ()):
        key = (canonicalize_name(requirement.name), *sorted(requirement.extras))
        wanted = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
        if wanted and key not in found:
            found[key] = importlib.metadata.distribution(requirement.name)
            for of_it in ("", *requirement.extras):
                needed(found[key], of_it, found)
    return found.values()


def names_in(archive: Path, below: str) -> set[str]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as opened:
            names = opened.namelist()
    else:
        with tarfile.open(archive) as opened:
            names = [member.name for member in opened.getmembers() if member.isfile()]
    return {name[len(below) :] for name in names if name.startswith(below)}


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_the_wheel_holds_the_package_whole_and_the_notebooks(sources, wheel):
    found = names_in(wheel, "labkit/")
    course = {name for name in found if name.startswith("notebooks/")}
    assert found - course == files_in(sources / "labkit")
    stray = {f"notebooks/{name}" for name in STRAY}
    assert course == {f"notebooks/{name}" for name in files_in(sources / "notebooks")} - stray
    assert "py.typed" in found
    (tags,) = names_in(wheel, wheel.name.replace("-py3-none-any.whl", ".dist-info/WHEEL"))
    assert tags == ""


def test_the_sdist_holds_what_is_needed_to_build_and_to_test_again(built, sources):
    (sdist,) = built.glob("*.tar.gz")
    found = names_in(sdist, f"labkit-{labkit.__version__}/")
    wanted = files_in(sources) - {f"notebooks/{name}" for name in STRAY}
    assert wanted - found == {".gitattributes", ".gitignore"}


def test_without_extras_it_trains_an_epoch_and_needs_nothing_of_the_lab(python, wheel, tmp_path):
    (site,) = python.parents[1].glob("lib/python*/site-packages")
    of_the_lab = ("IPython", "PIL", "ipywidgets", "jupyterlab", "matplotlib", "psutil", "tqdm")
    told = json.loads(run([python, "-c", TRAIN, *of_the_lab], cwd=tmp_path))
    assert Path(told["file"]).is_relative_to(site)
    assert told["versions"] == [labkit.__version__] * 2
    assert told["there"] == []
    assert len(told["losses"]) == 16
    assert told["losses"][-1] < told["losses"][0] / 10


def test_a_type_checker_reads_its_types(python, tmp_path):
    """PyTorch's own are left out, for reading them takes a minute."""
    (tmp_path / "user.py").write_text(USER)
    (tmp_path / "mypy.ini").write_text(
        "[mypy]\nstrict = true\n[mypy-torch.*,numpy.*,cloudpickle.*]\nfollow_imports = skip\n"
    )
    command = [sys.executable, "-m", "mypy", "--python-executable", python]
    command += ["--cache-dir", os.devnull, "user.py"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout
    assert re.findall(r"^user.py:(\d+): (error|note): (.+)", said, re.MULTILINE) == [
        ("3", "note", 'Revealed type is "int"'),
        (
            "4",
            "error",
            'Argument "batch_size" to "DataLoader" has incompatible type "str"; '
            'expected "int | None"  [arg-type]',
        ),
    ]


def test_with_the_lab_it_examines_the_machine_and_hands_out_the_course(python, wheel, tmp_path):
    provide(python, wheel, "lab")
    findings = json.loads(run([python, "-m", "labkit", "doctor", "--json"], cwd=tmp_path))
    assert findings["sizes"]
    said = run([python, "-m", "labkit", "lab"], cwd=tmp_path)
    copied = names_in(wheel, "labkit/notebooks/")
    assert files_in(tmp_path) - {".labkit-notebooks.json"} == copied
    assert f"{len(copied)} new" in said
    assert f"{python} -m jupyter lab 00_start_here.ipynb" in said
