"""The panel for a dataset of one's own: what holds it back, and what to change.

    labkit.lab.panels.advise(dataset)

It does what `labkit.lab.advise` does, with Run and Cancel, a progress bar, and the advice as it
grows. In code, `panel.run()` does what the button does.

Before it: `labkit.lab.advising`. After it: `advising_view`, its widgets.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from labkit.lab import need
from labkit.lab.advising import Advice
from labkit.lab.advising import advise as find_advice
from labkit.lab.datasets import Payload, Waiting
from labkit.lab.experiments.measuring import Cancelled
from labkit.lab.live import MimeBundle, live_or_stored
from labkit.lab.panels.model import one_at_a_time

__all__ = ["AdvicePanel", "advise"]

_EXAMPLE_SAMPLES = 4000
_EXAMPLE_BYTES = 12_288  # 3 × 64 × 64
_EXAMPLE_WAIT = 0.0005
SECONDS = {"30 s": 30.0, "60 s": 60.0, "2 minutes": 120.0, "5 minutes": 300.0}
"""What may be chosen, in words."""


def advise(data: Any = None, **arguments: Any) -> AdvicePanel:
    """What holds a dataset's loading back, and what to change, tried and measured here.

    Args:
        data: a dataset or a DataLoader; None for a small one of the lab, whose samples are waited
            for, as from a disk.
        **arguments: as for `labkit.lab.advise`.
    """
    if data is None:
        data = Waiting(Payload(_EXAMPLE_SAMPLES, _EXAMPLE_BYTES), _EXAMPLE_WAIT)
    return AdvicePanel(data, arguments)


class AdvicePanel:
    """A dataset, a run, and the advice that came of it.

    Args:
        data: as for `labkit.lab.advise`,
        arguments: and its other arguments, which stay.

    Attributes:
        advice: of the latest run; of one under way or cancelled, what there is so far.
        progress: the part done, and what runs.
        error: of the latest run, if it failed or was cancelled.
        on_change: called, in the run's thread, at each step.
    """

    def __init__(self, data: Any, arguments: dict[str, Any]) -> None:
        self.title = f"Advice for {type(data).__name__}"
        self.advice: Advice | None = None
        self.progress: tuple[float, str] = (0.0, "")
        self.error = ""
        self.on_change: list[Callable[[], None]] = []
        self._data, self._arguments = data, arguments
        self._busy = threading.Lock()
        self._cancel = threading.Event()
        self._view: Any = None

    @property
    def settings(self) -> dict[str, Any]:
        """What can be chosen, as it is at first."""
        usual = {"seconds": SECONDS["60 s"], "step_seconds": 0.0}
        return {name: self._arguments.get(name, value) for name, value in usual.items()}

    @property
    def running(self) -> bool:
        """Whether a run is under way."""
        return self._busy.locked()

    def run(self, **settings: Any) -> Advice:
        """Find advice; a setting left out is the first one, see `settings`.

        Raises:
            RuntimeError: it runs already.
            NoAdvice, Cancelled: as `labkit.lab.advise`; `error` tells it, too.
        """
        if not self._busy.acquire(blocking=False):
            raise RuntimeError(f"{self.title} is being found: wait for it, or cancel it")
        try:
            self.error, self.advice = "", None
            return self._found({**self._arguments, **self.settings, **settings})
        except BaseException as error:
            self.error = "Cancelled." if isinstance(error, Cancelled) else str(error)
            if self.advice is not None:
                self.advice.findings.stopped = self.error
            raise
        finally:
            self._cancel = threading.Event()
            self._busy.release()
            self._tell()

    def cancel(self) -> None:
        """Stop the run under way, if there is one, with all processes that it started."""
        if self.running:
            self._cancel.set()

    def _found(self, arguments: dict[str, Any]) -> Advice:
        self._note_progress(0.0, "waiting for another measurement")
        with one_at_a_time(self._cancel):
            advice = find_advice(
                self._data,
                progress=self._note_progress,
                so_far=self._note,
                cancel=self._cancel,
                **arguments,
            )
        self.advice = advice
        return advice

    def _note(self, advice: Advice) -> None:
        self.advice = advice
        self._tell()

    def _note_progress(self, part: float, text: str) -> None:
        self.progress = part, text
        self._tell()

    def _tell(self) -> None:
        for callback in self.on_change:
            callback()

    @property
    def sentence(self) -> str:
        """The first thing to know."""
        if self.advice is None:
            return "Not run yet: press Run, or call run() on this panel in a cell."
        return " ".join(self.advice.sentences)

    def as_text(self) -> str:
        """All that the panel shows, as text."""
        parts = [self.title, self.advice.as_text() if self.advice is not None else self.sentence]
        if self.error:
            parts.append(f"The latest run failed: {self.error}")
        return "\n".join(parts)

    def __repr__(self) -> str:
        return f"<Panel {self.title!r}: .run() finds it, .as_text() tells>"

    def _repr_mimebundle_(self, **_: Any) -> MimeBundle:
        """The widgets for a live page; for a reader without a kernel the advice; constant text."""
        stored = None if self.advice is None else self.advice._repr_mimebundle_
        return live_or_stored(repr(self), stored, self._box)

    def _box(self) -> Any:
        view = need("labkit.lab.panels.advising_view", "ipywidgets")
        self._view = self._view or view.AdviceView(self)
        return self._view.box
