"""One recording: what was found, with which settings, where, when, and by which code.

Before it: `sources`. After it: `index`, and the package, which finds one.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.lab.recorded.sources import hashes
from labkit.lab.results import Result

__all__ = ["SCHEMA", "DamagedRecording", "Recording", "check_fields", "damaged", "parsed", "write"]

SCHEMA = 1
"""Of the files; it changes when a name in them changes its meaning."""

_FIELDS: dict[str, type] = {
    "kind": str,
    "name": str,
    "settings": dict,
    "simulated": bool,
    "machine": dict,
    "modules": dict,
    "found": dict,
}
_MACHINE: dict[str, type] = dict.fromkeys(
    ("date", "device", "python", "torch", "numpy", "labkit"), str
)


_FOUND: dict[str, dict[str, type]] = {
    "experiment": {"question": str, "quantity": str, "unit": str, "repeats": dict, "machine": dict},
    "bench": {"workloads": list, "figures": list, "failures": dict, "notes": dict},
    "checks": {"checks": list},
}
"""By kind. A result is checked further by being made."""


class DamagedRecording(ValueError):
    """A file of a recording is not what `python -m labkit record` writes."""


@dataclass(frozen=True)
class Recording:
    """What one job of `python -m labkit record` found.

    Attributes:
        kind: "experiment", "bench" or "checks".
        name: of the experiment, in `labkit.lab.on_device.EXPERIMENTS`; else the kind.
        settings: the arguments, defaults included.
        simulated: the device was a simulated one; then it counts as no recording of a device.
        machine: where, when, with which versions: as `labkit.lab.on_device.here`, and the commit.
        modules: hashes of the modules measured, by name.
        found: of an experiment, a `Result` as JSON; else what the job wrote.
    """

    kind: str
    name: str
    settings: dict[str, Any]
    simulated: bool
    machine: dict[str, Any]
    modules: dict[str, str]
    found: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> Recording:
        """Read a file, and check it.

        Raises:
            DamagedRecording: it is not there, or not what was written; says what is wrong.
        """
        fields = parsed(path)
        check_fields(fields, _FIELDS, path)
        check_fields(fields["machine"], _MACHINE, path, "machine.")
        if fields["kind"] not in _FOUND:
            raise damaged(path, f"`kind` is {fields['kind']!r}, none of {', '.join(_FOUND)}")
        check_fields(fields["found"], _FOUND[fields["kind"]], path, "found.")
        recording = cls(**{name: fields[name] for name in _FIELDS})
        if recording.kind == "experiment":
            recording._check_result(path)
        return recording

    def write(self, path: Path) -> None:
        """Write a file that `read` takes.

        Raises:
            DamagedRecording: something in here does not fit the schema.
        """
        part = path.with_suffix(".part")
        write(part, dataclasses.asdict(self))
        try:
            Recording.read(part)
        except DamagedRecording:
            part.unlink()
            raise
        part.replace(path)

    def _check_result(self, path: Path) -> None:
        try:
            result = self.result
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise damaged(path, f"`found` is no result: {error!r}") from error
        if not result.repeats or not all(result.repeats.values()):
            raise damaged(path, "`found.repeats` has a setting without repeats, or none")

    @property
    def result(self) -> Result:
        """What the experiment found, as of another machine; its notes end with `words`."""
        found = Result.from_json(json.dumps({**self.found, "origin": "recorded"}))
        return dataclasses.replace(found, notes=(*found.notes, self.words))

    @property
    def date(self) -> str:
        """When, in UTC, as ISO 8601 has it."""
        return str(self.machine["date"])

    def changed_modules(self) -> list[str]:
        """The modules measured whose source is another one in this copy."""
        now = hashes(self.modules)
        return [name for name, then in self.modules.items() if now[name] != then]

    def is_current(self) -> bool:
        """Whether the modules measured are as they are in this copy."""
        return not self.changed_modules()

    @property
    def words(self) -> str:
        """Where, when and with what it was recorded, and whether the code has changed since."""
        machine = self.machine
        device = (
            f"a simulated device ({machine['device']})" if self.simulated else machine["device"]
        )
        named = {"driver": "driver {}", "cuda": "CUDA {}", "torch": "torch {}"}
        named |= {"python": "Python {}", "labkit": "labkit {}", "commit": "commit {}"}
        parts = [text.format(machine[key]) for key, text in named.items() if machine.get(key)]
        day = self.date.partition("T")[0]
        return f"Recorded on {device}, {day}, {', '.join(parts)}{self._older()}."

    def _older(self) -> str:
        changed = self.changed_modules()
        if not changed:
            return ""
        few = ", ".join(changed[:2]) + (f" and {len(changed) - 2} more" if changed[2:] else "")
        return f"; older than the code in this copy (changed since: {few})"


def parsed(path: Path) -> dict[str, Any]:
    """The object in a JSON file of this schema.

    Raises:
        DamagedRecording: there is none.
    """
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise damaged(path, "it is in the index, and not in the folder") from error
    except (OSError, ValueError) as error:
        raise damaged(path, str(error)) from error
    if not isinstance(fields, dict):
        raise damaged(path, "it holds no JSON object")
    if fields.get("schema") != SCHEMA:
        raise damaged(path, f"`schema` is {fields.get('schema')!r}, and this copy reads {SCHEMA}")
    return fields


def check_fields(
    fields: Mapping[str, Any], wanted: Mapping[str, type], path: Path, within: str = ""
) -> None:
    """Compare what an object holds with what it is to hold.

    Raises:
        DamagedRecording: something is not there, or of another type.
    """
    for name, kind in wanted.items():
        if name not in fields:
            raise damaged(path, f"`{within}{name}` is missing")
        if not isinstance(fields[name], kind):
            found = f"{fields[name]!r:.60}"
            raise damaged(
                path, f"`{within}{name}` is to be of type {kind.__name__}, but is {found}"
            )


def write(path: Path, fields: Mapping[str, Any]) -> None:
    """Write a JSON file of this schema, whole or not at all."""
    text = json.dumps({"schema": SCHEMA, **fields}, indent=1, ensure_ascii=False)
    part = path.with_suffix(".part")
    try:
        part.write_text(text + "\n", encoding="utf-8")
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    part.replace(path)


def damaged(path: Path, why: str) -> DamagedRecording:
    """The error for a file."""
    return DamagedRecording(
        f"The recording {path} cannot be used: {why}. Take the file as it was committed (`git "
        "restore`), or record anew: python -m labkit record --out FOLDER"
    )
