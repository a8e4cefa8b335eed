"""A learner's progress as a picture: a row for each notebook, a square for each exercise, a circle
for each question of the quiz; what is passed is filled.

Before it: `Progress`. After it: `plots.pictures`, which brings it into the notebook.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from labkit.lab import need
from labkit.lab.layer_map import NOTEBOOK_LAYERS
from labkit.lab.plots.lettering import DPI, Pen, Type, width_inches
from labkit.lab.plots.palette import Theme, theme
from labkit.lab.plots.pictures import Picture

need("matplotlib")

from matplotlib.axes import Axes  # noqa: E402 (what is missing is named first)
from matplotlib.figure import Figure  # noqa: E402

if TYPE_CHECKING:
    from labkit.lab.learner import Notebook, Progress

__all__ = ["picture"]

_WIDTH, _ROW, _TOP, _BOTTOM = 8.2, 0.3, 0.78, 0.12
_STEP = 0.36  # from one sign to the next
_TITLE, _TEXT = Type(13, 0.25, "bold"), Type(10, 0.2)


def picture(progress: Progress) -> Picture:
    """The figure, with the sentence that tells it in words under it."""
    rows = ". ".join(_words(notebook) for notebook in progress.notebooks)
    return Picture(
        draw=partial(_figure, progress),
        alt="A row for each notebook: a square for each exercise, a circle for each question of "
        f"its quiz; what is passed is filled. {rows}.",
        title="Figure: what is passed, by notebook",
        sentence=progress.sentence,
    )


def _words(notebook: Notebook) -> str:
    exercises, questions = notebook.exercises.values(), notebook.questions.values()
    return (
        f"{notebook.number}: {sum(exercises)} of {len(exercises)} exercises, "
        f"{sum(questions)} of {len(questions)} questions"
    )


def _title(number: str) -> str:
    for name in NOTEBOOK_LAYERS:
        if name.startswith(number):
            return name.replace("_", " ")
    return number


def _figure(progress: Progress, dark: bool) -> Figure:
    colours, books = theme(dark), progress.notebooks
    height = _TOP + _ROW * len(books) + _BOTTOM
    drawn = Figure(figsize=(_WIDTH, height), dpi=DPI, facecolor=colours.paper)
    pen = Pen(drawn)
    left = max([width_inches(_title(book.number), _TEXT) for book in books], default=1.0) + 0.35
    middle = left + _STEP * (0.6 + max([len(book.exercises) for book in books], default=0))
    axes = drawn.add_axes((0.0, 0.0, 1.0, 1.0), facecolor="none")
    axes.set(xlim=(0, _WIDTH), ylim=(height, 0))
    axes.axis("off")
    pen.write(["What is passed"], 0.15, 0.1, _TITLE, colours.ink)
    for x, words in ((left, "exercises"), (middle, "quiz")):
        pen.write([words], x - 0.1, 0.48, _TEXT, colours.muted)
    for row, book in enumerate(books):
        top = _TOP + _ROW * row
        pen.write([_title(book.number)], 0.15, top + 0.05, _TEXT, colours.ink)
        _signs(axes, left, top, "s", list(book.exercises.values()), colours)
        _signs(axes, middle, top, "o", list(book.questions.values()), colours)
        if book.is_done:
            pen.write(["complete"], middle + _STEP * 5.4, top + 0.05, _TEXT, colours.ink)
    return drawn


def _signs(axes: Axes, x: float, top: float, marker: str, done: list[bool], colours: Theme) -> None:
    for number, passed in enumerate(done):
        axes.plot(
            x + _STEP * number,
            top + _ROW / 2,
            marker=marker,
            markersize=11,
            markeredgewidth=1.4,
            markeredgecolor=colours.data,
            markerfacecolor=colours.data if passed else "none",
        )
