"""Solutions to the exercises of notebook 12."""

from torch.utils.data import IterableDataset, get_worker_info


def rank_indices(length, rank, ranks, drop_last):
    """What `DistributedSampler` gives this rank, without shuffling: a list of indices."""
    each = length // ranks if drop_last else -(-length // ranks)
    indices = list(range(length)) * ranks
    return indices[: each * ranks][rank::ranks]


class Sharded(IterableDataset):
    """Gives 0 … length - 1: each once, by one worker of one rank; the ranks give equal shares."""

    def __init__(self, length, rank, ranks):
        self.length, self.rank, self.ranks = length, rank, ranks

    def __iter__(self):
        """What this worker gives; without workers, what this rank does."""
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        number = worker * self.ranks + self.rank
        return iter(range(number, self.length, self.ranks * workers))
