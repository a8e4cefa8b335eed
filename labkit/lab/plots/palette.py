"""The colours of every figure, on a light and on a dark page.

After it: `plots` and `timeline`, which draw with them.

The hues are those of Okabe and Ito (2008, "Color Universal Design"), which people with any of the
common colour deficiencies tell apart. No figure relies on them alone: a marker's shape, a bar's
hatching or a word says the same.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LAYER_STYLES", "Theme", "Style", "layer_style", "theme"]


@dataclass(frozen=True)
class Theme:
    """Colours by what they are for.

    Attributes:
        paper: behind everything.
        ink, muted: text and lines; those that matter less.
        grid: lines that should hardly be seen.
        band: behind every second row.
        data, interval, prediction: dots; the interval of their median; what a learner predicted.
    """

    paper: str
    ink: str
    muted: str
    grid: str
    band: str
    data: str
    interval: str
    prediction: str


_LIGHT = Theme(
    paper="#ffffff",
    ink="#1a1a1a",
    muted="#595959",
    grid="#d9d9d9",
    band="#f4f4f4",
    data="#0072b2",
    interval="#b3d1e6",
    prediction="#b34700",
)
_DARK = Theme(
    paper="#111111",
    ink="#f2f2f2",
    muted="#b8b8b8",
    grid="#3d3d3d",
    band="#1c1c1c",
    data="#56b4e9",
    interval="#27506b",
    prediction="#e69f00",
)


def theme(dark: bool) -> Theme:
    """The colours for a dark page, or for a light one."""
    return _DARK if dark else _LIGHT


@dataclass(frozen=True)
class Style:
    """How the bars of one layer look: a colour (None: that of the page), a hatching, and `ink`,
    which can be read on the colour.
    """

    colour: str | None
    hatch: str = ""
    ink: str = "#000000"


LAYER_STYLES = {
    "start": Style("#bbbbbb", "OO"),
    "sampler": Style("#bbbbbb", "---"),
    "dispatch": Style("#e69f00", "///"),
    "wait": Style(None),
    "receive": Style("#56b4e9", "\\\\\\"),
    "rebuild": Style("#0072b2", "|||", ink="#ffffff"),
    "pin": Style("#f0e442", "\\"),
    "copy": Style("#009e73", "++"),
    "step": Style("#cc79a7", ".."),
    "consumer": Style("#bbbbbb", "/"),
    "resume": Style("#bbbbbb", "+++"),
    "fetch": Style("#009e73"),
    "collate": Style("#cc79a7", "xxx"),
    "pickle": Style("#d55e00", "---"),
    "send": Style("#f0e442", "ooo"),
}
"""By layer. Those that may share a lane differ in their hatching, too."""


def layer_style(layer: str) -> Style:
    """The style of a layer; one that is not listed is grey with stars."""
    return LAYER_STYLES.get(layer, Style("#bbbbbb", "**"))
