"""Hashes of the modules that a recording depends on: those of its experiment, and the loader's.

A recording whose hashes no longer fit was made with other code. Nobody can tell whether that would
change its numbers, so it is only said to be older.

After it: `recording`, which keeps them.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import pkgutil
from collections.abc import Iterable
from pathlib import Path

import labkit

__all__ = ["hashes", "loader_modules", "with_imports"]

_EXPERIMENTS = "labkit.lab.on_device"
_NOT_MEASURED = {"labkit.lab", "labkit.__main__"}


def hashes(modules: Iterable[str]) -> dict[str, str]:
    """By module, the first 16 digits of the SHA-256 of its source; "" for one that is gone."""
    return {name: _hash(name) for name in sorted(set(modules))}


@functools.cache
def _hash(module: str) -> str:
    source = _source(module)
    return "" if source is None else hashlib.sha256(source.encode()).hexdigest()[:16]


def _source(module: str) -> str | None:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):  # the package around it is gone, or it is no module's name
        return None
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).read_text(encoding="utf-8")  # the same on every system


@functools.cache
def loader_modules(simulated: bool) -> tuple[str, ...]:
    """The loader's modules; the simulated device's only where that was measured."""
    left_out = _NOT_MEASURED | (set() if simulated else {"labkit.simulated"})
    names = ["labkit"]
    for module in pkgutil.iter_modules(labkit.__path__, "labkit."):
        if module.name in left_out:
            continue
        names.append(module.name)
        if module.ispkg:
            folder = str(Path(labkit.__path__[0]) / module.name.rpartition(".")[2])
            names += [inner.name for inner in pkgutil.iter_modules([folder], f"{module.name}.")]
    return tuple(names)


def with_imports(module: str) -> set[str]:
    """A module, and those of the experiments on a device that it imports, and so on."""
    found, left = {module}, [module]
    while left:
        for name in _imported(left.pop()) - found:
            found.add(name)
            left.append(name)
    return found


def _imported(module: str) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(_source(module) or "")):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name for name in names if name.startswith(f"{_EXPERIMENTS}.")}
