"""Samples → batch, straight into shared memory.

The default collate walks the first sample's structure and stacks each leaf over the batch. In a
worker it stacks into memory that the sharing strategy gives out, so that the one copy which
stacking needs anyway is the only one.

Before it: `fetch.py`, which has the samples. After it: `sharing/`, which sends the batch.
Mirrors: torch/utils/data/_utils/collate.py (`collate`, `default_collate`, `default_convert`). Does
better: samples that do not fit together are named, by dataset index, key and shape; extra keys and
same-numel shapes do not pass silently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data._utils import collate as torch_collate

from labkit.containers import like_mapping, like_sequence
from labkit.errors import CollateError, UncollatableType, literal
from labkit.sharing import empty_shared

__all__ = ["collate", "default_collate", "default_collate_fn_map", "default_convert"]

CollateFnMap = Mapping[type | tuple[type, ...], Callable[..., Any]]


def default_collate(batch: Sequence[Any]) -> Any:
    """Stack samples into a batch, as `torch.utils.data.default_collate` does.

    Tensors and arrays of shape (…) become one tensor of shape (batch, …) and the same dtype; int,
    float and bool become a tensor of shape (batch,) (int64, float64, bool); str and bytes a list
    or tuple of themselves; mappings, sequences, namedtuples are entered.

    Args:
        batch: the samples, at least one.

    Raises:
        CollateError: samples that do not fit together, or none at all.
        UncollatableType: a leaf of another type.
    """
    return collate(batch, collate_fn_map=_with_users_entries())


def collate(batch: Sequence[Any], *, collate_fn_map: CollateFnMap | None = None) -> Any:
    """Collate with a table of functions by element type, looked up exactly, then by `isinstance`.

    Each function is called as `function(samples, collate_fn_map=collate_fn_map)`.
    Mirrors: torch.utils.data._utils.collate.collate.
    """
    if len(batch) == 0:
        raise CollateError(
            "The batch is empty: there are no samples to collate. If the collate function drops "
            "samples, let it return None for such a batch and skip it in the loop, or replace "
            "what it drops."
        )
    first = batch[0]
    function = _function_for(first, collate_fn_map or {})
    if function is not None:
        try:
            return function(batch, collate_fn_map=collate_fn_map)
        except (AttributeError, RuntimeError, TypeError, ValueError):
            _check_none(batch)
            raise
    _check_none(batch)
    if isinstance(first, Mapping):
        columns = _columns_of_mappings(batch)
    elif isinstance(first, Sequence):
        columns = _columns_of_sequences(batch)
    else:
        raise _uncollatable(type(first))
    entries = {key: _collate_column(key, columns[key], collate_fn_map) for key in columns}
    if isinstance(first, Mapping):
        return like_mapping(first, entries)
    if isinstance(first, tuple):
        # A plain tuple becomes a list, as it does in PyTorch (for backwards compatibility there).
        return type(first)(*entries.values()) if hasattr(first, "_fields") else [*entries.values()]
    return like_sequence(first, [*entries.values()])


def _function_for(element: Any, collate_fn_map: CollateFnMap) -> Callable[..., Any] | None:
    function = collate_fn_map.get(type(element))
    if function is not None:
        return function
    for known in collate_fn_map:
        if isinstance(element, known):
            return collate_fn_map[known]
    return None


def _collate_column(key: Any, column: Sequence[Any], collate_fn_map: CollateFnMap | None) -> Any:
    try:
        return collate(column, collate_fn_map=collate_fn_map)
    except CollateError as error:
        raise error.under(key) from error.__cause__


def _columns_of_mappings(batch: Sequence[Mapping[Any, Any]]) -> dict[Any, Sequence[Any]]:
    first = batch[0]
    for i, sample in enumerate(batch):
        if not isinstance(sample, Mapping):
            raise _of_two_types(batch, i)
        if sample.keys() != first.keys():
            lacks = sorted(literal(repr(key)) for key in first.keys() - sample.keys())
            extra = sorted(literal(repr(key)) for key in sample.keys() - first.keys())
            raise CollateError(
                "{1} has other keys than {0}"
                + (f", it lacks {', '.join(lacks)}" if lacks else "")
                + (f", it has {', '.join(extra)} besides" if extra else "")
                + ". Return the same keys from every sample, or pass your own collate_fn.",
                0,
                i,
            )
    return {key: [sample[key] for sample in batch] for key in first}


def _columns_of_sequences(batch: Sequence[Sequence[Any]]) -> dict[Any, Sequence[Any]]:
    first = batch[0]
    for i, sample in enumerate(batch):
        if not isinstance(sample, Sequence):
            raise _of_two_types(batch, i)
        if len(sample) != len(first):
            raise CollateError(
                "each element in list of batch should be of equal size: "
                f"{{0}} has {len(first)} elements, {{1}} has {len(sample)}. "
                "Pad them in the dataset, or pass a collate_fn that does.",
                0,
                i,
            )
    return dict(enumerate(zip(*batch, strict=True)))


def _check_none(batch: Sequence[Any]) -> None:
    for i, sample in enumerate(batch):
        if sample is None:
            raise UncollatableType(
                "{0} returned None, which cannot be collated. Return a sample for every index, or "
                "pass a collate_fn that leaves such samples out.",
                i,
            )


def _uncollatable(found: object) -> UncollatableType:
    return UncollatableType(
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found "
        f"{literal(found)} in {{0}}. Convert it in the dataset, or pass your own collate_fn.",
        0,
    )


# The functions by type. Each takes the samples' leaves at one place.


def collate_tensor(batch: Sequence[torch.Tensor], *, collate_fn_map: Any = None) -> torch.Tensor:
    """Tensors of shape (…) → (batch, …), built where `empty_shared` gives memory."""
    first = batch[0]
    if first.is_nested or first.layout is not torch.strided:
        kind = "nested" if first.is_nested else "sparse"
        raise UncollatableType(
            f"default_collate: batches of {kind} tensors are not supported ({{0}}). Use "
            "batch_size=None, convert them in the dataset, or pass a collate_fn that knows how.",
            0,
        )
    try:
        if _can_be_built_in_place(batch):
            return torch.stack(batch, out=empty_shared((len(batch), *first.shape), first.dtype))  # type: ignore[arg-type]
        return torch.stack(batch)  # type: ignore[arg-type]
    except (RuntimeError, TypeError, AttributeError):
        _check_alike(batch)
        raise


def _can_be_built_in_place(batch: Sequence[torch.Tensor]) -> bool:
    """Whether stacking into given memory does the same: it promotes no dtype, keeps no graph."""
    first = batch[0]
    if not first.is_cpu or first.is_quantized:
        return False
    dtype = first.dtype
    return all(tensor.dtype is dtype and not tensor.requires_grad for tensor in batch)


def _check_alike(batch: Sequence[Any]) -> None:
    """Raise an error that names the first sample which differs in type or shape, if one does."""
    for i, element in enumerate(batch):
        if not isinstance(element, torch.Tensor):
            raise _of_two_types(batch, i)
        if element.shape != batch[0].shape:
            raise _of_two_shapes(batch, i)


def collate_array(batch: Sequence[np.ndarray], *, collate_fn_map: Any = None) -> Any:
    """Arrays of shape (…) → a tensor of shape (batch, …) and the same dtype."""
    if batch[0].dtype.kind in "SUO":
        raise _uncollatable(batch[0].dtype)
    tensors = []
    for i, array in enumerate(batch):
        try:
            tensors.append(torch.as_tensor(array))
        except (TypeError, RuntimeError, ValueError) as error:
            raise _of_two_types(batch, i) from error
    return collate(tensors, collate_fn_map=collate_fn_map)


def _of_two_types(batch: Sequence[Any], i: int) -> CollateError:
    _check_none(batch)
    return CollateError(
        f"{{0}} holds a {type(batch[0]).__name__} where {{1}} holds a {type(batch[i]).__name__}. "
        "Return the same types from every sample, or pass a collate_fn that converts them.",
        0,
        i,
    )


def _of_two_shapes(batch: Sequence[Any], i: int) -> CollateError:
    return CollateError(
        f"stack expects each tensor to be equal size: {{0}} has shape {list(batch[0].shape)}, "
        f"{{1}} has shape {list(batch[i].shape)}. Crop or pad them in the dataset, or pass a "
        "collate_fn that pads.",
        0,
        i,
    )


def collate_array_scalar(batch: Sequence[Any], *, collate_fn_map: Any = None) -> torch.Tensor:
    """numpy numbers → a tensor of shape (batch,)."""
    return torch.as_tensor(batch)


def collate_float(batch: Sequence[float], *, collate_fn_map: Any = None) -> torch.Tensor:
    """Python floats → a tensor of shape (batch,), float64."""
    return _filled(torch.tensor(batch, dtype=torch.float64))


def collate_int(batch: Sequence[int], *, collate_fn_map: Any = None) -> torch.Tensor:
    """Python ints → a tensor of shape (batch,), int64 (bool for bools)."""
    return _filled(torch.tensor(batch))


def _filled(batch: torch.Tensor) -> torch.Tensor:
    return empty_shared(batch.shape, batch.dtype).copy_(batch)


def collate_text(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Sequence[Any]:
    """Texts stay as they are."""
    return batch


default_collate_fn_map: dict[type | tuple[type, ...], Callable[..., Any]] = {
    torch.Tensor: collate_tensor,
    np.ndarray: collate_array,
    (np.bool_, np.number, np.object_): collate_array_scalar,
    float: collate_float,
    int: collate_int,
    str: collate_text,
    bytes: collate_text,
}
_theirs_at_import = dict(torch_collate.default_collate_fn_map)


def _with_users_entries() -> CollateFnMap:
    """Our table; what the user has added to PyTorch's own, or replaced there, counts here too."""
    theirs = torch_collate.default_collate_fn_map
    if theirs == _theirs_at_import:
        return default_collate_fn_map
    users = {key: f for key, f in theirs.items() if _theirs_at_import.get(key) is not f}
    return {**users, **{key: f for key, f in default_collate_fn_map.items() if key not in users}}


def default_convert(data: Any) -> Any:
    """Turn the numpy arrays of one sample into tensors; used where nothing is batched.

    Containers are entered as in `default_collate`; strings, object arrays and all else stay.
    Mirrors: torch.utils.data.default_convert.
    """
    if isinstance(data, (torch.Tensor, str, bytes)):
        return data
    cls = type(data)
    if cls.__module__ == "numpy":
        if isinstance(data, np.ndarray) and data.dtype.kind in "SUO":
            return data
        return torch.as_tensor(data)
    if isinstance(data, Mapping):
        return like_mapping(data, {key: default_convert(data[key]) for key in data})
    if isinstance(data, tuple):
        converted = [default_convert(element) for element in data]
        return cls(*converted) if hasattr(data, "_fields") else converted
    if isinstance(data, Sequence):
        return like_sequence(data, [default_convert(element) for element in data])
    return data
