"""What came of a check.

After it: `self_check` and `correctness`, which make them; `jobs`, which writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Check", "carried_out"]


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: what.
        found, wanted: in words, with their numbers.
        passed: None where nothing is demanded: of what cannot be there, or of a simulated speed.
        numbers: all that was measured.
    """

    name: str
    found: str
    wanted: str
    passed: bool | None
    numbers: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        verdict = {True: "as wanted", False: "NOT as wanted", None: "no bar here"}[self.passed]
        return f"{self.name}: {self.found}; wanted: {self.wanted}: {verdict}"


def carried_out(checks: Mapping[str, Callable[[], Check]]) -> Iterator[Check]:
    """Each check in turn; one that raises is not passed, and the others go on."""
    for name, check in checks.items():
        try:
            yield check()
        except Exception as error:
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            yield Check(name, f"it failed: {said}", "no error", False)
