"""Read a pickle without running it: a tree of what is called with what, every byte accounted for.

A pickle is a program for a small machine with a stack: push this, make a tuple of the last two,
call that with it. `pickletools.genops` lists its steps; here they are followed with nodes in place
of objects, so nothing is imported, called or mapped.

Before it: a message. After it: `node`, what comes out, and `drawing`.
"""

from __future__ import annotations

import pickletools
import struct

from labkit.lab.pickle_tree.machine import Machine
from labkit.lab.pickle_tree.node import Node

__all__ = ["read", "read_labkit"]

_LENGTH = struct.Struct("<Q")  # before labkit's handles stands how long they are


def read(data: bytes | bytearray | memoryview) -> Node:
    """The tree of one pickle, of any protocol.

    Raises:
        ValueError: it is none, or not a whole one, or something comes after it.
    """
    stream = bytes(data)
    try:
        steps = [
            (code.name, argument, at or 0) for code, argument, at in pickletools.genops(stream)
        ]
        ends = [at for _, _, at in steps[1:]] + [steps[-1][2] + 1]
        machine = Machine()
        for (name, argument, at), end in zip(steps, ends, strict=True):
            machine.step(name, argument, end - at)
        root = machine.result()
    except (ValueError, IndexError, KeyError) as error:
        raise ValueError(f"these {len(stream):,} bytes are no whole pickle: {error}") from error
    if root.nbytes + machine.elsewhere != len(stream):
        raise ValueError(f"after the pickle's end come {len(stream) - ends[-1]:,} bytes more")
    root.own_bytes += machine.elsewhere
    return root


def read_labkit(message: bytes | bytearray) -> Node:
    """The tree of one of labkit's messages: the handles and then the batch, a pickle each.

    Raises:
        ValueError: it is none.
    """
    begin = _LENGTH.size
    if len(message) < begin:
        raise ValueError(f"{len(message)} bytes are no message of labkit's: it begins with 8 more")
    end = begin + _LENGTH.unpack_from(message)[0]
    handles, batch = read(message[begin:end]), read(message[end:])
    handles.label, batch.label = "handles", "batch"
    for number, posted in enumerate(handles.children):
        posted.label = str(number)
        for label, node in zip(
            ("start", "bytes", "foreign", "handle"), posted.children, strict=True
        ):
            node.label = label
        if not posted.signed("memory"):
            posted.children[-1].sign = "handle"
    return Node("parts", "labkit's message", begin, [handles, batch])
