"""The machine that a pickle is a program for, with nodes in place of objects.

Nothing is imported, called or mapped: a step that would call something makes a node that says so.

Before it: `reading`, which gives it the steps. After it: `node`, what it makes.
"""

from __future__ import annotations

from typing import Any

from labkit.lab.pickle_tree.node import Node

__all__ = ["Machine"]

_HANDLES = {
    "multiprocessing.resource_sharer.DupFd",
    "torch.multiprocessing.reductions.rebuild_storage_filename",
}
"""Callables of which a call makes memory out of something small."""

_LEAST_MEMORY = 64  # bytes in a row from which on they are the data and no name of it
_LONGEST_TEXT = 44  # characters of a string
_CONSTANTS = {"NONE": "None", "NEWTRUE": "True", "NEWFALSE": "False"}
_EMPTY = {"EMPTY_TUPLE": "tuple", "EMPTY_LIST": "list", "EMPTY_DICT": "dict", "EMPTY_SET": "set"}
_FROM_MARK = {"TUPLE": "tuple", "LIST": "list", "FROZENSET": "set"}
_FROM_COUNT = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class Machine:
    """Follows the steps of a pickle, with nodes on its stack.

    A step that is not named here pushes its argument: a number, a string, bytes.

    Attributes:
        stack: what was made and not used yet.
        elsewhere: bytes of the stream that belong to no node.
    """

    def __init__(self) -> None:
        self.stack: list[Node] = []
        self.elsewhere = 0
        self._memo: dict[int, Node] = {}
        self._buffers = 0
        self._spent = 0  # bytes of this step

    def result(self) -> Node:
        """What the pickle makes.

        Raises:
            ValueError: it stopped too early, or too late.
        """
        if len(self.stack) != 1 or self.stack[0].kind == "mark":
            raise ValueError(f"{len(self.stack)} things are left at its end")
        return self.stack[0]

    def step(self, name: str, argument: Any, nbytes: int) -> None:
        """Do one step, which takes so many bytes of the stream."""
        self._spent = nbytes
        if name in ("PROTO", "FRAME", "STOP"):
            self.elsewhere += nbytes
        elif name in _CONSTANTS:
            self._push("leaf", _CONSTANTS[name])
        elif name in _EMPTY:
            self._push(_EMPTY[name])
        elif name in _FROM_MARK:
            self._push(_FROM_MARK[name], children=self._since_mark())
        elif name in _FROM_COUNT:
            self._push("tuple", children=self._pop(_FROM_COUNT[name]))
        elif name in _STEPS:
            _STEPS[name](self, argument)
        else:
            self._push_value(argument)

    def _push(self, kind: str, name: str = "", children: list[Node] | None = None) -> Node:
        node = Node(kind, name, self._spent, children or [])
        self._spent = 0
        self.stack.append(node)
        return node

    def _push_value(self, value: Any) -> None:
        if isinstance(value, bytes | bytearray):
            node = self._push("leaf", f"{len(value):,} byte{'s' * (len(value) != 1)}")
            node.sign = "memory" if len(value) >= _LEAST_MEMORY else ""
            return
        text = repr(value)
        text = text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 2]}…{text[-1]}"
        self._push("leaf", text).string = value if isinstance(value, str) else None

    def _pop(self, count: int) -> list[Node]:
        if count > len(self.stack):
            raise ValueError("a step takes more than there is")
        taken = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return taken

    def _since_mark(self) -> list[Node]:
        """Take what was pushed since the last mark, and the mark."""
        last = max(i for i, node in enumerate(self.stack) if node.kind == "mark")
        mark, *taken = self._pop(len(self.stack) - last)
        self._spent += mark.nbytes
        return taken

    # Names

    def _global(self, argument: str) -> None:
        self._push("leaf", argument.replace(" ", ".").removeprefix("builtins."))

    def _stack_global(self, _: Any) -> None:
        module, name = self._pop(2)
        self._spent += module.nbytes + name.nbytes
        self._global(f"{module.string} {name.string}")

    # The memo: what was there before

    def _remember(self, place: Any) -> None:
        self._memo[len(self._memo) if place is None else int(place)] = self.stack[-1]
        self._add_to_last(None)

    def _recall(self, place: Any) -> None:
        known = self._memo[int(place)]
        name = known.name if known.kind == "leaf" else f"the same {known.heading}"
        self._push("leaf", name).string = known.string

    def _duplicate(self, _: Any) -> None:
        self._push("leaf", f"the same {self.stack[-1].heading}")

    # Containers

    def _extend(self, children: list[Node]) -> None:
        self._add_to_last(None)
        self.stack[-1].children += children

    def _set_items(self, flat: list[Node]) -> None:
        self._extend([_labelled(*pair) for pair in zip(flat[::2], flat[1::2], strict=True)])

    def _dict(self, _: Any) -> None:
        items = self._since_mark()
        self._push("dict")
        self._set_items(items)

    # Calls

    def _call(self, function: Node, *arguments: Node) -> None:
        self._spent += function.own_bytes
        node = self._push("call", function.text, children=[*function.children])
        for argument in arguments:
            if argument.kind in ("tuple", "dict"):
                node.own_bytes += argument.own_bytes
                node.children += argument.children
            else:
                node.children.append(argument)
        node.sign = "handle" if node.name in _HANDLES else ""

    def _instance(self, argument: str) -> None:
        arguments = self._since_mark()
        node = self._push("call", argument.replace(" ", "."), children=arguments)
        node.sign = "handle" if node.name in _HANDLES else ""

    def _object(self, _: Any) -> None:
        cls, *arguments = self._since_mark()
        self._call(cls, Node("tuple", children=arguments))

    def _build(self, _: Any) -> None:
        (state,) = self._pop(1)
        self._spent += state.own_bytes if state.kind == "dict" else 0
        if state.kind != "dict":
            state.label = "state"
        self._extend(state.children if state.kind == "dict" else [state])

    # The rest

    def _mark(self, _: Any) -> None:
        self._push("mark")

    def _persistent_id(self, argument: Any) -> None:
        children = self._pop(1) if argument is None else [Node("leaf", repr(argument))]
        self._push("call", "persistent id", children=children)

    def _next_buffer(self, _: Any) -> None:
        self._push("leaf", f"buffer {self._buffers}, out of band")
        self._buffers += 1

    def _add_to_last(self, _: Any) -> None:
        self.stack[-1].own_bytes += self._spent
        self._spent = 0

    def _drop(self, nodes: list[Node]) -> None:
        self.elsewhere += self._spent + sum(node.nbytes for node in nodes)


def _labelled(key: Node, value: Node) -> Node:
    """A dict's entry: the value, with its key for a label."""
    value.label = key.text
    value.own_bytes += key.nbytes
    return value


_STEPS = {
    "GLOBAL": Machine._global,
    "STACK_GLOBAL": Machine._stack_global,
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), Machine._remember),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), Machine._recall),
    "DUP": Machine._duplicate,
    "POP": lambda machine, _: machine._drop(machine._pop(1)),
    "POP_MARK": lambda machine, _: machine._drop(machine._since_mark()),
    "MARK": Machine._mark,
    "DICT": Machine._dict,
    "APPEND": lambda machine, _: machine._extend(machine._pop(1)),
    "APPENDS": lambda machine, _: machine._extend(machine._since_mark()),
    "ADDITEMS": lambda machine, _: machine._extend(machine._since_mark()),
    "SETITEM": lambda machine, _: machine._set_items(machine._pop(2)),
    "SETITEMS": lambda machine, _: machine._set_items(machine._since_mark()),
    "REDUCE": lambda machine, _: machine._call(*machine._pop(2)),
    "NEWOBJ": lambda machine, _: machine._call(*machine._pop(2)),
    "NEWOBJ_EX": lambda machine, _: machine._call(*machine._pop(3)),
    "INST": Machine._instance,
    "OBJ": Machine._object,
    "BUILD": Machine._build,
    **dict.fromkeys(("PERSID", "BINPERSID"), Machine._persistent_id),
    "NEXT_BUFFER": Machine._next_buffer,
    "READONLY_BUFFER": Machine._add_to_last,
}
