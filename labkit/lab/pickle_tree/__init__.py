"""A message taken apart: a pickle as a tree, as text and drawn, with what stands for memory marked.

    pickle_tree.show({"plain pickle": pickle.dumps(batch)})

Before it: a message, of pickle's, PyTorch's or labkit's. `reading` follows its steps on `machine`
and makes `node`s; `drawing` draws them. After it: notebook 04.
"""

from __future__ import annotations

from labkit.lab.pickle_tree.drawing import show
from labkit.lab.pickle_tree.node import Node
from labkit.lab.pickle_tree.reading import read, read_labkit

__all__ = ["Node", "read", "read_labkit", "show"]
