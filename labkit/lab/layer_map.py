"""The map of the layers in a batch's way, with those of a notebook marked: an SVG.

It stands at the top of each notebook, as an `<img>` in its first cell, so that it is there before
anything runs and where no kernel is. `python -m labkit.lab.layer_map notebooks/*.ipynb` draws it
anew in these notebooks.

Text stays text, and the map brings its own paper, so it can be read on light and dark pages. What
is marked is filled, has a sign above it, and is named in words.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path

__all__ = ["LAYERS", "NOTEBOOK_LAYERS", "LayerMap", "layer_map", "refresh"]


@dataclass(frozen=True)
class _Box:
    """Where a layer stands, and what is written in it."""

    left: int
    top: int
    right: int
    bottom: int
    lines: tuple[str, ...]
    dashed: bool = False


_BOXES = {
    "sampler": _Box(20, 48, 96, 100, ("sampler",)),
    "dispatch": _Box(136, 48, 216, 100, ("dispatch",)),
    "index queue": _Box(126, 122, 226, 152, ("index queue",)),
    "worker": _Box(8, 184, 476, 268, ()),
    "dataset": _Box(20, 204, 96, 256, ("dataset",)),
    "fetch": _Box(136, 204, 206, 256, ("fetch",)),
    "collate": _Box(254, 204, 322, 256, ("collate",)),
    "feeder": _Box(358, 204, 464, 256, ("feeder:", "pickle, send")),
    "result queue": _Box(298, 122, 400, 152, ("result queue",)),
    "shared memory": _Box(412, 122, 534, 152, ("shared memory",)),
    "receive": _Box(358, 48, 464, 100, ("receive,", "rebuild")),
    "reorder buffer": _Box(484, 48, 558, 100, ("reorder", "buffer")),
    "pin": _Box(578, 48, 626, 100, ("pin",), dashed=True),
    "preloader": _Box(644, 48, 722, 100, ("preloader",), dashed=True),
    "training loop": _Box(740, 48, 806, 100, ("your", "training", "loop")),
}

LAYERS = tuple(_BOXES)
"""What can be marked, in the order in which a batch meets it. "worker" is the process, with its
start."""

NOTEBOOK_LAYERS: dict[str, tuple[str, ...]] = {
    "00_start_here": (),
    "01_from_dataset_to_batch": ("sampler", "dataset", "fetch", "collate"),
    "02_start_methods": ("worker",),
    "03_the_worker_loop": ("dispatch", "index queue", "fetch", "reorder buffer"),
    "04_what_crosses_the_queue": ("feeder", "result queue", "receive"),
    "05_shared_memory": ("shared memory",),
    "06_collate_into_shared_memory": ("collate", "shared memory"),
    "07_threads_and_the_gil": ("fetch", "feeder"),
    "08_pinned_memory_and_streams": ("pin",),
    "09_the_preloader": ("preloader",),
    "10_a_real_pipeline": tuple(layer for layer in LAYERS if layer != "worker"),
    "11_when_it_breaks": ("worker", "feeder", "shared memory", "receive"),
    "12_many_machines": ("sampler", "training loop"),
}
"""By notebook, the layers that it is about; the first one only reads the map."""


def layer_map(here: str | Sequence[str] = ()) -> LayerMap:
    """The map, with some layers marked.

    Args:
        here: one or more of `LAYERS`.

    Raises:
        ValueError: there is no such layer.
    """
    marked = (here,) if isinstance(here, str) else tuple(here)
    for layer in marked:
        if layer not in _BOXES:
            raise ValueError(f"no layer {layer!r} on the map: write one of {', '.join(LAYERS)}")
    return LayerMap(tuple(layer for layer in LAYERS if layer in marked))


@dataclass(frozen=True)
class LayerMap:
    """The map of the layers, for a cell to end in or, as a tag, for a markdown cell.

    Attributes:
        here: the layers that are marked.
    """

    here: tuple[str, ...] = ()

    @property
    def alt(self) -> str:
        """What the map shows, in words."""
        return f"{_ALT} {_here_in_words(self.here)}"

    @cached_property
    def svg(self) -> str:
        """The map as an SVG document, 820 pixels wide."""
        parts = [
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 820 294" width="820" '
            'height="294" font-family="Helvetica, Arial, sans-serif" role="img">'
            f"<title>The way of a batch</title><desc>{escape(self.alt)}</desc>",
            f'<rect x="1" y="1" width="818" height="292" rx="10" fill="{_PAPER}" '
            'stroke="#c9c5ba"/>',
            _frames("worker" in self.here),
            *map(_arrow, _ARROWS),
            *(_text(x, y, words, 11, "middle") for x, y, words in _FLOWS),
            *(_box(layer, layer in self.here) for layer in LAYERS if layer != "worker"),
            *_key(self.here),
            "</svg>",
        ]
        return "".join(parts)

    def img(self) -> str:
        """The map as an `<img>` tag with alt text, which needs no file and no kernel."""
        data = base64.b64encode(self.svg.encode()).decode()
        source = f"data:image/svg+xml;base64,{data}"
        return f'<img alt="{escape(self.alt)}" width="820" src="{source}">'

    def _repr_html_(self) -> str:
        return self.img()

    def _repr_svg_(self) -> tuple[str, dict[str, str]]:
        return self.svg, {"alt": self.alt}


def refresh(notebook: Path) -> bool:
    """Draw the map in this notebook anew; all else in the file stays as it is, to the byte.

    Returns:
        Whether the file was changed.

    Raises:
        ValueError: no layers are known for a notebook of this name, or it has no map.
    """
    if notebook.stem not in NOTEBOOK_LAYERS:
        raise ValueError(f"{notebook.name} is not in NOTEBOOK_LAYERS: write down its layers there")
    new = layer_map(NOTEBOOK_LAYERS[notebook.stem]).img()
    text = notebook.read_text(encoding="utf-8")
    for cell in json.loads(text)["cells"]:
        old = _TAG.search("".join(cell["source"]))
        if old and cell["cell_type"] == "markdown":
            changed = text.replace(_in_json(old[0]), _in_json(new))
            notebook.write_text(changed, encoding="utf-8")
            return changed != text
    raise ValueError(f"{notebook.name} has no map: put this into its first cell:\n{new}")


_TAG = re.compile(r'<img alt="Map of the layers[^>]*>')


def _in_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


# How it looks

_PAPER, _INK, _MUTED = "#fbfaf6", "#1c2733", "#5a6672"
_MARK, _FRAME, _FRAME_HERE = "#1f5fa8", "#e9eef5", "#cfe0f5"

_ALT = (
    "Map of the layers in a batch's way. In the main process: the sampler gives indices to "
    "dispatch. Lists of indices go through the index queue to a worker process: fetch asks the "
    "dataset for samples, collate makes a batch of them, the feeder pickles and sends it. Its "
    "message goes through the result queue, its bytes lie in shared memory. In the main process "
    "again: receive and rebuild, reorder buffer, pin, preloader, your training loop. Pin and "
    "preloader are dashed: they can be left out."
)

_ARROWS = (  # from (x, y) to (x, y); all are level or upright
    (96, 74, 136, 74),
    (176, 100, 176, 122),
    (176, 152, 176, 204),
    (96, 238, 136, 238),
    (136, 222, 96, 222),
    (206, 230, 254, 230),
    (322, 230, 358, 230),
    (384, 204, 384, 152),
    (384, 122, 384, 100),
    (438, 204, 438, 152),
    (438, 122, 438, 100),
    (464, 74, 484, 74),
    (558, 74, 578, 74),
    (626, 74, 644, 74),
    (722, 74, 740, 74),
)
_FLOWS = (
    (116, 66, "indices"),
    (230, 222, "samples"),
    (340, 222, "batch"),
    (116, 216, "index"),
    (116, 251, "sample"),
)


def _frames(worker_here: bool) -> str:
    fill, stroke, width = (_FRAME_HERE, _MARK, 3) if worker_here else (_FRAME, _MUTED, 1)
    main = (
        f'<rect x="8" y="28" width="804" height="82" rx="8" fill="{_FRAME}" stroke="{_MUTED}"/>'
        + _text(16, 21, "main process", 12)
    )
    worker = (
        f'<rect x="8" y="184" width="468" height="84" rx="8" fill="{fill}" stroke="{stroke}" '
        f'stroke-width="{width}"/>'
    )
    words = "worker process, one of num_workers"
    if worker_here:
        return main + worker + _sign(16, 274) + _text(32, 283, words, 12, weight=700)
    return main + worker + _text(16, 283, words, 12)


def _box(layer: str, here: bool) -> str:
    box = _BOXES[layer]
    fill, ink = (_MARK, "#ffffff") if here else ("#ffffff", _INK)
    dash = ' stroke-dasharray="5 4"' if box.dashed else ""
    drawn = (
        f'<rect x="{box.left}" y="{box.top}" width="{box.right - box.left}" '
        f'height="{box.bottom - box.top}" rx="6" fill="{fill}" '
        f'stroke="{_INK}" stroke-width="{2.4 if here else 1.3}"{dash}/>'
    )
    middle = (box.top + box.bottom) / 2 + 4.5 - 8 * (len(box.lines) - 1)
    for i, line in enumerate(box.lines):
        x = (box.left + box.right) / 2
        drawn += _text(x, middle + 16 * i, line, 13, "middle", ink, 700 if here else 400)
    return drawn + (_sign(box.left + 6, box.top - 11) if here else "")


def _sign(x: float, y: float) -> str:
    """A triangle that points down, the sign of what is marked."""
    path = f"M{x} {y}h11l-5.5 8z"
    return f'<path d="{path}" fill="{_MARK}" stroke="{_INK}" stroke-width="0.8"/>'


def _arrow(ends: tuple[int, int, int, int]) -> str:
    x, y, to_x, to_y = ends
    right, down = (to_x > x) - (to_x < x), (to_y > y) - (to_y < y)
    base_x, base_y = to_x - 7 * right, to_y - 7 * down
    head = (
        f"M{to_x} {to_y}L{base_x + 4 * down} {base_y + 4 * right}"
        f"L{base_x - 4 * down} {base_y - 4 * right}z"
    )
    line = f'<path d="M{x} {y}L{base_x} {base_y}" stroke="{_INK}" stroke-width="1.5"/>'
    return f'{line}<path d="{head}" fill="{_INK}"/>'


def _key(here: Sequence[str]) -> Iterable[str]:
    """What the signs mean, and in words what is marked."""
    y = 202
    if here:
        yield _sign(500, y - 9)
        for line in _lines(_here_in_words(here), 38):
            yield _text(518, y, line, 13, weight=700)
            y += 18
    yield f'<path d="M500 {y - 4}h13" stroke="{_INK}" stroke-width="1.5" stroke-dasharray="4 3"/>'
    yield _text(518, y, "dashed: a loader can do without it", 12)


def _here_in_words(here: Sequence[str]) -> str:
    if not here:
        return "No layer is marked."
    if set(here) >= set(LAYERS) - {"worker"}:
        return "You are here: the whole way."
    return f"You are here: {', '.join(here)}."


def _lines(text: str, most: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) > most:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _text(
    x: float,
    y: float,
    words: str,
    size: int,
    anchor: str = "start",
    fill: str = _INK,
    weight: int = 400,
) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="{anchor}" fill="{fill}">{escape(words)}</text>'
    )


def main(notebooks: Sequence[str]) -> None:
    """Draw the map anew in each of these files, and say where it was not up to date."""
    for name in notebooks:
        print(name, "drawn anew" if refresh(Path(name)) else "is up to date")


if __name__ == "__main__":
    main(sys.argv[1:])
