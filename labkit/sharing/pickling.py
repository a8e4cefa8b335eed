"""A batch as a message: pickle with a dispatch table, the memory kept out of the stream.

A reducer of the table (see `reducers.py`) writes what a tensor is, and puts its *memory* out of
band: pickle (protocol 5) lets a reducer hand over a buffer that is kept out of the stream, and asks
for it again, in the same order, when the stream is read. In its place travels the strategy's
handle. So the message of a 38 MB batch has some hundred bytes; with the strategy `copy`, whose
handles are the bytes themselves, it has all of them.

A message is two pickles, the list of handles and the batch, with the first one's length before.

Two views of one storage name one region and stay two views of one storage; of a storage that is not
shared yet, only the bytes that the message's views can see are copied.

Mirrors: torch/multiprocessing/reductions.py (`init_reductions`, `reduce_storage`). Does better:
numpy arrays are shared like tensors, conjugate views keep their values, a small view of a big
storage does not drag the rest along. Leaves out: tensors on an accelerator.
"""

from __future__ import annotations

import copyreg
import io
import os
import pickle
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch

from labkit.by_value import by_value_pickler, by_value_reducers
from labkit.errors import BatchNotShareable
from labkit.sharing.reducers import (
    Opened,
    Reduced,
    Region,
    opened,
    reduce_array,
    reduce_parameter,
    reduce_tensor,
)
from labkit.sharing.segment import bytes_type
from labkit.sharing.strategies import Handle, Parcel, Receiver, Sender

__all__ = ["BatchPickler", "DispatchTable", "loads"]

Reducer = Callable[[Any], Reduced]
Posted = tuple[int, int, bool, Handle]
"""Of a region: where in its storage it begins, its bytes, whether it is `foreign`, its handle."""

_LENGTH = struct.Struct("<Q")
_CANNOT_PICKLE = (pickle.PicklingError, AttributeError, TypeError)  # what pickle raises then


class BatchPickler:
    """Pickles one message after another, the memory it meets handed to `sender`.

    Args:
        sender: the worker's half of a sharing strategy.
    """

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        reducers: dict[type, Reducer] = {
            torch.Tensor: partial(reduce_tensor, self._region),
            torch.nn.Parameter: reduce_parameter,
            np.ndarray: partial(reduce_array, self._region),
            Region: self._reduce_region,
        }
        self._table = DispatchTable(reducers, copyreg.dispatch_table)
        self._by_value = by_value_pickler(DispatchTable(reducers, by_value_reducers()))
        self._regions: dict[int, Region] = {}  # by address: one storage, one region
        self._tokens: dict[int, Region] = {}  # by id of the buffer that stands for a region
        self._out_of_band: list[Region] = []  # in the order in which the stream names them

    def dumps(self, obj: object) -> tuple[tuple[bytes, bytes, bytes], Parcel]:
        """The message in parts, and what goes beside it: keep that until all is sent.

        Raises:
            BatchNotShareable: `obj` holds something that cannot cross to another process.
        """
        try:
            try:
                batch = self._pickle(obj, pickle.Pickler)
            except _CANNOT_PICKLE:
                # A class made in a notebook cannot be imported by a spawned worker, which has it
                # by value and sends its instances back the same way.
                batch = self._pickle(obj, self._by_value)
            posted, parcel = self._post()
            handles = pickle.dumps(posted, protocol=5)
            return (_LENGTH.pack(len(handles)), handles, batch), parcel
        except _CANNOT_PICKLE as error:
            raise BatchNotShareable(
                f"A batch cannot be pickled: {error}. What a worker returns must cross to another "
                "process: return tensors, arrays, numbers, strings and containers of them, or give "
                "the class a `__reduce__` method."
            ) from error
        finally:
            self._forget_message()

    def _pickle(self, obj: object, pickler_class: type[pickle.Pickler]) -> bytes:
        self._forget_message()
        file = io.BytesIO()
        pickler = pickler_class(file, protocol=5, buffer_callback=self._set_aside)
        pickler.dispatch_table = self._table  # that of `pickle.Pickler` is the instance's
        pickler.dump(obj)
        return file.getvalue()

    def _post(self) -> tuple[list[Posted], Parcel]:
        """Hand the memory to the sender."""
        parcel = Parcel()
        try:
            return [self._post_region(region, parcel) for region in self._out_of_band], parcel
        except BaseException:
            self._sender.withdraw(parcel)
            raise

    def _post_region(self, region: Region, parcel: Parcel) -> Posted:
        parcel.shared_bytes += region.end - region.start
        block = self._sender.block_at(region.address)
        if block is not None:  # goes whole, as it is
            return 0, region.end, region.foreign, self._sender.handle(block, parcel)
        nbytes = region.end - region.start
        seen = bytes_type(nbytes).from_address(region.address + region.start)
        return region.start, nbytes, region.foreign, self._sender.handle(seen, parcel)

    def _forget_message(self) -> None:
        if self._regions or self._out_of_band:
            self._regions, self._tokens, self._out_of_band = {}, {}, []

    def _region(self, address: int, owner: object, start: int, end: int) -> Region:
        """The region of the storage at `address`, of which some object sees bytes [start, end)."""
        region = self._regions.get(address)
        if region is None:
            region = self._regions[address] = Region(address, owner, start, end)
        else:
            region.see(start, end)
        return region

    def _reduce_region(self, region: Region) -> Reduced:
        token = region.token = pickle.PickleBuffer(_EMPTY)
        self._tokens[id(token)] = region
        return opened, (token,)

    def _set_aside(self, buffer: pickle.PickleBuffer) -> bool:
        """Called by pickle with each buffer; whether to keep it in the stream after all."""
        region = self._tokens.get(id(buffer))
        if region is None:  # a class of someone else's that speaks protocol 5
            memory = np.frombuffer(buffer.raw(), dtype=np.uint8)
            if memory.nbytes == 0:
                return True
            owner = (memory, buffer)
            region = Region(memory.ctypes.data, owner, 0, memory.nbytes, foreign=True)
        self._out_of_band.append(region)
        return False


_EMPTY = bytearray()


def loads(message: bytes | bytearray, fds: list[int], receiver: Receiver) -> Any:
    """The object behind a message. The descriptors are taken, also where this fails."""
    try:
        view = memoryview(message)
        begin = _LENGTH.size
        end = begin + _LENGTH.unpack_from(message)[0]
        buffers = [_open(posted, fds, receiver) for posted in pickle.loads(view[begin:end])]
        return pickle.loads(view[end:], buffers=buffers)
    finally:
        while fds:
            with suppress(OSError):
                os.close(fds.pop())


def _open(posted: Posted, fds: list[int], receiver: Receiver) -> Any:
    start, nbytes, foreign, handle = posted
    memory = receiver.open(handle, fds)
    return memoryview(memory).cast("B")[:nbytes] if foreign else Opened(memory, start, nbytes)


class DispatchTable(dict[type, Reducer]):
    """Reducers by type, like `copyreg.dispatch_table`; a tensor subclass is reduced as a tensor.

    A pickler asks its dispatch table before it asks an object's own `__reduce_ex__`, which
    `torch.Tensor` has too.

    Args:
        reducers: by exact type.
        fallback: the table to ask for every other type.
    """

    def __init__(self, reducers: dict[type, Reducer], fallback: Mapping[Any, Any]) -> None:
        super().__init__(reducers)
        self.fallback = fallback

    def __missing__(self, cls: type) -> Reducer:
        if (
            issubclass(cls, torch.Tensor)
            and cls.__reduce_ex__ is torch.Tensor.__reduce_ex__
            and cls.__torch_dispatch__ is torch.Tensor.__torch_dispatch__
        ):
            return self[torch.Tensor]
        reducer: Reducer = self.fallback[cls]  # its KeyError sends pickle to `__reduce_ex__`
        return reducer
