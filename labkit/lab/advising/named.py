"""The object that a command line names: `module:dataset`, or `file.py:dataset`.

After it: `subject`, which looks at the object.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from torch.utils.data import IterableDataset

from labkit.lab.advising.subject import NoAdvice

__all__ = ["load", "made"]


def load(name: str, what: str = "dataset") -> Any:
    """The object of that name; the current folder is searched for modules, too.

    Args:
        name: "module:attribute" or "path/to/file.py:attribute"; dots lead to attributes of those.
        what: it is asked for as.

    Raises:
        NoAdvice: there is none; says what to write.
    """
    where, colon, path = name.rpartition(":")
    if not colon or not where or not path:
        raise NoAdvice(
            f"{name!r} names no object: write module:{what} or file.py:{what}, such as "
            f"train.py:{what} for the variable {what!r} in train.py"
        )
    found: Any = _module(where, what)
    for step in path.split("."):
        if not hasattr(found, step):
            raise NoAdvice(f"{where} has no {step!r}. {_what_it_has(found, step)}")
        found = getattr(found, step)
    return found


def made(found: Any, name: str) -> Any:
    """The object itself, or what it returns if it is a class or a function.

    Raises:
        NoAdvice: calling it raises.
    """
    is_dataset = hasattr(found, "__getitem__") or isinstance(found, IterableDataset)
    if not isinstance(found, type) and (is_dataset or not callable(found)):
        return found
    try:
        return found()
    except Exception as error:
        raise NoAdvice(
            f"{name} is called without arguments, and that raised "
            f"{type(error).__name__}: {error}\n{_where(error)}"
            "Write a function without arguments that returns the dataset, or a variable that holds "
            "it."
        ) from error


def _module(where: str, what: str) -> ModuleType:
    if where.endswith(".py") or os.sep in where:
        file = Path(where).resolve()
        if not file.is_file():
            raise NoAdvice(f"there is no file {where!r} in {Path.cwd()}: write its path from there")
        folder, module = str(file.parent), file.stem
    else:
        file, folder, module = None, str(Path.cwd()), where
    if folder not in sys.path[:1]:
        sys.path.insert(0, folder)  # workers that are spawned get it, too
    found = _imported(module, where, what)
    if file is not None and Path(found.__file__ or "").resolve() != file:
        raise NoAdvice(
            f"{where} cannot be imported: there is another module called {module!r} "
            f"({found.__file__ or 'built in'}). Give the file another name."
        )
    return found


def _imported(module: str, where: str, what: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(error.name + ".")):
            raise NoAdvice(
                f"there is no module {module!r}: it is looked for in {Path.cwd()} and where Python "
                f"looks. For a file write its path: path/to/{module.split('.')[-1]}.py:{what}"
            ) from error
        raise NoAdvice(
            f"{where} needs the module {error.name!r}, which is not installed:\n{_where(error)}"
        ) from error
    except (Exception, SystemExit) as error:
        raise NoAdvice(
            f"importing {where} raised {type(error).__name__}: {error}\n{_where(error)}"
            'What only a training run needs stands under `if __name__ == "__main__":`.'
        ) from error


def _where(error: BaseException) -> str:
    """The last line of the user's own code that led to it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "importlib" not in f.filename and "advising" not in f.filename]
    if not own:
        return ""
    return f"  {own[-1].filename}, line {own[-1].lineno}: {own[-1].line}\n"


def _what_it_has(found: Any, step: str) -> str:
    names = [name for name in vars(found) if not name.startswith("_")]
    close = difflib.get_close_matches(step, names, 3)
    if close:
        return f"Did you mean {' or '.join(map(repr, close))}?"
    return f"It has {', '.join(map(repr, names[:8])) or 'nothing'}."
