"""What is found, told at once: progress, findings, notes; and the time that is left for each step.

Before it: `findings`. After it: `investigation`, which writes it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from labkit.lab.advising.findings import Findings

__all__ = ["Journal", "Options", "Tell"]

Tell = Callable[[tuple[str, Any]], None]
"""Called with ("progress", (part done, text)), ("found", {name: value}) or ("no advice", why)."""

_UNTIL = {
    "probe": (0.1, 0.1),
    "trace": (0.2, 0.2),
    "workers": (0.5, 0.85),
    "transport": (0.7, 0.9),
    "start": (0.8, 0.95),
    "all": (1.0, 1.1),
}
"""By what is done: the part of the time by which it should be over, and by which it is ended."""

_LEAST = 0.05  # of the time, for each
_UNSHARDED = "never asked which worker"  # a warning of the loader
_MOST_WARNINGS = 3  # that are told
_LONGEST = 300  # letters of one


@dataclass(frozen=True)
class Options:
    """What the user asked for.

    Attributes:
        seconds: for all of it, about.
        memory_bytes: that the batches alive at once may take.
        step_seconds: of a training step.
        device: its name; None for the accelerator, if there is one.
        why_forked: why this process was forked from the user's; "" if it was not.
    """

    seconds: float
    memory_bytes: int
    step_seconds: float = 0.0
    device: str | None = None
    why_forked: str = ""


@dataclass
class Journal:
    """Keeps the findings, and tells of each.

    Attributes:
        findings: until now.
        seconds: for all of it.
        tell: where it goes.
        began: when, on `time.monotonic()`.
    """

    findings: Findings
    seconds: float
    tell: Tell
    began: float = field(default_factory=time.monotonic)

    def left(self, about: str) -> tuple[float, float]:
        """Seconds until this should be over, and until it is ended; some at least."""
        passed, least = time.monotonic() - self.began, _LEAST * self.seconds
        wanted, at_most = (max(part * self.seconds - passed, least) for part in _UNTIL[about])
        return wanted, at_most

    def is_over(self, about: str) -> bool:
        """Whether there is no time left to begin with this."""
        return time.monotonic() - self.began > _UNTIL[about][1] * self.seconds

    def progress(self, text: str) -> None:
        """Say what is done now."""
        part = (time.monotonic() - self.began) / self.seconds
        self.tell(("progress", (min(part, 0.99), text)))

    def found(self, **found: Any) -> None:
        """Note findings, by their names."""
        for name, value in found.items():
            setattr(self.findings, name, value)
        self.tell(("found", found))

    def note(self, sentence: str) -> None:
        """Note what else must be known."""
        self.found(notes=[*self.findings.notes, sentence])

    def note_warnings(self, warned: Iterable[warnings.WarningMessage]) -> None:
        """Note the warnings that came, each once, and some at most."""
        texts = dict.fromkeys(f"{one.category.__name__}: {one.message}" for one in warned)
        unsharded = [text for text in texts if _UNSHARDED in text]
        for text in [text for text in texts if text not in unsharded][:_MOST_WARNINGS]:
            self.note(f"A warning came while it was loaded: {text[:_LONGEST]}")
        if unsharded:
            self.found(is_unsharded=True)
