"""From an opened image to a sample, and from samples to a batch: what a worker does with images.

`Prepare` decodes, makes all images equally large, and changes training images by chance; with torch
alone. The two collate functions build a batch of (image, label) pairs.

Before it: `image_folder`. After it: `pipeline`, and notebook 10.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import labkit
from labkit.lab import need

Image = need("PIL.Image", "Pillow")
ImageOps = need("PIL.ImageOps", "Pillow")

__all__ = [
    "COLLATES",
    "DECODINGS",
    "PIXELS",
    "SIDE",
    "Prepare",
    "as_float",
    "crop_and_flip",
    "decode",
    "stack_pairs",
    "stack_pairs_into_shared",
]

SIDE = 64
"""Height and width of a sample, in pixels."""

DECODINGS = ("full", "draft")
PIXELS = ("float32", "uint8")

_MARGIN = 8  # pixels more than are kept, of which a random crop chooses


@dataclass(frozen=True)
class Prepare:
    """A transform: an image as Pillow has opened it → a sample (3, SIDE, SIDE).

    Attributes:
        decoding: one of `DECODINGS`, as `decode` takes it.
        pixels: "float32": from 0 to 1, converted here; "uint8": from 0 to 255, a quarter of the
            bytes, to be converted where the batch arrives (`as_float`).
        augment: cut out and flip by chance; else the middle is cut out.
    """

    decoding: str = "full"
    pixels: str = "float32"
    augment: bool = True

    def __call__(self, image: Any) -> torch.Tensor:
        decoded = decode(image, SIDE + _MARGIN, draft=self.decoding == "draft")
        if self.augment:
            sample = crop_and_flip(decoded, SIDE)
        else:
            inside = slice(_MARGIN // 2, _MARGIN // 2 + SIDE)
            sample = decoded[:, inside, inside]
        sample = sample.contiguous()  # row by row, as nets expect; the decoder's is pixel by pixel
        return as_float(sample) if self.pixels == "float32" else sample


def decode(image: Any, side: int, draft: bool = False) -> torch.Tensor:
    """The middle of an image, `side` pixels wide and high: uint8 (3, side, side).

    Args:
        image: as Pillow has opened it.
        side: pixels.
        draft: let the JPEG decoder leave out what the size asked for does not need: it gives 1/2,
            1/4 or 1/8 of the size straight away. Of other formats it changes nothing.
    """
    if draft:
        image.draft("RGB", (side, side))
    square = ImageOps.fit(image.convert("RGB"), (side, side), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(square)).permute(2, 0, 1)


def crop_and_flip(image: torch.Tensor, side: int) -> torch.Tensor:
    """A random square of (3, height, width), flipped left to right in half of the cases.

    Its chance is torch's global generator, which each worker seeds for itself.
    """
    height, width = image.shape[1:]
    top = int(torch.randint(height - side + 1, ()))
    left = int(torch.randint(width - side + 1, ()))
    square = image[:, top : top + side, left : left + side]
    return square.flip(2) if torch.rand(()) < 0.5 else square


def as_float(images: torch.Tensor) -> torch.Tensor:
    """Pixels from 0 to 1 as float32; those that are so already stay as they are."""
    return images if images.dtype == torch.float32 else images.to(torch.float32) / 255


Pairs = Sequence[tuple[torch.Tensor, int]]


def stack_pairs(samples: Pairs) -> list[torch.Tensor]:
    """(image, label) pairs → a batch of images and one of labels, in new memory."""
    images, labels = zip(*samples, strict=True)
    return [torch.stack(images), torch.tensor(labels)]


def stack_pairs_into_shared(samples: Pairs) -> list[torch.Tensor]:
    """The same, in labkit's workers in the memory that is sent."""
    images, labels = zip(*samples, strict=True)
    batch = labkit.empty_shared((len(images), *images[0].shape), images[0].dtype)
    torch.stack(images, out=batch)
    return [batch, torch.tensor(labels)]


COLLATES: dict[str, Callable[[Any], Any] | None] = {
    "default": None,
    "naive: torch.stack": stack_pairs,
    "aware: out=empty_shared": stack_pairs_into_shared,
}
"""By the words for it; None for the loader's own."""
