"""What if there were more cores, workers, devices: a panel that simulates at each move of a slider.

    labkit.lab.panels.what_if()

It computes and measures nothing, so it answers at once. What it shows is predicted, and says so.

Before it: `labkit.lab.simulate`. After it: `what_if_sliders`, its widgets; the package.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

from labkit.lab import need
from labkit.lab.explain.wording import duration, machine_words, number
from labkit.lab.live import MimeBundle, live_or_stored
from labkit.lab.machine import cores
from labkit.lab.panels.controls import Control
from labkit.lab.simulate import Measured, Prediction, predict
from labkit.lab.simulate.images import images

__all__ = ["WhatIf", "what_if"]

_TITLE = "Try a machine that you do not have"
_CORES = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192)
_WORKERS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_PREFETCH = (1, 2, 3, 4, 8)
_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_STEPS = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
_GPUS = (1, 2, 4, 8)
_BYTES_PER_SECOND = (1e9, 3e9, 6e9, 12e9, 25e9, 50e9, 100e9, 200e9, 400e9)


def what_if(measured: Measured | None = None, **defaults: Any) -> WhatIf:
    """A panel that predicts how fast a loader is on another machine, and what holds it back.

    Args:
        measured: what the layers cost (`labkit.lab.simulate.measure`, or `measured` of a trace);
            None for the lab's images, as they were recorded.
        **defaults: what the sliders say at first: arguments of `labkit.lab.simulate.predict`.

    Raises:
        TypeError: there is no such argument, or `measured` is something else.
        ValueError: an argument is out of its range.
    """
    if not isinstance(measured, Measured | None):
        raise TypeError(
            f"what_if takes the costs of layers, but got a {type(measured).__name__}: of a trace, "
            "they are labkit.lab.simulate.measured(trace)"
        )
    return WhatIf(images() if measured is None else measured, **defaults)


class WhatIf:
    """Settings, and what is predicted for them.

    Attributes:
        controls: what can be chosen.
        last: what was predicted last.
        kept: what was predicted and kept to be compared, with its settings.
        on_change: called after each prediction, and when one is kept.
    """

    title = _TITLE

    def __init__(self, measured: Measured, **defaults: Any) -> None:
        self.measured = measured
        self.controls = _controls(measured, defaults)
        self.kept: list[tuple[dict[str, Any], Prediction]] = []
        self.on_change: list[Callable[[], None]] = []
        self._chosen = self.settings
        self._view: Any = None
        self.last = self.look()

    @property
    def settings(self) -> dict[str, Any]:
        """What the controls say at first."""
        return {control.argument: control.value for control in self.controls}

    def look(self, **settings: Any) -> Prediction:
        """Predict for these settings; one left out is what its control says at first.

        Raises:
            TypeError, ValueError: there is no such setting, or it is out of its range.
        """
        chosen = {**self.settings, **settings}
        self.last = predict(self.measured, **chosen)
        self._chosen = chosen
        self._tell()
        return self.last

    def run(self, **settings: Any) -> Prediction:
        """As `look`, and keep what is predicted, as the button does."""
        self.look(**settings)
        self.keep()
        return self.last

    def keep(self) -> None:
        """Keep the last prediction, to compare others with it."""
        self.kept.append((self._chosen, self.last))
        self._tell()

    def _tell(self) -> None:
        for callback in self.on_change:
            callback()

    @property
    def sentence(self) -> str:
        """What is predicted, what holds it back, what would be next."""
        return self.last.sentence

    @property
    def provenance(self) -> str:
        """Whose costs it predicts with."""
        found = self.measured
        where = f", measured on: {machine_words(found.machine)}" if found.machine else ""
        date = str(found.machine.get("date", "")).partition("T")[0]
        when = f", {date}" if date else ""
        return " ".join([f"With the costs of {found.what}{where}{when}.", *found.notes])

    def picture(self) -> Any:
        """The predicted timeline, as a `labkit.lab.plots.pictures.Picture`."""
        return self.last.picture()

    def figure(self, dark: bool = False) -> Any:
        """The predicted timeline, as a `matplotlib.figure.Figure`."""
        return self.picture().draw(dark)

    def alt_text(self) -> str:
        """The figure in words."""
        words: str = self.picture().alt
        return words

    def words(self, settings: Mapping[str, Any]) -> list[str]:
        """The settings as the learner reads them."""
        return [f"{c.label}: {c.words(settings[c.argument])}" for c in self.controls]

    def rows(self) -> list[list[str]]:
        """What was kept, as a table, the first row being its heading; nothing if nothing was."""
        if not self.kept:
            return []
        differ = [
            control
            for control in self.controls
            if len({repr(settings[control.argument]) for settings, _ in self.kept}) > 1
        ]
        heading = ["kept, no.", *[control.label for control in differ]]
        found = [[*heading, "samples/s, predicted", "device busy", "held back by"]]
        for count, (settings, prediction) in enumerate(self.kept, 1):
            chosen = [control.words(settings[control.argument]) for control in differ]
            busy = f"{prediction.device_busy:.0%}"
            rate = number(prediction.samples_per_second)
            found.append([str(count), *chosen, rate, busy, prediction.bounds[0].part])
        return found

    def as_text(self) -> str:
        """All that the panel shows, as text."""
        parts = [self.title, *[f"  {line}" for line in self.words(self._chosen)], "", self.sentence]
        parts += ["", self.alt_text(), "", self.provenance]
        rows = self.rows()
        for row in rows[1:]:
            parts.append("; ".join(f"{a}: {b}" for a, b in zip(rows[0], row, strict=True)))
        return "\n".join(parts)

    def __repr__(self) -> str:
        return f"<WhatIf {self.title!r}: .run() predicts, .as_text() tells>"

    def _repr_mimebundle_(self, **_: Any) -> MimeBundle:
        """The sliders for a live page, else the figure; the text is the same always."""
        return live_or_stored(repr(self), lambda: self.picture()._repr_mimebundle_(), self._sliders)

    def _sliders(self) -> Any:
        self._view = self._view or need("labkit.lab.panels.what_if_sliders").Sliders(self)
        return self._view.box


def _controls(measured: Measured, defaults: Mapping[str, Any]) -> list[Control]:
    speeds = {"no limit": None, **{f"{s / 1e9:g} GB/s": s for s in _BYTES_PER_SECOND}}
    links = {"no copy" if s is None else w: s for w, s in speeds.items()}
    usual: dict[str, tuple[str, dict[str, Any], Any]] = {
        "cores": ("Cores", _numbers(_CORES), cores()),
        "gpus": ("Devices", _numbers(_GPUS), 1),
        "num_workers": ("Workers a device", _numbers(_WORKERS), 2),
        "prefetch_factor": ("Prefetch factor", _numbers(_PREFETCH), 2),
        "batch_size": ("Batch size", _numbers(_BATCH_SIZES), 32),
        "step_seconds": ("Step", {_step_words(s): s for s in _STEPS}, 0.02),
        "link_bytes_per_second": ("Link to the device", links, None),
        "memory_bytes_per_second": ("Host memory", speeds, None),
        "preloader": ("Preloader", {"no": False, "yes": True}, False),
    }
    unknown = set(defaults) - set(usual)
    if unknown:
        raise TypeError(f"what_if has no {', '.join(sorted(unknown))}: it has {', '.join(usual)}")
    return [
        _control(argument, label, options, defaults.get(argument, value))
        for argument, (label, options, value) in usual.items()
    ]


def _control(argument: str, label: str, options: dict[str, Any], value: Any) -> Control:
    """With the value among the options, in its place."""
    if value not in options.values():
        if not isinstance(value, Real) or not math.isfinite(value):
            raise ValueError(f"{argument} is a number, but got {value!r}")
        words = _step_words(float(value)) if argument == "step_seconds" else f"{value:g}"
        if argument.endswith("per_second"):
            words = f"{value / 1e9:g} GB/s"
        pairs = sorted([*options.items(), (words, value)], key=lambda item: item[1] or 0)
        options = dict(pairs)
    return Control(argument, label, options, value)


def _numbers(values: tuple[int, ...]) -> dict[str, Any]:
    return {str(value): value for value in values}


def _step_words(seconds: float) -> str:
    return duration(seconds).replace(".00", "").replace(".0 ", " ") if seconds else "none"
