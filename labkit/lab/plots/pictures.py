"""How a figure reaches a notebook: as PNG in an `<img>` with alt text, in the page's colours.

Before it: `plots` and `timeline`, which draw. After it: the notebook's output, or a widget of
`panels`. Figures are matplotlib's own, made without pyplot, so no state is left behind.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any

from labkit.lab import need
from labkit.lab.code_spans import with_code
from labkit.lab.plots.lettering import DPI

need("matplotlib")

from matplotlib.figure import Figure  # noqa: E402 (what is missing is named first)
from PIL import Image  # noqa: E402 (matplotlib needs it too)

__all__ = ["Picture", "css_width", "img", "png", "themed"]

_CSS_DPI = 100
"""On the page an inch of the figure takes so many pixels, of which a fine screen has more."""

_COLOURS = 64
"""Enough for flat colours and the edges of letters; the file is less than a third as large."""


def png(figure: Figure) -> bytes:
    """The figure as a PNG file: the same bytes for the same figure."""
    drawn, file = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="rgba", dpi=DPI, facecolor=figure.get_facecolor())
    width, height = (int(inches * DPI) for inches in figure.get_size_inches())
    image = Image.frombytes("RGBA", (width, height), drawn.getvalue())
    few = image.convert("RGB").quantize(
        _COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE
    )
    few.save(file, "PNG")
    return file.getvalue()


def img(figure: Figure, alt: str) -> str:
    """The figure as an `<img>` tag that needs no file.

    Args:
        figure: what to show.
        alt: what it shows, in words; escaped here.

    Raises:
        ValueError: there is no alt text.
    """
    return _tag(png(figure), alt, css_width(figure))


def _tag(data: bytes, alt: str, width: int, attributes: str = "", style: str = "") -> str:
    if not alt.strip():
        raise ValueError("a figure needs alt text: say in words what it shows")
    return (
        f'<img alt="{escape(alt)}" width="{width}"{attributes} '
        f'style="{style}max-width: 100%; height: auto" '
        f'src="data:image/png;base64,{base64.b64encode(data).decode()}">'
    )


def css_width(figure: Figure) -> int:
    """How many CSS pixels wide it is shown where there is room."""
    return round(figure.get_figwidth() * _CSS_DPI)


_FOLLOW_THEME = """<style>
[data-jp-theme-light="false"] .labkit-on-light {display: none}
[data-jp-theme-light="false"] .labkit-on-dark {display: inline !important}
</style>"""


def themed(draw: Callable[[bool], Figure], alt: str) -> str:
    """HTML that shows the figure in the colours of JupyterLab's theme, and follows its switch.

    Where the page is not JupyterLab's, or styles are not let through, the light one stands.

    Args:
        draw: makes the figure, told whether the page is dark.
        alt: what it shows, in words.

    Raises:
        ValueError: there is no alt text.
    """
    light, dark = draw(False), draw(True)
    return _either(png(light), png(dark), alt, css_width(light))


def _either(light: bytes, dark: bytes, alt: str, width: int) -> str:
    # Where the page's style is not let through, as in a notebook not trusted yet, the tag's own is.
    return (
        _FOLLOW_THEME
        + _tag(light, alt, width, ' class="labkit-on-light"')
        + _tag(dark, alt, width, ' class="labkit-on-dark"', "display: none; ")
    )


@dataclass(frozen=True)
class Picture:
    """A figure that a notebook shows, with the sentence under it, when a cell ends in it.

    Attributes:
        draw: makes the figure, told whether the page is dark.
        alt: what it shows, in words.
        title: a line for readers of plain text; without numbers that another run would change.
        sentence: what stands under it.
    """

    draw: Callable[[bool], Figure]
    alt: str
    title: str
    sentence: str = ""

    @cached_property
    def figure(self) -> Figure:
        """The figure, for a light page."""
        return self.draw(False)

    @cached_property
    def png(self) -> bytes:
        """The figure for a light page, as a PNG file."""
        return png(self.figure)

    @property
    def html(self) -> str:
        """The figure in the page's colours, and the sentence: for a notebook, or a widget."""
        width = css_width(self.figure)
        shown = _either(self.png, png(self.draw(True)), self.alt, width)
        under = f"<figcaption>{with_code(self.sentence)}</figcaption>" if self.sentence else ""
        return f'<figure style="margin: 0">{shown}{under}</figure>'

    def __repr__(self) -> str:
        return self.title

    def __str__(self) -> str:
        return f"{self.title}\n{self.sentence}" if self.sentence else self.title

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """HTML; a PNG for readers that show none; text that is the same in every run."""
        data = {
            "text/html": self.html,
            "image/png": base64.b64encode(self.png).decode(),
            "text/plain": self.title,
        }
        return data, {"image/png": {"alt": self.alt, "width": css_width(self.figure)}}
