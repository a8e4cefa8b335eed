"""A panel as a plain object: settings, a prediction, a run, and what came of all runs so far.

It knows nothing of widgets: `panel.run()` in a cell or a test does what the Run button does. The
widgets are a skin around it (`view`), which the package gives to it.

Before it: `experiments`; `entry`, one run; `beside`, what is recorded. After it: `view`, `history`,
the package.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from labkit.lab import need
from labkit.lab.experiments.measuring import Cancelled
from labkit.lab.live import MimeBundle, live_or_stored
from labkit.lab.panels.beside import Beside, look_up
from labkit.lab.panels.controls import Control
from labkit.lab.panels.entry import Entry
from labkit.lab.panels.history import text_table
from labkit.lab.predictions import Prediction
from labkit.lab.results import Result

__all__ = ["Control", "Entry", "Panel", "one_at_a_time"]

_LOOK_SECONDS = 0.05
_turn = threading.Lock()  # two measurements at a time would measure each other


class Panel:
    """Settings, a prediction, a run, a figure and a sentence, and the history of all runs.

    Args:
        title: in verb form, such as "Compare start methods".
        experiment: called with the settings and with `progress`, `so_far` and `cancel`, as
            `labkit.lab.experiments.loading`; returns the result.
        labels: of the settings that it compares, to predict from.
        controls: what can be chosen.
        widgets: makes the panel's widgets when it is displayed; None for a panel without.
        recorded: the experiment's name in `labkit.lab.on_device.EXPERIMENTS`; the panel then shows
            what was recorded on another machine with the same settings, beside a run and before
            the first one.

    In a cell whose last line is a panel, it is displayed, and nothing runs until Run is pressed.
    """

    def __init__(
        self,
        title: str,
        experiment: Callable[..., Result],
        labels: Sequence[str],
        controls: Sequence[Control] = (),
        widgets: Callable[[Panel], Any] | None = None,
        recorded: str | None = None,
    ) -> None:
        self.title = title
        self.recorded = recorded
        self.labels = list(labels)
        self.controls = list(controls)
        self.history: list[Entry] = []
        self.prediction: Prediction | None = None  #: for the next run
        self.so_far: Entry | None = None  #: of the run under way
        self.progress: tuple[int, int, str] = (0, 1, "")  #: repeats done, of how many, what runs
        self.error = ""  #: of the latest run, if it failed
        self.on_change: list[Callable[[], None]] = []  #: called, in the run's thread, at each step
        self._experiment = experiment
        self._widgets = widgets
        self._view: Any = None
        self._busy = threading.Lock()
        self._cancel = threading.Event()

    @property
    def settings(self) -> dict[str, Any]:
        """What the controls say at first."""
        return {control.argument: control.value for control in self.controls}

    @property
    def running(self) -> bool:
        """Whether a run is under way."""
        return self._busy.locked()

    @property
    def last(self) -> Entry | None:
        """The latest run that came to its end."""
        return self.history[-1] if self.history else None

    @property
    def sentence(self) -> str:
        """What the latest run's numbers support, how far off the prediction was, and what was
        recorded.
        """
        entry = self.last
        if entry is None:
            beside = self.beside(self.settings)
            said = [f"Not run yet: {self._how_to_run()}"]
        else:
            beside, said = entry.beside, [entry.sentence, entry.verdict]
        return " ".join(filter(None, [*said, beside.words if beside is not None else ""]))

    def beside(self, settings: Mapping[str, Any]) -> Beside | None:
        """What is recorded for these settings; None where the panel does not ask for any."""
        return look_up(self.recorded, settings) if self.recorded is not None else None

    def predict(self, fastest: str, factor: float | None = None) -> Prediction:
        """Commit to what you expect of the next run.

        Args:
            fastest: the setting with the least value, one of `labels`.
            factor: how many times as much the greatest value will be; None to leave that open.

        Raises:
            ValueError: there is no such setting, or the factor is below 1.
        """
        if fastest not in self.labels:
            known = ", ".join(repr(label) for label in self.labels)
            raise ValueError(f"this panel does not compare {fastest!r}: write one of {known}")
        self.prediction = Prediction(fastest, factor)
        return self.prediction

    def run(self, **settings: Any) -> Result:
        """Measure with these settings; a setting left out is the control's first value.

        The prediction made before is used up. Only one panel measures at a time: others wait.

        Raises:
            RuntimeError: this panel is measuring already.
            Cancelled: it was cancelled, by `cancel` in another thread.
            Exception: whatever the experiment raises; `error` tells it, too.
        """
        if not self._busy.acquire(blocking=False):
            raise RuntimeError(f"the panel {self.title!r} is measuring: wait for it, or cancel it")
        try:
            return self._run({**self.settings, **settings})
        except BaseException as error:
            self.error = _words(error)
            raise
        finally:
            self.so_far = None
            self._cancel = threading.Event()  # before another run can begin: it may be cancelled
            self._busy.release()
            self._tell()

    def cancel(self) -> None:
        """Stop the run under way, if there is one, with all processes that it started."""
        if self.running:
            self._cancel.set()

    def _run(self, settings: dict[str, Any]) -> Result:
        self.error = ""
        prediction, self.prediction = self.prediction, None
        beside = self.beside(settings)

        def entry(result: Result) -> Entry:
            known = prediction is not None and prediction.fastest in result.labels
            return Entry(settings, result, prediction if known else None, beside)

        def note(result: Result) -> None:
            self.so_far = entry(result)
            self._tell()

        self._note_progress(0, 1, "waiting for another measurement")
        with one_at_a_time(self._cancel):
            result = self._experiment(
                **settings, progress=self._note_progress, so_far=note, cancel=self._cancel
            )
        self.history.append(entry(result))
        return result

    def _note_progress(self, done: int, total: int, text: str) -> None:
        self.progress = (done, total, text)
        self._tell()

    def _tell(self) -> None:
        for callback in self.on_change:
            callback()

    @property
    def _drawn(self) -> tuple[Result, Prediction | None, Result | None] | None:
        """What the figure shows: a result, a prediction, what was recorded beside it."""
        if self.last is not None:
            return self.last.result, self.last.prediction, self.last.recorded
        beside = self.beside(self.settings)
        if beside is None or beside.result is None:
            return None
        return beside.result, None, None

    def figure(self, dark: bool = False) -> Any:
        """The latest run's figure (`matplotlib.figure.Figure`), with what was recorded; before the
        first run, what was recorded alone, or a note.
        """
        if self._drawn is None:
            return _note(f"{self.title}\nNot run yet: {self._how_to_run()}", dark)
        result, prediction, recorded = self._drawn
        return need("labkit.lab.plots").figure(result, prediction, dark, recorded)

    def alt_text(self) -> str:
        """The figure in words."""
        if self._drawn is None:
            return f"{self.title}: no figure yet. {self.sentence}"
        words: str = need("labkit.lab.plots").alt_text(*self._drawn)
        return words

    def as_text(self) -> str:
        """All that the panel shows, as text."""
        chosen = [f"  {c.label}: {c.words(c.value)}" for c in self.controls]
        parts = [self.title, *chosen]
        if self._drawn is not None:
            parts += ["", self.alt_text()]
        parts += ["", self.sentence]
        if self.error:
            parts += ["", f"The latest run failed: {self.error}"]
        if self.history:
            parts += ["", text_table(self)]
        return "\n".join(parts)

    def __repr__(self) -> str:
        return f"<Panel {self.title!r}: .run() measures, .as_text() tells>"

    def _how_to_run(self) -> str:
        return "press Run, or call run() on this panel in a cell."

    def _repr_mimebundle_(self, **_: Any) -> MimeBundle:
        """The widgets for a live page; for a reader without a kernel the latest figure; constant
        text.
        """
        return live_or_stored(repr(self), self._stored, self._box if self._widgets else None)

    def _stored(self) -> MimeBundle:
        picture_of = need("labkit.lab.plots.pictures").Picture
        picture = picture_of(self.figure, self.alt_text(), repr(self), self.sentence)
        bundle: MimeBundle = picture._repr_mimebundle_()
        return bundle

    def _box(self) -> Any:
        assert self._widgets is not None
        self._view = self._view or self._widgets(self)
        return self._view


@contextmanager
def one_at_a_time(cancel: threading.Event) -> Iterator[None]:
    """While it is active, no other panel measures.

    Raises:
        Cancelled: it was cancelled while another one did.
    """
    while not _turn.acquire(timeout=_LOOK_SECONDS):
        if cancel.is_set():
            raise Cancelled("cancelled while another panel was measuring")
    try:
        yield
    finally:
        _turn.release()


def _words(error: BaseException) -> str:
    if isinstance(error, Cancelled):
        return "Cancelled."
    return f"{type(error).__name__}: {error}"


def _note(text: str, dark: bool) -> Any:
    """A figure that only says something."""
    colours = need("labkit.lab.plots.palette").theme(dark)
    drawn = need("matplotlib.figure", "matplotlib").Figure(figsize=(8.2, 1.2))
    drawn.set_facecolor(colours.paper)
    drawn.text(0.02, 0.5, text, color=colours.ink, va="center", fontsize=11)
    return drawn
