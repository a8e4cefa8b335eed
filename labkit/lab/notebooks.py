"""`python -m labkit lab [FOLDER]`: the course's notebooks, for those who installed a wheel.

It carries them as `labkit/notebooks`. The command copies them, with solutions, data and
teaching notes, and never over a file that somebody changed: a list of what it wrote, with hashes,
stays beside them. In a checkout they lie at the top, and the command says so.

Before it: `setup.py`, which puts them into the wheel. After it: JupyterLab, and `exercises`, which
looks for solutions here.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import labkit
from labkit.lab.whole_file import write_whole

__all__ = ["Copied", "copy_to", "folder", "in_checkout", "main", "places"]

_PACKAGE = Path(labkit.__file__).parent
_LIST = ".labkit-notebooks.json"  # what was written, with its hashes
_NOT_COPIED = {".ipynb_checkpoints", "__pycache__", _LIST}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns the exit code: 0, or 2 if the notebooks cannot be copied or opened."""
    parsed = _parse(arguments)
    target = Path(parsed.folder or ".")
    try:
        if parsed.folder is None and in_checkout():
            target = folder()
            print(f"labkit runs from its sources, and the notebooks are there: {target}")
        else:
            print(copy_to(target).as_text())
    except OSError as error:
        print(f"the notebooks cannot be copied into {target}: {error}", file=sys.stderr)
        return 2
    return _open_or_say_how(target, parsed.open)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m labkit lab",
        description="Copy the course's notebooks, and say how to open them. Files that you changed "
        "are kept. To have the original of one again, rename yours and repeat the command.",
    )
    parser.add_argument(
        "folder",
        nargs="?",
        metavar="FOLDER",
        help="where to copy them (default: the current folder; in a checkout none is needed)",
    )
    parser.add_argument(
        "--open",
        nargs=argparse.REMAINDER,
        metavar="ARG",
        help="then start JupyterLab at the first one; what follows goes to `jupyter lab`",
    )
    return parser.parse_args(arguments)


def folder() -> Path:
    """The folder of this installation's notebooks.

    Raises:
        FileNotFoundError: there is none; names both places.
    """
    for place in places():
        if any(place.glob("00_*.ipynb")):
            return place
    raise FileNotFoundError(
        f"this labkit has no notebooks, neither in {' nor in '.join(map(str, places()))}: "
        "install it again, or clone its repository"
    )


def places() -> list[Path]:
    """Where the notebooks may be: beside the package in a checkout, in it if a wheel brought it."""
    return [_PACKAGE.parent / "notebooks", _PACKAGE / "notebooks"]


def in_checkout() -> bool:
    """Whether labkit runs from its sources, with the notebooks beside it."""
    return folder() == places()[0]


@dataclass
class Copied:
    """What became of each file, by its path below the folder.

    Attributes:
        into: the folder.
        new: was not there.
        updated: was as this command had left it, and the course has another one now.
        same: is the course's.
        kept: was changed by somebody, and is not the course's: left alone.
    """

    into: Path
    new: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    def as_text(self) -> str:
        """One sentence with the counts, and the names of what was kept."""
        counts = [
            f"{len(names)} {word}"
            for names, word in (
                (self.new, "new"),
                (self.updated, "updated"),
                (self.same, "as they were"),
                (self.kept, "kept, because they were changed"),
            )
            if names
        ]
        lines = [f"The course of labkit {labkit.__version__} is in {self.into}: files "]
        lines[0] += ", ".join(counts) + "."
        lines += [f"  kept: {name}" for name in self.kept]
        if self.kept:
            lines.append("To have the original of one again, rename yours and repeat this command.")
        return "\n".join(lines)


def copy_to(target: Path) -> Copied:
    """Copy the notebooks into a folder, which is made if it is not there.

    A file that is there is only replaced if its hash is the one with which this function left it.

    Raises:
        OSError: the folder or a file in it cannot be written, or is something else.
    """
    source = folder()
    if target.resolve() == source.resolve():
        raise FileExistsError("these are the originals; name another folder")
    target.mkdir(parents=True, exist_ok=True)
    copied, left = Copied(target.resolve()), _read_list(target / _LIST)
    try:
        for file in _files(source):
            name, content = file.relative_to(source).as_posix(), file.read_bytes()
            became = _became(target / name, content, left.get(name))
            getattr(copied, became).append(name)
            if became in ("new", "updated"):
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                write_whole(target / name, content)
            if became != "kept":
                left[name] = _hash(content)
    finally:  # also of a copy that breaks off, or a newer course would leave its files alone
        write_whole(target / _LIST, json.dumps(left, indent=1, sort_keys=True).encode() + b"\n")
    return copied


def _files(source: Path) -> list[Path]:
    files = (path for path in sorted(source.rglob("*")) if path.is_file())
    return [file for file in files if not _NOT_COPIED & set(file.relative_to(source).parts)]


def _became(there: Path, content: bytes, hash_left: str | None) -> str:
    """What is to become of a file: the name of one of `Copied`'s lists."""
    if there.is_symlink():
        return "kept"  # whatever it leads to, somebody put it there
    if not there.exists():
        return "new"
    found = there.read_bytes()
    if found == content:
        return "same"
    return "updated" if _hash(found) == hash_left else "kept"


def _read_list(path: Path) -> dict[str, str]:
    """The hashes by name. From a damaged list nothing is known: all that differs is kept."""
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found, dict):
            return {name: value for name, value in found.items() if isinstance(value, str)}
    return {}


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _open_or_say_how(notebooks: Path, jupyter_arguments: list[str] | None) -> int:
    first = min(notebooks.glob("[0-9][0-9]_*.ipynb"))
    command = [sys.executable, "-m", "jupyter", "lab", str(first)]
    if importlib.util.find_spec("jupyterlab") is None:
        print("To open them, install the lab: pip install 'labkit[lab]'")
        return 0 if jupyter_arguments is None else 2
    if jupyter_arguments is None:
        print(f"To open the first one: {shlex.join(command)}")
        return 0
    sys.stdout.flush()
    os.execv(sys.executable, [*command, *jupyter_arguments])
