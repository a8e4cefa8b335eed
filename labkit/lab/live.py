"""What a notebook shows of an object that has widgets: these on a live page, else what is stored.

Before it: the panels and the view of the arena, whose `_repr_mimebundle_` this is. After it:
Jupyter, which takes of it what a page can show.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from labkit.lab import MissingPackage

__all__ = ["MimeBundle", "live_or_stored"]

MimeBundle = tuple[dict[str, Any], dict[str, Any]]
"""Data and metadata, by MIME type."""

_WIDGET = "application/vnd.jupyter.widget-view+json"


def live_or_stored(
    text: str, stored: Callable[[], MimeBundle] | None, widget: Callable[[], Any] | None
) -> MimeBundle:
    """The widget's view beside what a reader without a kernel sees; each if its package is there.

    Args:
        text: the same always, so that runs can be compared.
        stored: gives the figure or the HTML; None for the text alone.
        widget: gives the widget; None for an object that has none.
    """
    data: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    if stored is not None:
        with suppress(MissingPackage):
            data, metadata = stored()
    data["text/plain"] = text
    if widget is not None:
        with suppress(MissingPackage):
            data[_WIDGET] = widget()._repr_mimebundle_()[_WIDGET]
    return data, metadata
