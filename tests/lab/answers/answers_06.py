import weakref
from collections import defaultdict

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

import labkit
from labkit.sharing import Arena, Segment

# 06.pad_shared


def shape_of(samples):
    return (len(samples), max(map(len, samples)), *samples[0].shape[1:])


def filled_first(samples, padding_value=0):
    padded = labkit.empty_shared(shape_of(samples), samples[0].dtype).fill_(padding_value)
    for i, sample in enumerate(samples):
        padded[i, : sample.shape[0]].copy_(sample)
    return padded


def through_numpy(samples, padding_value=0):
    padded = labkit.empty_shared(shape_of(samples), dtype=samples[0].dtype)
    view = padded.numpy()
    for i, sample in enumerate(samples):
        view[i, : len(sample)] = sample.numpy()
        view[i, len(sample) :] = np.asarray(padding_value, view.dtype)
    return padded


def returns_nothing(samples, padding_value=0):
    filled_first(samples, padding_value)


def naive(samples, padding_value=0):
    return pad_sequence(samples, batch_first=True, padding_value=padding_value)


def moved_by_torch(samples, padding_value=0):
    return naive(samples, padding_value).share_memory_()


def built_elsewhere(samples, padding_value=0):
    padded = naive(samples, padding_value)
    return labkit.empty_shared(padded.shape, padded.dtype).copy_(padded)


def built_by_numpy(samples, padding_value=0):
    view = labkit.empty_shared(shape_of(samples), samples[0].dtype)
    padded = np.full(view.shape, padding_value, view.numpy().dtype)
    for i, sample in enumerate(samples):
        padded[i, : len(sample)] = sample.numpy()
    view.numpy()[:] = padded
    return view


def without_padding(samples, padding_value=0):
    """Right as long as memory is fresh or the padding is what was there."""
    in_worker = labkit.sharing._building.allocate is not None
    padded = labkit.empty_shared(shape_of(samples), samples[0].dtype)
    if not in_worker:
        padded.fill_(padding_value)
    for row, sample in zip(padded, samples, strict=True):
        row[: len(sample)] = sample
    return padded


def always_zero(samples, padding_value=0):
    return filled_first(samples)


def without_dtype(samples, padding_value=0):
    padded = labkit.empty_shared(shape_of(samples)).fill_(padding_value)
    for row, sample in zip(padded, samples, strict=True):
        row[: len(sample)] = sample
    return padded


def sequence_first(samples, padding_value=0):
    return filled_first(samples, padding_value).transpose(0, 1).contiguous()


def padding_in_front(samples, padding_value=0):
    padded = labkit.empty_shared(shape_of(samples), samples[0].dtype).fill_(padding_value)
    for row, sample in zip(padded, samples, strict=True):
        row[len(row) - len(sample) :] = sample
    return padded


def flat(samples, padding_value=0):
    padded = labkit.empty_shared((len(samples), max(map(len, samples))), samples[0].dtype)
    padded.fill_(padding_value)
    for row, sample in zip(padded, samples, strict=True):
        row[: len(sample)] = sample.reshape(len(sample), -1)[:, 0]
    return padded


# 06.pool


class WithOneList:
    """Takes the smallest segment that is large enough."""

    def __init__(self):
        self.segments = []

    def allocate(self, nbytes):
        fitting = [segment for segment in self.segments if segment.nbytes >= nbytes]
        segment = min(fitting, key=lambda s: s.nbytes, default=None)
        if segment is None:
            segment = Segment.create(nbytes)
        else:
            self.segments.remove(segment)
        memory = segment.exporter(0, nbytes)
        weakref.finalize(memory, self.segments.append, segment)
        return memory


class LabkitsArena:
    def __init__(self):
        self.arena = Arena(Segment.create)

    def allocate(self, nbytes):
        return self.arena.allocate(nbytes)


class Base:
    create = staticmethod(Segment.create)

    def __init__(self):
        self.free = defaultdict(list)

    def take(self, nbytes):
        free = self.free[nbytes]
        return free.pop() if free else self.create(nbytes)


class NothingComesBack(Base):
    def allocate(self, nbytes):
        return self.take(nbytes).exporter(0, nbytes)


class HoldsExporters(Base):
    def __init__(self):
        super().__init__()
        self.out = []

    def allocate(self, nbytes):
        memory = self.take(nbytes).exporter(0, nbytes)
        self.out.append(memory)
        return memory


class FreeAtOnce(Base):
    def allocate(self, nbytes):
        segment = self.take(nbytes)
        self.free[nbytes].append(segment)
        return segment.exporter(0, nbytes)


class OnlyOnce(Base):
    """A segment that was used again is forgotten."""

    def allocate(self, nbytes):
        is_used_again = bool(self.free[nbytes])
        segment = self.take(nbytes)
        memory = segment.exporter(0, nbytes)
        if not is_used_again:
            weakref.finalize(memory, self.free[nbytes].append, segment)
        return memory


class OneSize(Base):
    def take(self, nbytes):
        return self.free[0].pop() if self.free[0] else self.create(nbytes)

    def allocate(self, nbytes):
        segment = self.take(nbytes)
        memory = segment.exporter(0, min(nbytes, segment.nbytes))
        weakref.finalize(memory, self.free[0].append, segment)
        return memory


class Private(LabkitsArena):
    def __init__(self):
        self.arena = Arena(Segment.private)


class GivesTensors(LabkitsArena):
    def allocate(self, nbytes):
        return torch.frombuffer(self.arena.allocate(nbytes), dtype=torch.uint8)


RIGHT = {
    "06.pad_shared": [filled_first, through_numpy],
    "06.pool": [WithOneList, LabkitsArena],
}
WRONG = {
    "06.pad_shared": [
        (returns_nothing, "is there a `return`"),
        (naive, "memory of this process alone"),
        (moved_by_torch, "a segment of PyTorch's"),
        (built_elsewhere, "it has only moved"),
        (built_by_numpy, "also if torch does not see it"),
        (without_padding, "recycled memory is not zero"),
        (always_zero, "whatever `padding_value` says"),
        (without_dtype, "unless it is told the sequences' dtype"),
        (sequence_first, "the batch dimension comes first"),
        (padding_in_front, "The values come first in a row"),
        (flat, "then what a step of a sequence has"),
    ],
    "06.pool": [
        (NothingComesBack, "must be touched for the first time again"),
        (HoldsExporters, "The pool still holds the exporter"),
        (FreeAtOnce, "the same memory twice at once"),
        (OnlyOnce, "Some are used again, but not all"),
        (OneSize, "one free list for each size"),
        (Private, "memory of this process alone"),
        (GivesTensors, "nothing around it"),
    ],
}
