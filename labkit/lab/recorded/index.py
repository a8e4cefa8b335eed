"""What a folder of recordings has, what it lacks and why.

Before it: `recording`. After it: `record`, which writes one; the package, which looks into it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit.lab.recorded.recording import check_fields, damaged, parsed, write

__all__ = ["INDEX", "Entry", "Index"]

INDEX = "index.json"

_FIELDS: dict[str, type] = {
    "machine": dict,
    "simulated": bool,
    "entries": list,
    "left_out": dict,
    "failures": dict,
    "interrupted": bool,
}
_ENTRY: dict[str, type] = {"file": str, "kind": str, "name": str, "settings": dict}


@dataclass(frozen=True)
class Entry:
    """A file of the folder: a recording, or a trace."""

    file: str
    kind: str
    name: str
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass
class Index:
    """What one `python -m labkit record` wrote.

    Attributes:
        machine: as in each recording.
        simulated: the device was a simulated one.
        entries: the files.
        left_out: by job, why it was not run, or not to its end.
        failures: by job, what it raised.
        interrupted: Ctrl-C ended it.
        wall_s: seconds in all, of `allowed_s` at most.
    """

    machine: dict[str, Any]
    simulated: bool
    entries: list[Entry] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False
    wall_s: float = 0.0
    allowed_s: float = 0.0

    @classmethod
    def read(cls, path: Path) -> Index:
        """Read an `index.json`, and check it.

        Raises:
            DamagedRecording: it is not what was written.
        """
        fields = parsed(path)
        check_fields(fields, _FIELDS, path)
        for number, entry in enumerate(fields["entries"]):
            if not isinstance(entry, dict):
                raise damaged(path, f"`entries[{number}]` is no object")
            check_fields(entry, _ENTRY, path, f"entries[{number}].")
        names = [f.name for f in dataclasses.fields(cls) if f.name in fields]
        found = {name: fields[name] for name in names}
        found["entries"] = [
            Entry(**{name: entry[name] for name in _ENTRY}) for entry in fields["entries"]
        ]
        return cls(**found)

    def write(self, folder: Path) -> None:
        """Write it into the folder."""
        write(folder / INDEX, dataclasses.asdict(self))
