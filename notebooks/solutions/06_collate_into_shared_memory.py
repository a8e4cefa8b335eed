"""Solutions to the exercises of `06_collate_into_shared_memory.ipynb`."""

import weakref
from collections import defaultdict

import labkit
from labkit.sharing import Segment


def pad_shared(samples, padding_value=0):
    """Sequences (length, …) → one tensor (samples, longest, …), built where it is sent."""
    longest = max(len(sample) for sample in samples)
    shape = (len(samples), longest, *samples[0].shape[1:])
    padded = labkit.empty_shared(shape, samples[0].dtype)
    for row, sample in zip(padded, samples, strict=True):
        row[: len(sample)] = sample
        row[len(sample) :] = padding_value
    return padded


class Pool:
    """Shared memory that is given out again once nobody sees it."""

    def __init__(self):
        self.free = defaultdict(list)  # segments, by their bytes

    def allocate(self, nbytes):
        """An exporter of so many bytes: of a segment used before, if one is free."""
        free = self.free[nbytes]
        segment = free.pop() if free else Segment.create(nbytes)
        memory = segment.exporter(0, nbytes)
        weakref.finalize(memory, free.append, segment)
        return memory
