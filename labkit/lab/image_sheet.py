"""A contact sheet: the first images of a folder, each in proportion to its size, with its label.

Before it: `image_folder`. After it: notebook 10.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from labkit.lab import need
from labkit.lab.image_folder import KINDS, ImageFolder
from labkit.lab.plots.lettering import DPI, Pen, Type
from labkit.lab.plots.palette import theme
from labkit.lab.plots.pictures import Picture

need("matplotlib")

from matplotlib.figure import Figure  # noqa: E402 (what is missing is named first)

__all__ = ["show"]

_IN_A_ROW = 4
_CELL, _MARGIN, _TEXT_HEIGHT = 1.0, 0.12, 0.42
_WIDTH = _MARGIN + _IN_A_ROW * (_CELL + 0.3)
_WORDS = Type(8, 0.16)


def show(folder: str | os.PathLike[str], images: int = _IN_A_ROW) -> Picture:
    """The first images, side by side.

    Args:
        folder: as `image_folder.make` makes it.
        images: how many, 1 or more.

    Raises:
        ValueError: fewer than one are asked for.
    """
    if images < 1:
        raise ValueError(f"a sheet shows one image or more, but got images={images!r}")
    dataset = ImageFolder(folder)
    samples = [dataset[i] for i in range(min(images, len(dataset)))]
    said = ", ".join(
        f"{image.width} × {image.height} pixels: {label}, {KINDS[label]}"
        for image, label in samples
    )
    return Picture(
        draw=lambda dark: _figure(samples, dark),
        alt=f"The first {len(samples)} images of a folder, in proportion to their sizes. {said}.",
        title="Figure: the first images, with size and label",
    )


def _figure(samples: list[tuple[Any, int]], dark: bool) -> Figure:
    colours = theme(dark)
    # Pixels, so that the largest image fills its cell.
    inch = max(max(image.size) for image, _ in samples) / _CELL
    tall = max(image.height for image, _ in samples) / inch
    rows = -(-len(samples) // _IN_A_ROW)
    height = rows * (tall + _TEXT_HEIGHT) + _MARGIN
    drawn = Figure(figsize=(_WIDTH, height), dpi=DPI, facecolor=colours.paper)
    pen = Pen(drawn)
    for place, (image, label) in enumerate(samples):
        row, column = divmod(place, _IN_A_ROW)
        left = _MARGIN + column * (_CELL + 0.3)
        bottom = _MARGIN + row * (tall + _TEXT_HEIGHT) + tall
        wide, high = image.width / inch, image.height / inch
        axes = drawn.add_axes(
            (left / _WIDTH, 1 - bottom / height, wide / _WIDTH, high / height), frameon=False
        )
        axes.imshow(np.asarray(image.resize((image.width // 3, image.height // 3))))
        axes.set(xticks=[], yticks=[])
        words = [f"{image.width} × {image.height}", f"{label}: {KINDS[label]}"]
        pen.write(words, left, bottom + 0.04, _WORDS, colours.ink)
    return drawn
