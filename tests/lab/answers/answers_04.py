"""Answers to the exercises of notebook 04."""

import os
import pickle
import tempfile
from multiprocessing.reduction import DupFd

import numpy as np
import torch
from torch.multiprocessing import reductions


def over_a_dict(tensors):
    seen = {}
    for tensor in tensors:
        seen[id(tensor)] = tensor.untyped_storage().nbytes()
    return sum(seen.values())


def by_identity(tensors):
    total = 0
    for place, tensor in enumerate(tensors):
        if not any(tensor is earlier for earlier in tensors[:place]):
            total += len(tensor.untyped_storage())
    return total


def by_numpy(tensors):
    sizes = {id(tensor): tensor.untyped_storage().nbytes() for tensor in tensors}
    return np.sum(list(sizes.values()), dtype=np.int64)


def the_whole_message(tensors):
    return len(pickle.dumps(tensors))


def a_little_more(tensors):
    return over_a_dict(tensors) + 100 * len(tensors)


def what_is_seen(tensors):
    return sum(tensor.nbytes for tensor in tensors)


def four_bytes_each(tensors):
    return sum(4 * tensor.numel() for tensor in tensors)


def every_tensor(tensors):
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors)


def every_storage(tensors):
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())


def of_the_first(tensors):
    return tensors[0].untyped_storage().nbytes()


def in_megabytes(tensors):
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors) / 1e6


def mapped(dup_fd, nbytes):
    fd = dup_fd.detach()
    storage = torch.UntypedStorage._new_shared_fd_cpu(fd, nbytes)
    os.close(fd)
    return storage


def empty():
    return torch.UntypedStorage()


def by_descriptor(storage):
    if not len(storage):
        return empty, ()
    fd, nbytes = storage._share_fd_cpu_()
    return mapped, (DupFd(fd), nbytes)


def as_pytorch_does(storage):
    return reductions.reduce_storage(storage)


def of_bytes(data):
    storage = torch.UntypedStorage(len(data))
    torch.empty(0, dtype=torch.uint8).set_(storage).copy_(torch.tensor(list(data)))
    return storage


def the_bytes(storage):
    return of_bytes, (bytes(storage),)


def a_storage(storage):
    return storage.share_memory_()


def from_number(fd, nbytes):
    return torch.UntypedStorage._new_shared_fd_cpu(fd, nbytes)


def number_of_the_descriptor(storage):
    return from_number, storage._share_fd_cpu_()


def from_file(path, nbytes):
    return torch.UntypedStorage.from_file(path, shared=True, nbytes=nbytes)


def a_copy_in_a_file(storage):
    if not storage.nbytes():
        return empty, ()
    _, path = tempfile.mkstemp()
    from_file(path, storage.nbytes()).copy_(storage)
    return from_file, (path, storage.nbytes())


def no_case_for_empty(storage):
    fd, nbytes = storage._share_fd_cpu_()
    return mapped, (DupFd(fd) if fd >= 0 else None, nbytes)


def left_open(dup_fd, nbytes):
    return torch.UntypedStorage._new_shared_fd_cpu(dup_fd.detach(), nbytes)


def closes_its_own(storage):
    fd, nbytes = storage._share_fd_cpu_()
    if not nbytes:
        return empty, ()
    handle = DupFd(fd)
    os.close(fd)
    return mapped, (handle, nbytes)


def never_closed(storage):
    function, arguments = by_descriptor(storage)
    return (left_open if arguments else function), arguments


def as_typed(dup_fd, nbytes):
    return torch.storage.TypedStorage(wrap_storage=mapped(dup_fd, nbytes), dtype=torch.uint8)


def typed(storage):
    function, arguments = by_descriptor(storage)
    return (as_typed if arguments else function), arguments


def only_once(storage):
    if storage.is_shared():
        storage = storage.clone()
    return by_descriptor(storage)


def by_name(manager, name, nbytes):
    return torch.UntypedStorage._new_shared_filename_cpu(manager, name, nbytes)


def a_name_that_nobody_keeps(storage):
    if not storage.nbytes():
        return empty, ()
    return by_name, storage._share_filename_cpu_()


def ends(dup_fd, nbytes):
    os._exit(1)


def ends_the_other_process(storage):
    _, arguments = by_descriptor(storage)
    return ends, arguments


def an_open_file(storage):
    return mapped, (open(os.devnull), storage.nbytes())


RIGHT = {
    "04.pickled_bytes": [over_a_dict, by_identity, by_numpy],
    "04.reduce_storage": [by_descriptor, as_pytorch_does],
}
WRONG = {
    "04.pickled_bytes": [
        (what_is_seen, "A view brings its whole storage, all that"),
        (four_bytes_each, "`[batch.double()]`"),
        (the_whole_message, "That is the whole message"),
        (a_little_more, "1,200,100 bytes"),
        (every_tensor, "The second one is the *same object*"),
        (every_storage, "Two views of one storage: plain pickle writes"),
        (of_the_first, "Nothing is pickled"),
        (in_megabytes, "A whole number of bytes was asked for"),
    ],
    "04.reduce_storage": [
        (the_bytes, "The memory itself travels"),
        (a_storage, "A reducer returns a tuple of two"),
        (number_of_the_descriptor, "does not, unless the descriptor itself is handed over"),
        (a_copy_in_a_file, "There are two memories now"),
        (no_case_for_empty, "there is nothing to map"),
        (closes_its_own, "is the storage's own descriptor"),
        (never_closed, "it is yours to close once the storage is made"),
        (a_name_that_nobody_keeps, "what keeps the memory until it is mapped?"),
        (ends_the_other_process, "the other process has ended"),
        (typed, "makes an UntypedStorage of as many bytes"),
        (only_once, "Each message made a memory of its own"),
        (an_open_file, "The arguments are pickled in turn"),
    ],
}
