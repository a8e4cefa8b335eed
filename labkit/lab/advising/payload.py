"""Work pickled by value for another process, within a limit of bytes; or why it cannot be.

Before it: the package, which has the work. After it: `session`, which brings it there.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import cloudpickle

__all__ = ["payload_of"]


class _TooLarge(Exception):
    pass


class _Limited(io.BytesIO):
    def __init__(self, at_most: int) -> None:
        super().__init__()
        self._at_most = at_most

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > self._at_most:
            raise _TooLarge
        return super().write(data)


def payload_of(work: Callable[..., None], arguments: tuple[Any, ...], at_most: int) -> bytes | str:
    """The work, pickled by value; or why it cannot be: a few words.

    Args:
        work, arguments: as in `session.run`.
        at_most: bytes that it may take.
    """
    file = _Limited(at_most)
    try:
        cloudpickle.Pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump((work, arguments))
    except _TooLarge:
        return f"it takes more than {at_most / 1e6:,.0f} MB"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return file.getvalue()
