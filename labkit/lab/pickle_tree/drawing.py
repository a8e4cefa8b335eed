"""Trees of messages as a figure: a line a part, its bytes at the right, memory and handles marked.

Before it: `reading`. After it: `plots.pictures`, which brings the figure into a notebook.
"""

from __future__ import annotations

from collections.abc import Mapping

from labkit.lab import need
from labkit.lab.pickle_tree.node import Node, Sign
from labkit.lab.pickle_tree.reading import read
from labkit.lab.plots.lettering import DPI, Pen, Type, shortened, width_inches, wrapped
from labkit.lab.plots.palette import Theme, theme
from labkit.lab.plots.pictures import Picture

need("matplotlib")

from matplotlib.figure import Figure  # noqa: E402 (what is missing is named first)
from matplotlib.lines import Line2D  # noqa: E402
from matplotlib.patches import Rectangle  # noqa: E402

__all__ = ["show"]

_WIDTH, _MARGIN = 8.2, 0.15
_INDENT = 0.19  # of a level
_BYTES = 1.05  # the column at the right
_GAP = 0.22  # between two messages
_TITLE = Type(12, 0.3, "bold")
_LINE = Type(9.5, 0.205)
_SIGNED = Type(9.5, 0.205, "bold")
_WORDS: dict[Sign, str] = {"memory": "■ the memory itself", "handle": "◆ a handle"}


def show(messages: Mapping[str, bytes | bytearray | memoryview | Node]) -> Picture:
    """The messages taken apart, below each other, for a notebook cell to end in.

    Args:
        messages: by name, a pickle, or a tree that was read of one.

    Raises:
        ValueError: there is no message, or one that is no pickle.
    """
    if not messages:
        raise ValueError("there is no message to take apart: give at least one, by its name")
    trees = {name: m if isinstance(m, Node) else read(m) for name, m in messages.items()}
    return Picture(
        draw=lambda dark: _draw(trees, theme(dark)),
        alt=" ".join(["Trees of messages, a line for each part.", *map(_in_words, trees.items())]),
        title=f"Figure: messages taken apart ({', '.join(trees)})",
        sentence=" ".join(_sentence(name, tree) for name, tree in trees.items()),
    )


def _sentence(name: str, tree: Node) -> str:
    memory = sum(node.nbytes for node in tree.signed("memory"))
    handles = len(tree.signed("handle"))
    found = f"{name}: {tree.nbytes:,} bytes, "
    if memory:
        return f"{found}{memory:,} of them the memory itself."
    if handles:
        return f"{found}no memory, but {handles} handle{'s' * (handles != 1)}."
    return f"{found}neither memory nor a handle."


def _in_words(named: tuple[str, Node]) -> str:
    name, tree = named
    parts = []
    for depth, text, node in tree.lines():
        sign = f" ({_WORDS[node.sign][2:]})" if node.sign else ""
        parts.append(f"level {depth}: {text}{sign}, {node.nbytes:,} byte{'s' * (node.nbytes != 1)}")
    return f"{name}: {'; '.join(parts)}."


def _draw(trees: Mapping[str, Node], colours: Theme) -> Figure:
    lines = sum(sum(1 for _ in tree.lines()) for tree in trees.values())
    height = 2 * _MARGIN + len(trees) * (_TITLE.line + _GAP) - _GAP + lines * _LINE.line
    drawn = Figure(figsize=(_WIDTH, height), dpi=DPI, facecolor=colours.paper)
    y = _MARGIN
    for name, tree in trees.items():
        y = _draw_tree(drawn, name, tree, y, colours) + _GAP
    return drawn


def _draw_tree(drawn: Figure, name: str, tree: Node, y: float, colours: Theme) -> float:
    pen, right = Pen(drawn), _WIDTH - _MARGIN
    title = shortened(wrapped(name, right - _BYTES - _MARGIN, _TITLE), 1)
    pen.write([f"{tree.nbytes:,} bytes"], right, y, _TITLE, colours.ink, "right")
    y = pen.write(title, _MARGIN, y, _TITLE, colours.ink)
    parents: list[float] = []  # where the last line of each level ended
    for depth, text, node in tree.lines():
        _draw_line(drawn, pen, depth, text, node, y, colours)
        del parents[depth:]
        if depth:
            _connect(drawn, depth, parents[-1], y, colours)
        parents.append(y + _LINE.line)
        y += _LINE.line
    return y


def _draw_line(
    drawn: Figure, pen: Pen, depth: int, text: str, node: Node, y: float, colours: Theme
) -> None:
    how = _SIGNED if node.sign else _LINE
    left, right = _MARGIN + 0.05 + depth * _INDENT, _WIDTH - _MARGIN
    words = f"  {_WORDS[node.sign]}" if node.sign else ""
    if node.sign:
        _box(drawn, left - 0.04, y, right - left + 0.08, colours.interval)
    room = right - _BYTES - left - width_inches(words, how)
    pen.write([shortened(wrapped(text, room, how), 1)[0] + words], left, y, how, colours.ink)
    pen.write([f"{node.nbytes:,} B"], right, y, how, colours.ink, "right")


def _box(drawn: Figure, x: float, y: float, wide: float, colour: str) -> None:
    width, height = drawn.get_size_inches()
    high = _LINE.line
    place = (x / width, 1 - (y + high) / height)
    drawn.add_artist(Rectangle(place, wide / width, high / height, color=colour, linewidth=0))


def _connect(drawn: Figure, depth: int, top: float, y: float, colours: Theme) -> None:
    """A line from the parent's line down to this one, and to the right."""
    width, height = drawn.get_size_inches()
    x = _MARGIN + 0.05 + (depth - 1) * _INDENT + 0.06
    middle = y + _LINE.line / 2
    xs = [x / width, x / width, (x + 0.09) / width]
    ys = [1 - top / height, 1 - middle / height, 1 - middle / height]
    drawn.add_artist(Line2D(xs, ys, color=colours.muted, linewidth=0.8))
