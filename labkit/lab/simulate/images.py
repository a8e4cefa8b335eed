"""The costs that are simulated with where nobody measured any: of the lab's own images.

They lie beside this module as JSON, with the machine that they are from. This machine's come with

    python -m labkit.lab.simulate fit

Before it: `measuring`. After it: the panel `what_if`.
"""

from __future__ import annotations

from pathlib import Path

from labkit.lab.decoding import JpegImages
from labkit.lab.simulate.measured import Measured
from labkit.lab.simulate.measuring import measure

__all__ = ["FILE", "images", "measure_images"]

FILE = Path(__file__).with_name("images.json")

_BATCH_SIZE = 8


def images() -> Measured:
    """What loading the lab's images cost on the machine where that was recorded."""
    return Measured.read(FILE)


def measure_images(seconds: float = 9.0) -> Measured:
    """What it costs here."""
    what = "the lab's images: JPEG, 224 × 224, decoded with Pillow"
    return measure(JpegImages(4096), batch_size=_BATCH_SIZE, seconds=seconds, what=what)
