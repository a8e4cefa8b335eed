"""Recordings: what the experiments on a device gave on another machine, kept as JSON.

A folder in here is what one `python -m labkit record --out FOLDER` wrote: an `index.json`, a file
for each experiment, one of the device bench, one of the checks, and a trace. `README.md` says how
it is made and how it comes into the package. A panel shows, beside what it measures here, the
recording of the same settings:

    recorded.find("name in labkit.lab.on_device.EXPERIMENTS", settings)

Before it: `on_device`, whose experiments these are; `record`, which writes. After it: `panels`.

- `recording.py`: one file, its schema, and the words for where it comes from.
- `index.py`: what a folder has.
- `sources.py`: hashes of the modules that were measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from labkit.lab.on_device import EXPERIMENTS
from labkit.lab.recorded.index import INDEX, Index
from labkit.lab.recorded.recording import DamagedRecording, Recording

__all__ = ["FOLDER", "HOW_TO_MAKE_ONE", "DamagedRecording", "Index", "Recording", "find"]

FOLDER = Path(__file__).parent

HOW_TO_MAKE_ONE = "`python -m labkit record --out FOLDER` makes one on a machine with a GPU"


def find(
    experiment: str,
    settings: Mapping[str, Any],
    folder: Path | None = None,
    *,
    simulated: bool = False,
) -> Recording | None:
    """The recording of an experiment with these settings; None if there is none.

    Of several it is one that the code in this copy would make, if there is one, and the latest.

    Args:
        experiment: its name in `labkit.lab.on_device.EXPERIMENTS`.
        settings: the experiment's arguments; one left out has its default.
        folder: where recordings lie, in it or in folders of it; None for the package's.
        simulated: also take one of a simulated device, which is only there to be tried.

    Raises:
        KeyError: there is no such experiment.
        DamagedRecording: one that would do cannot be read; says which, and why.
    """
    if experiment not in EXPERIMENTS:
        known = ", ".join(map(repr, EXPERIMENTS)) or "none yet"
        raise KeyError(f"unknown experiment {experiment!r}: there are {known}")
    wanted = EXPERIMENTS[experiment].full(settings)
    found = [
        recording
        for recording in _recordings(experiment, FOLDER if folder is None else folder, simulated)
        if EXPERIMENTS[experiment].full(recording.settings) == wanted
        and (simulated or not recording.simulated)
    ]
    return max(found, key=lambda r: (r.is_current(), r.date), default=None)


def _recordings(experiment: str, folder: Path, simulated: bool) -> Iterator[Recording]:
    for path in sorted(folder.rglob(INDEX)):
        index = Index.read(path)
        if index.simulated and not simulated:
            continue  # nor does it matter whether its files can be read
        for entry in index.entries:
            if entry.kind == "experiment" and entry.name == experiment:
                yield Recording.read(path.parent / entry.file)
