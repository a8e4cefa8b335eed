"""A folder of images on disk: JPEG files of several sizes, and a table of their labels.

`make` draws it, the same from the same seed: level stripes, upright stripes, or rings, each mostly
in a colour of its own, under coarse noise, so that a small net soon tells them apart. `ImageFolder`
reads it.

After it: `image_samples`, which makes tensors of the images; `pipeline`, and notebook 10. Mirrors:
the dataset of an annotations file and a folder in PyTorch's tutorials.
"""

from __future__ import annotations

import csv
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from labkit.lab import need

Image = need("PIL.Image", "Pillow")

__all__ = ["KINDS", "SIZES", "TABLE", "ImageFolder", "example", "make"]

KINDS = ("level", "upright", "rings")
"""What is drawn; a label is the place in here."""

SIZES = ((400, 300), (300, 400), (512, 384), (640, 480))
"""Width and height of the images, in pixels; the images have them in turn."""

TABLE = "labels.csv"
"""The table's name in its folder: a header, then for each image its file's name and its label."""

_QUALITY = 90
_COARSE = 4  # pixels: drawn so much smaller and enlarged, which is quicker and leaves no edges
_NOISE_PIXELS, _NOISE = 16, 0.35
_COLOURS = ((70, 110, 200), (200, 100, 70), (110, 180, 90))  # of each kind, before chance
_CHANCE = 60  # up or down, of a colour's 255


class ImageFolder(Dataset[tuple[Any, Any]]):
    """Images and their labels, opened when they are asked for.

    Args:
        folder: where the files and the table are.
        transform: called with the image as Pillow has opened it, before it is decoded, so that it
            may choose how (`PIL.Image.Image.draft`); returns the sample. None: the decoded image.
        target_transform: called with the label, a whole number. None: the label itself.

    Raises:
        FileNotFoundError: there is no table; or, when a sample is asked for, no such image.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[int], Any] | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.transform, self.target_transform = transform, target_transform
        table = self.folder / TABLE
        if not table.exists():
            raise FileNotFoundError(
                f"no {TABLE} in {self.folder}: labkit.lab.image_folder.make(folder) makes a folder "
                "with images and their table"
            )
        with table.open(newline="") as file:
            rows = list(csv.DictReader(file))
        self.files = np.array([row["file"] for row in rows], dtype=np.str_)
        self.labels = np.array([row["label"] for row in rows], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        label = int(self.labels[index])
        with Image.open(self.folder / str(self.files[index])) as image:
            if self.transform is None:
                image.load()
                sample = image
            else:
                sample = self.transform(image)
        return sample, label if self.target_transform is None else self.target_transform(label)


def make(folder: str | os.PathLike[str], images: int = 160, seed: int = 0) -> Path:
    """Draw the images and write their table; the folder is made if it is not there.

    Args:
        folder: where; images of an earlier call are written over.
        images: how many, of each kind equally many, or one more.
        seed: of all chance in them.

    Returns:
        The folder.

    Raises:
        ValueError: no image is asked for.
    """
    if images < 1:
        raise ValueError(f"a folder has one image or more, but got images={images!r}")
    into = Path(folder)
    into.mkdir(parents=True, exist_ok=True)
    rows = list(_drawn(into, images, np.random.default_rng(seed)))
    with (into / TABLE).open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["file", "label"])
        table.writerows(rows)
    return into


def example(images: int = 160) -> Path:
    """A folder among this user's temporary files, drawn when it is first asked for.

    It stays there for the next process, which may be killed before it could tidy up. Drawn anew is
    what a cleaner of temporary files has taken parts of, or what another version drew.
    """
    drawing = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    mine = getattr(os, "getuid", lambda: 0)()
    folder = Path(tempfile.gettempdir()) / f"labkit-images-{mine}-{drawing}-{images}"
    if not _is_whole(folder, images):
        draft = Path(tempfile.mkdtemp(prefix="labkit-images-draft-"))  # nobody else may write there
        try:
            make(draft, images)
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):  # another process was faster
                draft.rename(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    if not _is_whole(folder, images):
        raise FileExistsError(
            f"{folder} is in the way and cannot be replaced: remove it, or make images elsewhere "
            "with labkit.lab.image_folder.make(folder)"
        )
    return folder


def _is_whole(folder: Path, images: int) -> bool:
    """Whether it is there, this user's own and complete."""
    try:
        owner = folder.lstat().st_uid
        files = sum(1 for _ in folder.iterdir())
    except OSError:
        return False
    return owner == getattr(os, "getuid", lambda: owner)() and files == images + 1


def _drawn(folder: Path, images: int, chance: np.random.Generator) -> Iterator[tuple[str, int]]:
    labels = chance.permutation(np.arange(images) % len(KINDS))
    for number, label in enumerate(labels.tolist()):
        file = f"{number:04}.jpg"
        size = SIZES[number % len(SIZES)]
        _picture(size, label, chance).save(folder / file, "JPEG", quality=_QUALITY)
        yield file, label


def _picture(size: tuple[int, int], label: int, chance: np.random.Generator) -> Any:
    """An image of this width and height: a wave from one colour to another, under noise."""
    width, height = (pixels // _COARSE for pixels in size)
    period = min(width, height) / chance.uniform(4, 9)
    wave = 0.5 + 0.5 * np.sin(
        2 * np.pi * (_distance(width, height, label, chance) / period + chance.random())
    )
    bright = np.array(_COLOURS[label]) + chance.uniform(-_CHANCE, _CHANCE, 3)
    dark = chance.uniform(0, 90, 3)
    colours = dark + wave[..., None] * (bright - dark)  # (height, width, 3)
    coarse = _enlarged(
        chance.integers(0, 256, (*(n * _COARSE // _NOISE_PIXELS for n in (height, width)), 3)),
        (width, height),
    )
    return _enlarged(((1 - _NOISE) * colours + _NOISE * np.asarray(coarse)).clip(0, 255), size)


def _distance(
    width: int, height: int, label: int, chance: np.random.Generator
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Along which the wave goes: (height, width), in pixels."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    if KINDS[label] == "rings":
        middle_x, middle_y = chance.uniform(0.3, 0.7, 2) * (width, height)
        found: np.ndarray[Any, np.dtype[np.float64]] = np.hypot(x - middle_x, y - middle_y)
        return found
    angle = chance.uniform(-0.15, 0.15) + (np.pi / 2 if KINDS[label] == "level" else 0)
    along: np.ndarray[Any, np.dtype[np.float64]] = x * np.cos(angle) + y * np.sin(angle)
    return along


def _enlarged(pixels: np.ndarray[Any, Any], size: tuple[int, int]) -> Any:
    image = Image.fromarray(pixels.astype(np.uint8))
    return image.resize(size, Image.Resampling.BICUBIC)
