"""The tree of a pickle: what is called with what, how many bytes each part takes, as text too.

Before it: `reading`, which makes trees. After it: `drawing`, which draws them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Node", "Sign"]

Sign = Literal["", "memory", "handle"]

_LONGEST_LINE = 72
_BRACKETS = {"tuple": ("(", ")"), "list": ("[", "]"), "dict": ("{", "}"), "set": ("{", "}")}


@dataclass
class Node:
    """A part of a pickle.

    Attributes:
        kind: "leaf", "call", "tuple", "list", "dict", "set" or "parts".
        name: a leaf's text; of a call, what is called; of parts, what they make up.
        own_bytes: bytes of the stream that belong to no child.
        sign: "memory" if these bytes are the data itself, "handle" if they stand for memory that
            lies elsewhere.
        label: what the parent calls it, such as a dict's key.
        string: what a leaf says that is a string, in full.
    """

    kind: str
    name: str = ""
    own_bytes: int = 0
    children: list[Node] = field(default_factory=list)
    sign: Sign = ""
    label: str = ""
    string: str | None = field(default=None, repr=False)

    @property
    def nbytes(self) -> int:
        """Bytes of the stream, the children's included."""
        return self.own_bytes + sum(child.nbytes for child in self.children)

    @property
    def text(self) -> str:
        """In one line, with all that is in it."""
        inside = ", ".join(child.labelled for child in self.children)
        if self.kind in ("call", "parts"):
            return f"{self.name}({inside})"
        if self.kind in _BRACKETS:
            left, right = _BRACKETS[self.kind]
            return (
                f"{left}{inside}{',' * (self.kind == 'tuple' and len(self.children) == 1)}{right}"
            )
        return self.name

    @property
    def labelled(self) -> str:
        """The text after its label."""
        return f"{self.label}: {self.text}" if self.label else self.text

    @property
    def heading(self) -> str:
        """In one line, without what is in it."""
        if self.kind in _BRACKETS:
            return f"{self.kind} of {len(self.children)}"
        return f"{self.name}(…)" if self.kind == "call" else self.name

    def walk(self) -> Iterator[Node]:
        """This node and all below it, in the order in which they stand in a tree."""
        yield self
        for child in self.children:
            yield from child.walk()

    def lines(self, depth: int = 0) -> Iterator[tuple[int, str, Node]]:
        """(depth, text, node) of each line; a node takes one if it fits and has no marked parts."""
        has_signs = any(node.sign for child in self.children for node in child.walk())
        fits = len(self.labelled) <= _LONGEST_LINE
        if not self.children or (fits and not has_signs):
            yield depth, self.labelled, self
            return
        yield depth, f"{self.label}: {self.heading}" if self.label else self.heading, self
        for child in self.children:
            yield from child.lines(depth + 1)

    def signed(self, sign: Sign) -> list[Node]:
        """The nodes with this sign."""
        return [node for node in self.walk() if node.sign == sign]

    @property
    def called(self) -> list[str]:
        """The names of all that is called, outermost first."""
        return [node.name for node in self.walk() if node.kind == "call"]

    def __str__(self) -> str:
        rows = [
            ("  " * depth + text + (f"  ◀ {node.sign}" if node.sign else ""), f"{node.nbytes:,} B")
            for depth, text, node in self.lines()
        ]
        wide = max(len(left) for left, _ in rows)
        return "\n".join(f"{left:{wide}}  {right:>12}" for left, right in rows)
