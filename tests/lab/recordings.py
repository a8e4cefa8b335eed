"""Recordings as a real machine would write them, for tests of what reads and shows them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labkit.lab.recorded.index import Entry, Index
from labkit.lab.recorded.recording import Recording
from labkit.lab.recorded.sources import hashes, loader_modules
from labkit.lab.results import Result

MACHINE = {
    "date": "2026-03-01T10:00:00+00:00",
    "device": "NVIDIA H200",
    "cpu": "some",
    "cores": 16,
    "python": "3.12.1",
    "torch": "2.11.0",
    "cuda": "12.8",
    "driver": "570.86",
    "numpy": "2.2.0",
    "labkit": "0.1.0",
    "commit": "0123456789ab",
    "simulated": False,
}
REPEATS = {"a": (1.0, 1.1, 1.2, 1.3, 1.4, 1.5), "b": (4.0, 4.1, 4.2, 4.3, 4.4, 4.5)}


def measured(device=None, slow=2.0, kind="plain", *, seconds=1.0, **others) -> Result:
    """Stands for an experiment, with two settings of its own."""
    repeats = {label: tuple(10 * v for v in values) for label, values in REPEATS.items()}
    return Result("Which?", "time", "ms", repeats, machine={"cpu": "here"}, origin="simulated")


def recording(settings: Mapping[str, Any] | None = None, **changes: Any) -> Recording:
    """Of the experiment `measured`."""
    found = Result("Which?", "time", "ms", REPEATS, machine=MACHINE)
    fields: dict[str, Any] = {
        "kind": "experiment",
        "name": "which",
        "settings": {"slow": 2.0, "kind": "plain", **(settings or {})},
        "simulated": False,
        "machine": MACHINE,
        "modules": hashes(loader_modules(simulated=False)),
        "found": {
            name: getattr(found, name) for name in ("question", "quantity", "unit", "machine")
        }
        | {"repeats": REPEATS, "notes": [], "settings": {}, "common": {}, "origin": "live"},
    }
    return Recording(**{**fields, **changes})


def write(folder: Path, *recordings: Recording) -> None:
    """A folder with these, and their index."""
    folder.mkdir(parents=True, exist_ok=True)
    index = Index(MACHINE, simulated=False)
    for number, one in enumerate(recordings):
        one.write(folder / f"{number}.json")
        index.entries.append(Entry(f"{number}.json", one.kind, one.name, one.settings))
    index.write(folder)
