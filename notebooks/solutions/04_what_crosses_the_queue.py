"""Solutions to the exercises of `04_what_crosses_the_queue.ipynb`."""

import os
from multiprocessing.reduction import DupFd

import torch


def pickled_bytes(tensors):
    """How many bytes of the tensors' memory are in `pickle.dumps(tensors)`."""
    objects = {id(tensor): tensor for tensor in tensors}
    return sum(tensor.untyped_storage().nbytes() for tensor in objects.values())


def rebuild_storage(dup_fd, nbytes):
    """Make an UntypedStorage over the memory that the descriptor stands for."""
    fd = dup_fd.detach()
    try:
        return torch.UntypedStorage._new_shared_fd_cpu(fd, nbytes)
    finally:
        os.close(fd)


def reduce_storage(storage):
    """Move the storage into shared memory; return (function, arguments) that map it elsewhere."""
    if storage.nbytes() == 0:
        return torch.UntypedStorage, (0,)
    fd, nbytes = storage._share_fd_cpu_()
    handle = DupFd(fd)
    return rebuild_storage, (handle, nbytes)
