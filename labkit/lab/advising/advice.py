"""Advice: findings as text, as figures, as a page of HTML, and in a notebook.

Before it: `findings`, `wording`, `drawing`. After it: the user.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from labkit.lab import MissingPackage, need
from labkit.lab.advising.findings import Findings, Trial
from labkit.lab.advising.layers import layers_of
from labkit.lab.advising.setting import Setting
from labkit.lab.advising.trial_words import effect_of
from labkit.lab.advising.wording import sections
from labkit.lab.explain.wording import machine_words
from labkit.lab.results import Result

__all__ = ["Advice"]

_WIDTH = 96


@dataclass(frozen=True, repr=False)
class Advice:
    """What was found about a dataset and its loader, and what to change.

    In a notebook it shows itself, with figures.

    Attributes:
        findings: all that was measured: every repeat, and the trace.
    """

    findings: Findings

    @property
    def sentences(self) -> list[str]:
        """All that is to be said, without the line of code."""
        return [
            sentence
            for heading, sentences in sections(self.findings)
            for sentence in sentences
            if heading != "Write"
        ]

    @property
    def line(self) -> str:
        """The line of code that makes the advised loader; the present one's if nothing is to be
        changed, and "" if it ended before that was known.
        """
        advised = self.setting
        return "" if advised is None else self.findings.lines[advised]

    @property
    def setting(self) -> Setting | None:
        """The advised setting; None if it ended before that was known."""
        return self.findings.advised

    @property
    def results(self) -> dict[str, Result]:
        """Every repeat of what was tried: "workers", "transport", "start", "all"."""
        return {name: trial.result for name, trial in self.findings.trials.items()}

    @property
    def is_whole(self) -> bool:
        """Whether it came to its end."""
        return not self.findings.stopped

    def as_text(self) -> str:
        """The sentences under their headings, and the line to write."""
        parts = [self._title, machine_words(self.findings.machine)]
        if self.findings.stopped:
            parts += [
                "",
                *textwrap.wrap(f"{self.findings.stopped} This is what was found.", _WIDTH),
            ]
        for heading, sentences in sections(self.findings):
            parts += ["", heading]
            if heading == "Write":
                parts += [f"  {sentence}" for sentence in sentences]
                continue
            for sentence in sentences:
                parts += textwrap.wrap(
                    sentence, _WIDTH, initial_indent="- ", subsequent_indent="  "
                )
        return "\n".join(parts)

    @property
    def _title(self) -> str:
        return f"Advice for loading {self.findings.name}"

    def figure(self, dark: bool = False) -> Any:
        """The last trial that tells something, every repeat, as a `matplotlib.figure.Figure`; if
        none does, the work on a batch by layer.

        Raises:
            ValueError: nothing was measured that would tell anything.
        """
        return self._main_picture().draw(dark)

    def alt_text(self) -> str:
        """The figure in words."""
        words: str = self._main_picture().alt
        return words

    def pictures(self) -> list[Any]:
        """All figures, each a `labkit.lab.plots.pictures.Picture`."""
        return list(self._pictures())

    def _main_picture(self) -> Any:
        if trials := self._telling_trials():
            return need("labkit.lab.plots").show(trials[-1].result)
        for picture in self._pictures():
            return picture
        raise ValueError("nothing was measured that tells anything, so there is nothing to draw")

    def _telling_trials(self) -> list[Trial]:
        """Those with enough repeats: a figure would give weight to what may be chance."""
        trials = self.findings.trials.values()
        return [trial for trial in trials if effect_of(trial).verdict != "unknown"]

    def _pictures(self) -> Iterator[Any]:
        """The layers, the trials that tell something, and the timeline."""
        traced = self.findings.traced
        layers = layers_of(traced) if traced is not None else None
        if layers is not None:
            yield need("labkit.lab.advising.drawing").layers_picture(layers)
        for trial in self._telling_trials():
            if trial.screened is not None:
                yield _screening_picture(trial.screened)
            yield need("labkit.lab.plots").show(trial.result)
        if traced is not None and layers is not None:
            yield need("labkit.lab.timeline").show(traced.trace())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as a page of HTML, with its figures in it; it needs no other file.

        Raises:
            OSError: it cannot be written.
        """
        page = need("labkit.lab.advising.page").page(self)
        Path(path).write_text(page, encoding="utf-8")

    def __repr__(self) -> str:
        return f"<{self._title}: .as_text(), .figure(), .line, .save('report.html')>"

    def __str__(self) -> str:
        return self.as_text()

    def html(self) -> str:
        """What a notebook shows: the sentences, and the figures in its colours."""
        said = need("labkit.lab.advising.page").sections_html(self.findings)
        found = [f"<h3>{escape(self._title)}</h3>", said]
        for picture in self.pictures():
            found.append(f"<div style='margin: 1em 0'>{picture.html}</div>")
        return f'<div style="line-height: 1.4; max-width: 60em">{"".join(found)}</div>'

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """HTML with all of it; a PNG for readers that show none."""
        data: dict[str, Any] = {"text/plain": self.as_text()}
        metadata: dict[str, Any] = {}
        with suppress(MissingPackage, ValueError):
            shown, metadata = self._main_picture()._repr_mimebundle_()
            data = {"text/html": self.html(), "image/png": shown["image/png"], **data}
        return data, metadata


def _screening_picture(screened: Result) -> Any:
    plots = need("labkit.lab.plots")
    return need("labkit.lab.plots.pictures").Picture(
        draw=lambda dark: plots.figure(screened, None, dark),
        alt=plots.alt_text(screened),
        title="Figure: the settings that were screened",
        sentence="Screening: so few repeats pick what is worth measuring, and prove nothing.",
    )
