"""Solutions to the exercises of notebook 05."""

import math
import os
from multiprocessing.shared_memory import SharedMemory

import numpy as np


class SharedArray:
    """An array in shared memory. Its pickle is a proxy: it says where the bytes are."""

    def __init__(self, shape, dtype):
        size = math.prod(shape) * np.dtype(dtype).itemsize
        self.memory = SharedMemory(create=True, size=size)
        self.array = np.ndarray(shape, dtype, buffer=self.memory.buf)
        self.is_owner = True

    def __getstate__(self):
        """What travels: where the bytes are, and what they mean."""
        return self.memory.name, self.array.shape, self.array.dtype

    def __setstate__(self, state):
        """In the other process: attach to the memory, as a guest."""
        name, shape, dtype = state
        self.memory = SharedMemory(name=name)
        self.array = np.ndarray(shape, dtype, buffer=self.memory.buf)
        self.is_owner = False

    def close(self):
        """Let go of the memory; its owner also removes the name."""
        del self.array
        self.memory.close()
        if self.is_owner:
            self.memory.unlink()


def possible(batches, tensors, tensor_bytes, descriptors, shm_bytes):
    """The strategies that bring all batches while all are kept, as a set of names."""
    storages = batches * tensors
    page = os.sysconf("SC_PAGE_SIZE")
    fitting = {"copy", "arena"}
    if storages + 10 < descriptors:  # some to spare, for the loader
        fitting.add("file_descriptor")
    if storages * math.ceil(tensor_bytes / page) * page < shm_bytes:
        fitting.add("file_system")
    return fitting
