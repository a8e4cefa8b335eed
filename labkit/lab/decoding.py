"""Two datasets whose samples take work: JPEG images that Pillow decodes, text that Python parses.

Both are made in memory, the same on every machine. What differs is where the work is done: Pillow's
decoder is C code that gives up the interpreter's lock (GIL); parsing is Python code that holds it.

After it: `experiments.beside` and `experiments.threads_or_processes`. Mirrors:
torch.utils.data.Dataset.
"""

from __future__ import annotations

import io

import numpy as np
import torch
from torch.utils.data import Dataset

from labkit.lab import need

Image = need("PIL.Image", "Pillow")

__all__ = ["JpegImages", "TextRecords", "decoded", "jpeg_bytes", "parsed"]

_DISTINCT = 8  # samples that are made and held


class JpegImages(Dataset[torch.Tensor]):
    """Photograph-like images, decoded for each sample: uint8 (side, side, 3).

    Args:
        length: samples; of 8 files, given round and round.
        side: pixels of each side.
    """

    def __init__(self, length: int, side: int = 224) -> None:
        self.length = length
        self.files = [jpeg_bytes(side, seed) for seed in range(min(length, _DISTINCT))]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return decoded(self.files[_checked(index, self.length) % len(self.files)])


class TextRecords(Dataset[torch.Tensor]):
    """Lines of whole numbers, parsed for each sample: float32 (values,).

    Args:
        length: samples; of 8 lines, given round and round.
        values: of each line.
    """

    def __init__(self, length: int, values: int = 1500) -> None:
        self.length = length
        self.lines = [
            ",".join(str((seed + i) % 1000) for i in range(values))
            for seed in range(min(length, _DISTINCT))
        ]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return parsed(self.lines[_checked(index, self.length) % len(self.lines)])


def jpeg_bytes(side: int, seed: int = 0) -> bytes:
    """A JPEG file of `side` × `side` pixels: coarse noise, enlarged smoothly."""
    coarse = np.random.default_rng(seed).integers(0, 256, (max(1, side // 16),) * 2 + (3,))
    file = io.BytesIO()
    image = Image.fromarray(coarse.astype(np.uint8)).resize((side, side), Image.Resampling.BICUBIC)
    image.save(file, "JPEG", quality=90)
    return file.getvalue()


def decoded(file: bytes) -> torch.Tensor:
    """The image in a JPEG file: uint8 (height, width, 3)."""
    return torch.from_numpy(np.array(Image.open(io.BytesIO(file))))


def parsed(line: str) -> torch.Tensor:
    """The numbers of a line, as float32; taken apart character by character, as no library does."""
    numbers, number = [], 0
    for character in line:
        if character == ",":
            numbers.append(number)
            number = 0
        else:
            number = 10 * number + ord(character) - 48
    numbers.append(number)
    return torch.tensor(numbers, dtype=torch.float32)


def _checked(index: int, length: int) -> int:
    if not 0 <= index < length:
        raise IndexError(f"there is no sample {index}: there are {length}, from 0 on")
    return index
