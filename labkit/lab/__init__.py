"""The lab: what runs, measures and shows the loader. It imports the loader, never the reverse.

`bench` compares the loader with others: `workloads` is what it loads, `sides` are the loaders,
`timing` and `resources` measure, `bench_results` and `bench_tables` are what came of it.

The lab may need packages that the loader does not: `pip install 'labkit[lab]'`.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["MissingPackage", "need"]


class MissingPackage(ImportError):
    """A package of the lab is not installed."""


def need(module: str, package: str | None = None) -> Any:
    """Import a module of a package that only the lab needs.

    Raises:
        MissingPackage: it is not there; says what to install.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPackage(
            f"{package or module} cannot be imported ({error}): pip install {package or module}"
        ) from error
