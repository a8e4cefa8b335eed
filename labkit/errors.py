"""The errors that a user meets, each with its way out.

Every error that is raised is a `RuntimeError` underneath, as PyTorch's own loader errors are, so an
`except` clause written for PyTorch still catches it. The first argument is the whole message: what
happened, with which batch and worker, and what to do about it. The facts behind the message are
attributes, so that a program need not parse it.

`WorkerException` is the envelope in which an exception of the user's own code travels from a
worker to the main process. Mirrors: torch/_utils.py (`ExceptionWrapper`).
"""

from __future__ import annotations

import importlib
import os
import traceback
from collections.abc import Sequence
from pickle import PicklingError
from typing import Any, NoReturn

try:
    # Now: when the error is to be told, there may be no descriptor left to import with.
    _resource: Any = importlib.import_module("resource")
except ImportError:  # Windows has no such limits
    _resource = None

__all__ = [
    "BatchNotShareable",
    "CollateError",
    "LabkitError",
    "LoaderTimeout",
    "NestedWorkers",
    "SharedMemoryFull",
    "SharedMemoryGone",
    "StartupNotPicklable",
    "TooManyOpenFiles",
    "UncollatableType",
    "WorkerDied",
    "WorkerException",
    "WorkerTraceback",
    "literal",
    "open_file_limit",
    "rebuilt",
    "too_many_open_files",
]


class LabkitError(RuntimeError):
    """Base of all errors of this package.

    Args:
        message: what happened and what to do, in whole sentences.
        **facts: what the message says, as attributes of the error.
    """

    def __init__(self, message: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.__dict__.update(facts)


class WorkerDied(LabkitError):
    """A worker process ended while batches were still expected from it."""

    worker_id: int
    pid: int
    exitcode: int | None  #: as `multiprocessing.Process.exitcode`: negative for a signal
    signal: str | None  #: the signal's name, such as "SIGKILL", where one ended the worker
    batch: int | None  #: number of the batch that it worked on, counted from 0 in this epoch
    indices: Any  #: the dataset indices of that batch


class LoaderTimeout(LabkitError):
    """No batch came within `timeout` seconds."""

    worker_id: int
    pid: int
    batch: int | None  #: None: the worker has not begun the epoch
    indices: Any
    stack: str  #: where the worker is stuck, as far as it could tell; may be empty


class NestedWorkers(LabkitError):
    """A loader inside a worker was asked to start workers of its own."""


class StartupNotPicklable(LabkitError, PicklingError):
    """What the workers need at their start cannot be pickled, not even by value."""

    argument: str  #: the DataLoader argument, such as "dataset"
    attribute: str | None  #: the attribute of it that cannot be pickled, where one was found
    start_method: str


class BatchNotShareable(LabkitError):
    """A batch holds something that cannot cross to another process."""


class SharedMemoryFull(LabkitError):
    """No more shared memory: the system gave none, or the arena's limit is met."""

    wanted: int  #: bytes
    held: int  #: bytes in use; only where the arena's limit is met
    free: int | None  #: bytes, where that is known


class SharedMemoryGone(LabkitError):
    """The memory of a batch is not there any more."""

    name: str  #: its name in shared memory


class TooManyOpenFiles(LabkitError):
    """The limit on open file descriptors was met."""

    limit: int  #: the soft limit of RLIMIT_NOFILE


def open_file_limit() -> int:
    """The soft limit on open file descriptors of this process; -1 where the system has none."""
    if _resource is None:
        return -1
    limit: int = _resource.getrlimit(_resource.RLIMIT_NOFILE)[0]
    return limit


def too_many_open_files(in_whole_system: bool = False) -> TooManyOpenFiles:
    """The error to raise where a descriptor could not be opened for the process's limit, or for
    that of the whole system.
    """
    limit = open_file_limit()
    whose = "the whole system has no more (`sysctl fs.file-max`)"
    if not in_whole_system:
        whose = f"this process may hold {limit} file descriptors, and all are in use"
    return TooManyOpenFiles(
        f"Too many open files: {whose}. With the sharing strategy 'file_descriptor' every storage "
        "of every batch that is kept holds one. Two ways out: raise the limit in the shell that "
        "starts Python (`ulimit -n 65536`), or pass sharing_strategy='arena' or 'file_system' to "
        "DataLoader. Keeping `batch.clone()` instead of the batch works too.",
        limit=limit,
    )


class CollateError(LabkitError):
    """The samples of a batch do not fit together.

    The message is written from a template in which {0}, {1} … stand for the samples concerned; what
    comes from the user is put in through `literal`.
    The collate function knows them by their position in the batch; each level of nesting adds its
    key on the error's way up, and the fetcher, which alone knows them, the dataset's indices.
    """

    template: str
    positions: tuple[int, ...]  #: in the batch
    path: tuple[Any, ...]  #: keys and positions from a sample to the leaf concerned
    indices: tuple[Any, ...] | None  #: in the dataset

    def __init__(
        self,
        template: str,
        *positions: int,
        path: tuple[Any, ...] = (),
        indices: tuple[Any, ...] | None = None,
    ) -> None:
        self.template, self.positions, self.path, self.indices = template, positions, path, indices
        keys = "".join(f"[{key!r}]" for key in path)
        if indices is None:
            names = [f"batch[{position}]{keys}" for position in positions]
        else:
            names = [f"dataset[{index!r}]{keys}" for index in indices]
        super().__init__(template.format(*names))

    def __reduce__(self) -> tuple[Any, ...]:
        return _collate_error, (type(self), self.template, self.positions, self.path, self.indices)

    def under(self, key: Any) -> CollateError:
        """The same error, seen from the container in which `key` leads to where it happened."""
        return type(self)(self.template, *self.positions, path=(key, *self.path))

    def with_indices(self, indices: Any) -> CollateError:
        """The same error, told in dataset indices; `indices` are those of the whole batch."""
        if not isinstance(indices, Sequence):
            return self  # an index that is no list, such as a slice, for a `__getitems__`
        ours = tuple(indices[position] for position in self.positions)
        return type(self)(self.template, *self.positions, path=self.path, indices=ours)


def literal(text: object) -> str:
    """A text that a template of a `CollateError` shows as it is, whatever braces it has."""
    return str(text).replace("{", "{{").replace("}", "}}")


def _collate_error(
    cls: type[CollateError],
    template: str,
    positions: tuple[int, ...],
    path: tuple[Any, ...],
    indices: tuple[Any, ...] | None,
) -> CollateError:
    return cls(template, *positions, path=path, indices=indices)


class UncollatableType(CollateError, TypeError):
    """A sample holds a type that the default collate does not know."""


class WorkerTraceback(Exception):
    """The worker's own traceback, as text: the `__cause__` of what is raised in the main process.

    A traceback cannot be pickled, its text can. Attributes: `worker_id`, `pid`, `indices`,
    `type_name` and `message` of the original exception.
    """

    def __init__(self, text: str, **facts: Any) -> None:
        super().__init__(text)
        self.__dict__.update(facts)

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class _KeyErrorMessage(str):
    """`KeyError` shows its argument with `repr`, which would make one line of a traceback."""

    def __repr__(self) -> str:
        return str(self)


def _message_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "<it cannot say what it is>"


class WorkerException:
    """An exception on its way from a worker to the main process.

    Args:
        error: the exception, caught in the worker.
        worker_id: the worker that caught it, or that made the batch.
        indices: the dataset indices that it was asked for.
        where: it was caught, such as "in pin thread"; "" for in that worker.
    """

    def __init__(
        self, error: BaseException, worker_id: int, indices: Any = None, where: str = ""
    ) -> None:
        self.where = where or f"in DataLoader worker process {worker_id}"
        self.exc_type: type[BaseException] | None = type(error)
        self.type_name = type(error).__name__
        self.message = _message_of(error)
        # An error of this package says already all there is to say: it crosses as it is.
        self.error = error if isinstance(error, LabkitError) else None
        # Text, for a traceback holds frames, and frames hold batches.
        self.text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        self.worker_id = worker_id
        self.pid = os.getpid()
        self.indices = indices

    def without_type(self) -> WorkerException:
        """The same, for an exception whose class cannot be pickled: names and texts remain."""
        self.exc_type = self.error = None
        return self

    def reraise(self) -> NoReturn:
        """Raise it here, as PyTorch does: the same class, the worker's traceback in the message.

        Raises:
            RuntimeError: with the same text, where the class cannot be built from a message.
        """
        cause = WorkerTraceback(
            self.text,
            worker_id=self.worker_id,
            pid=self.pid,
            indices=self.indices,
            type_name=self.type_name,
            message=self.message,
        )
        error = self.error or rebuilt(self.exc_type, self.type_name, self.text, self.where)
        try:
            raise error from cause
        finally:
            del self, error  # this frame is part of the traceback: no cycle through it


def rebuilt(
    exc_type: type[BaseException] | None, type_name: str, text: str, where: str
) -> BaseException:
    """An exception of the same class whose message says where it was caught, and all of `text`.

    A RuntimeError, where the class is not known or cannot be built from a message.
    """
    message = f"Caught {type_name} {where}.\nOriginal {text}"
    if exc_type is None:
        return RuntimeError(message)
    if exc_type is KeyError:
        return KeyError(_KeyErrorMessage(message))
    try:
        if getattr(exc_type, "message", None):
            # Its first argument need not be a text, but it has a field for one.
            return exc_type(message=message)  # type: ignore[call-arg]
        return exc_type(message)
    except Exception:
        return RuntimeError(message)
