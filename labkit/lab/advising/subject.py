"""What is looked at: the user's dataset, and the loader that they have for it.

Before it: the user, or `named`, which finds the object that a command line names. After it:
`setting`, which varies the loader; `investigation`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch.utils.data
from torch.utils.data import IterableDataset, RandomSampler, SequentialSampler

import labkit
from labkit.lab.advising.setting import Setting

__all__ = ["BATCH_SIZE", "NoAdvice", "Subject", "subject_of"]

BATCH_SIZE = 32
"""Samples a batch, where a bare dataset is given and nothing is said."""

_SHUFFLED_AT_MOST = 1_000_000  # samples: the order of more takes memory and time of its own
_DEFAULTS = (
    None,
    labkit.default_collate,
    labkit.default_convert,
    torch.utils.data.default_collate,
    torch.utils.data.default_convert,
)


class NoAdvice(ValueError):
    """Nothing can be said of this dataset or loader; says why, and what to write or mend."""


@dataclass(frozen=True)
class Subject:
    """A dataset with its loader.

    Attributes:
        dataset: the user's.
        fixed: arguments of DataLoader that stay as they are, in every setting tried.
        written: the same as they are written in a line of code, those that are no defaults.
        current: what the user has of the arguments that may be changed.
        is_bare: it came without a loader.
    """

    dataset: Any
    fixed: Mapping[str, Any]
    written: Mapping[str, str]
    current: Setting
    is_bare: bool = False

    @property
    def is_iterable(self) -> bool:
        """Whether its samples come in an order of its own."""
        return isinstance(self.dataset, IterableDataset)

    @property
    def has_own_collate(self) -> bool:
        """Whether the batches are made by a function of the user's."""
        return self.fixed.get("collate_fn") not in _DEFAULTS

    @property
    def samples(self) -> int | None:
        """How many samples it has; None where it does not tell."""
        try:
            return len(self.dataset)
        except (TypeError, NotImplementedError):
            return None

    def loader(self, setting: Setting, **others: Any) -> Any:
        """A fresh loader with this setting."""
        return setting.make(self.dataset, {**self.fixed, **others})

    def line(self, setting: Setting) -> str:
        """The line of code that makes this loader."""
        given = {**self.written, **setting.written()}
        if setting.collate == "default":
            given.pop("collate_fn", None)
        arguments = ", ".join(["dataset", *(f"{key}={value}" for key, value in given.items())])
        made = f"{setting.module}.DataLoader({arguments})"
        return f"labkit.Preloader({made})" if setting.preloads else made


def subject_of(
    data: Any, collate_fn: Callable[[Any], Any] | None = None, batch_size: int | None = None
) -> Subject:
    """The dataset and the loader in what a user gives.

    Args:
        data: a dataset, map-style or iterable, or PyTorch's or labkit's DataLoader.
        collate_fn: in place of the loader's, if there is one.
        batch_size: of a bare dataset; None for `BATCH_SIZE`.

    Raises:
        NoAdvice: it is none of these; says what to give.
    """
    if isinstance(data, torch.utils.data.DataLoader | labkit.DataLoader):
        if batch_size is not None:
            raise NoAdvice(
                f"a loader has its batch_size ({data.batch_size}): leave batch_size out, or give "
                "the dataset alone"
            )
        return _of_a_loader(data, collate_fn)
    _check_dataset(data)
    return _of_a_dataset(data, collate_fn, BATCH_SIZE if batch_size is None else batch_size)


def _check_dataset(data: Any) -> None:
    kind = type(data).__name__
    if isinstance(data, labkit.Preloader):
        raise NoAdvice("give the loader that is inside the Preloader: advise(preloader.loader)")
    if isinstance(data, type):
        raise NoAdvice(
            f"{data.__name__} is a class: give an object of it, such as {data.__name__}(…)"
        )
    if isinstance(data, IterableDataset) or hasattr(data, "__getitem__"):
        if isinstance(data, str | bytes | Mapping):
            raise NoAdvice(f"a {kind} is no dataset: give an object with __getitem__ and __len__")
        return
    if hasattr(data, "__next__"):
        raise NoAdvice(
            f"a {kind} can be run through once only: put it into the __iter__ of a "
            "torch.utils.data.IterableDataset, and give that"
        )
    raise NoAdvice(
        f"a {kind} is no dataset: give an object with __getitem__ and __len__, a "
        "torch.utils.data.IterableDataset, or a DataLoader"
    )


def _of_a_dataset(data: Any, collate_fn: Callable[[Any], Any] | None, batch_size: int) -> Subject:
    if batch_size < 1:
        raise NoAdvice(f"batch_size is a whole number of 1 or more, but got {batch_size!r}")
    fixed: dict[str, Any] = {"batch_size": batch_size}
    written = {"batch_size": str(batch_size)}
    if not isinstance(data, IterableDataset):
        if not hasattr(data, "__len__"):
            raise NoAdvice(
                f"{type(data).__name__} has no __len__: add one, or make it an IterableDataset"
            )
        samples = _check_not_empty(data)
        if samples <= _SHUFFLED_AT_MOST:
            fixed["shuffle"] = True
            written["shuffle"] = "True"
    _note_collate(fixed, written, collate_fn)
    return Subject(data, fixed, written, Setting(), is_bare=True)


def _of_a_loader(loader: Any, collate_fn: Callable[[Any], Any] | None) -> Subject:
    is_labkit = isinstance(loader, labkit.DataLoader)
    fixed, written = _batching(loader)
    if not isinstance(loader.dataset, IterableDataset):
        _check_not_empty(loader.dataset)
    _note_collate(fixed, written, collate_fn or loader.collate_fn)
    for name in ("worker_init_fn", "generator"):
        value = getattr(loader, name)
        if value is not None:
            fixed[name] = value
            written[name] = getattr(value, "__name__", name)
    if not getattr(loader, "in_order", True):
        fixed["in_order"] = False
        written["in_order"] = "False"
    context = loader.multiprocessing_context
    current = Setting(
        module="labkit" if is_labkit else "torch.utils.data",
        num_workers=loader.num_workers,
        prefetch_factor=loader.prefetch_factor if loader.prefetch_factor != 2 else None,
        start_method=None if context is None else context.get_start_method(),
        sharing_strategy=loader.sharing_strategy if is_labkit else None,
        pin_memory=loader.pin_memory,
        persistent_workers=loader.persistent_workers,
    )
    return Subject(loader.dataset, fixed, written, current)


def _check_not_empty(dataset: Any) -> int:
    """Its length; 0 for one without."""
    if not hasattr(dataset, "__len__"):
        return 0
    try:
        samples = len(dataset)
    except Exception as error:
        raise NoAdvice(
            f"len() of the dataset raised {type(error).__name__}: {error}. Let its __len__ return "
            "the number of samples"
        ) from error
    if samples == 0:
        raise NoAdvice("the dataset is empty (its length is 0): check where it looks for its data")
    return samples


def _batching(loader: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Which samples make a batch: the arguments for that, and as they are written."""
    fixed: dict[str, Any] = {"batch_size": loader.batch_size}
    written = {"batch_size": str(loader.batch_size)}
    batches = loader.batch_sampler
    if isinstance(loader.dataset, IterableDataset):
        fixed["drop_last"] = loader.drop_last
    elif batches is not None and loader.batch_size is None:
        return {"batch_sampler": batches}, {"batch_sampler": "batch_sampler"}
    else:
        fixed |= {"sampler": loader.sampler, "drop_last": loader.drop_last}
        if type(loader.sampler) is RandomSampler:
            written["shuffle"] = "True"
        elif type(loader.sampler) is not SequentialSampler:
            written["sampler"] = "sampler"
    if loader.drop_last:
        written["drop_last"] = "True"
    return fixed, written


def _note_collate(
    fixed: dict[str, Any], written: dict[str, str], collate_fn: Callable[[Any], Any] | None
) -> None:
    if collate_fn in _DEFAULTS:
        return
    if not callable(collate_fn):
        raise NoAdvice(
            f"collate_fn is {collate_fn!r}: give a function that makes a batch of a list of samples"
        )
    fixed["collate_fn"] = collate_fn
    written["collate_fn"] = getattr(collate_fn, "__name__", type(collate_fn).__name__)
