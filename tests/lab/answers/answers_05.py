import math
import mmap
import os
from multiprocessing.shared_memory import SharedMemory

import numpy as np


class ByDict:
    """With a dict for a state, and the memory's own pickle, which is a proxy already."""

    def __init__(self, shape, dtype):
        size = math.prod(shape) * np.dtype(dtype).itemsize
        self.memory = SharedMemory(create=True, size=size)
        self.array = np.ndarray(shape, dtype, buffer=self.memory.buf)
        self.is_owner = True

    def __getstate__(self):
        return {"memory": self.memory, "shape": self.array.shape, "dtype": str(self.array.dtype)}

    def __setstate__(self, state):
        self.memory = state["memory"]
        self.array = np.ndarray(state["shape"], state["dtype"], buffer=self.memory.buf)
        self.is_owner = False

    def close(self):
        self.array = None
        self.memory.close()
        if self.is_owner:
            self.memory.unlink()


class ByFrombuffer(ByDict):
    """Owned by the process that made it, told by name."""

    def __getstate__(self):
        return self.memory.name, self.array.dtype.str, *self.array.shape

    def __setstate__(self, state):
        name, dtype, *shape = state
        self.memory = SharedMemory(name)
        count = math.prod(shape)
        self.array = np.frombuffer(self.memory.buf, dtype, count).reshape(shape)
        self.is_owner = False

    def close(self):
        memory, owner = self.memory, self.is_owner
        self.__dict__.clear()
        memory.close()
        if owner:
            memory.unlink()


class SendsTheBytes(ByDict):
    def __getstate__(self):
        return np.array(self.array)

    def __setstate__(self, state):
        self.__init__(state.shape, state.dtype)
        self.array[...] = state


class ForgetsTheMeaning(ByDict):
    def __getstate__(self):
        return {"memory": self.memory, "shape": (self.memory.size,), "dtype": "uint8"}


class LooksAtACopy(ByDict):
    def __setstate__(self, state):
        super().__setstate__(state)
        self.array = np.array(self.array)


class GuestsRemoveTheName(ByDict):
    def close(self):
        self.array = None
        self.memory.close()
        self.memory.unlink()


class NobodyRemovesTheName(ByDict):
    def close(self):
        self.array = None
        self.memory.close()


class ClosesUnderTheOwnersArray(ByDict):
    def close(self):
        if not self.is_owner:
            self.array = None
        self.memory.close()
        if self.is_owner:
            self.memory.unlink()


class AGuestsCloseDoesNothing(ByDict):
    def close(self):
        if self.is_owner:
            super().close()


class TheOwnerKeepsItMapped(ByDict):
    def close(self):
        if self.is_owner:
            self.memory.unlink()
        else:
            super().close()


class AGuestKeepsItsArray(ByDict):
    def close(self):
        if self.is_owner:
            super().close()
        else:
            self.memory.close()


class DiesWhereItArrives(ByDict):
    def __setstate__(self, state):
        os._exit(1)


def by_rule(batches, tensors, tensor_bytes, descriptors, shm_bytes):
    kept = batches * tensors
    fits = {
        "copy": True,
        "arena": True,
        "file_descriptor": kept <= descriptors - 10,
        "file_system": kept * max(tensor_bytes, mmap.PAGESIZE) <= shm_bytes,
    }
    return {name for name, fit in fits.items() if fit}


def by_leaving_out(batches, tensors, tensor_bytes, descriptors, shm_bytes):
    left = {"copy", "file_system", "file_descriptor", "arena"}
    if tensors * batches >= descriptors:
        left -= {"file_descriptor"}
    if tensors * batches * -(-tensor_bytes // mmap.PAGESIZE) * mmap.PAGESIZE > shm_bytes:
        left -= {"file_system"}
    return frozenset(left)


def by_bytes(batches, tensors, tensor_bytes, descriptors, shm_bytes):
    """Right for descriptors, but it counts bytes where the system counts pages."""
    right = set(by_rule(batches, tensors, tensor_bytes, descriptors, shm_bytes))
    return right | ({"file_system"} if batches * tensors * tensor_bytes < shm_bytes else set())


def forgets_tensors_in_dev_shm(batches, tensors, tensor_bytes, descriptors, shm_bytes):
    right = set(by_rule(batches, tensors, tensor_bytes, descriptors, shm_bytes))
    fits = "file_system" in by_leaving_out(batches, 1, tensor_bytes, descriptors, shm_bytes)
    return right | ({"file_system"} if fits else set())


def leaves_none_to_the_loader(batches, tensors, tensor_bytes, descriptors, shm_bytes):
    right = set(by_rule(batches, tensors, tensor_bytes, descriptors, shm_bytes))
    return right | ({"file_descriptor"} if batches * tensors <= descriptors else set())


def forgets_tensors(batches, tensors, tensor_bytes, descriptors, shm_bytes):
    return by_leaving_out(batches, 1, tensors * tensor_bytes, descriptors, shm_bytes)


def one_descriptor_in_all(batches, tensors, tensor_bytes, descriptors, shm_bytes):
    return by_leaving_out(1, tensors, batches * tensor_bytes, descriptors, shm_bytes)


def batch_by_batch(batches, tensors, tensor_bytes, descriptors, shm_bytes):
    """Right for descriptors, but of /dev/shm it thinks that a kept batch leaves it."""
    right = set(by_rule(batches, tensors, tensor_bytes, descriptors, shm_bytes))
    return right | ({"file_system"} if tensors * tensor_bytes < shm_bytes else set())


def without_dev_shm(batches, tensors, tensor_bytes, descriptors, shm_bytes):
    return by_rule(batches, tensors, 1, descriptors, shm_bytes)


def memfds_in_dev_shm(batches, tensors, tensor_bytes, descriptors, shm_bytes):
    right = set(by_rule(batches, tensors, tensor_bytes, descriptors, shm_bytes))
    return right if "file_system" in right else right - {"arena"}


def copy_is_for_small_ones(batches, tensors, tensor_bytes, descriptors, shm_bytes):
    right = set(by_rule(batches, tensors, tensor_bytes, descriptors, shm_bytes))
    return right - {"copy"} if batches * tensor_bytes > 100_000 else right


def the_best(batches, tensors, tensor_bytes, descriptors, shm_bytes):
    return "arena"


RIGHT = {
    "05.proxy": [ByDict, ByFrombuffer],
    "05.choose": [by_rule, by_leaving_out],
}
WRONG = {
    "05.proxy": [
        (SendsTheBytes, "The bytes of the array are in the pickle"),
        (ForgetsTheMeaning, "dtype and shape must travel"),
        (LooksAtACopy, "looks at a copy"),
        (GuestsRemoveTheName, "A guest's `close()` has removed it"),
        (NobodyRemovesTheName, "Nobody has removed the name"),
        (AGuestsCloseDoesNothing, "A guest, too, lets go"),
        (AGuestKeepsItsArray, "A guest, too, must drop its array"),
        (TheOwnerKeepsItMapped, "removes the name only"),
        (ClosesUnderTheOwnersArray, "Reading it would end the process"),
        (DiesWhereItArrives, "Something in it was fatal"),
    ],
    "05.choose": [
        (forgets_tensors, "for every tensor of every kept batch"),
        (one_descriptor_in_all, "Each batch that is kept holds a descriptor"),
        (batch_by_batch, "though its name is gone"),
        (without_dev_shm, "how many fit in there"),
        (memfds_in_dev_shm, "`arena` takes memfds"),
        (copy_is_for_small_ones, "`copy` needs no shared memory"),
        (by_bytes, "in whole pages"),
        (forgets_tensors_in_dev_shm, "all of them lie in /dev/shm"),
        (leaves_none_to_the_loader, "none is left to the loader"),
        (the_best, "A set is wanted"),
    ],
}
