import math

from torch.utils.data import DistributedSampler, IterableDataset, get_worker_info

# The indices of a rank


def by_repeating(length, rank, ranks, drop_last):
    each = length // ranks if drop_last else math.ceil(length / ranks)
    return [(rank + step * ranks) % length for step in range(each)]


def by_the_sampler(length, rank, ranks, drop_last):
    return DistributedSampler(range(length), ranks, rank, shuffle=False, drop_last=drop_last)


def unpadded(length, rank, ranks, drop_last):
    return list(range(rank, length, ranks))


def never_drops(length, rank, ranks, drop_last):
    return [(rank + step * ranks) % length for step in range(math.ceil(length / ranks))]


def pads_with_the_last(length, rank, ranks, drop_last):
    each = length // ranks if drop_last else math.ceil(length / ranks)
    return [min(rank + step * ranks, length - 1) for step in range(each)]


def pads_beyond_the_end(length, rank, ranks, drop_last):
    each = length // ranks if drop_last else math.ceil(length / ranks)
    return [rank + step * ranks for step in range(each)]


def pads_once_round(length, rank, ranks, drop_last):
    each = length // ranks if drop_last else math.ceil(length / ranks)
    indices = list(range(length))
    indices += indices[: max(0, each * ranks - length)]
    return indices[: each * ranks][rank::ranks]


def in_blocks(length, rank, ranks, drop_last):
    each = length // ranks if drop_last else math.ceil(length / ranks)
    return [index % length for index in range(rank * each, (rank + 1) * each)]


def forgets_to_return(length, rank, ranks, drop_last):
    list(range(rank, length, ranks))


# The shard of one worker of one rank


class _Sharded(IterableDataset):
    def __init__(self, length, rank, ranks):
        self.length, self.rank, self.ranks = length, rank, ranks

    @property
    def worker(self):
        info = get_worker_info()
        return (0, 1) if info is None else (info.id, info.num_workers)


class InTurn(_Sharded):
    def __iter__(self):
        worker, workers = self.worker
        return iter(range(worker * self.ranks + self.rank, self.length, self.ranks * workers))


class RankThenWorker(_Sharded):
    """The rank's samples first, of which each worker takes its part."""

    def __iter__(self):
        worker, workers = self.worker
        yield from list(range(self.length))[self.rank :: self.ranks][worker::workers]


class All(_Sharded):
    def __iter__(self):
        return iter(range(self.length))


class ByRank(_Sharded):
    def __iter__(self):
        return iter(range(self.rank, self.length, self.ranks))


class ByWorker(_Sharded):
    def __iter__(self):
        worker, workers = self.worker
        return iter(range(worker, self.length, workers))


class RankAfterRank(_Sharded):
    def __iter__(self):
        worker, workers = self.worker
        return iter(range(self.rank * workers + worker, self.length, self.ranks * workers))


class SameNumber(_Sharded):
    def __iter__(self):
        worker, workers = self.worker
        return iter(range(self.rank + worker, self.length, self.ranks * workers))


class WholeDivision(_Sharded):
    def __iter__(self):
        worker, workers = self.worker
        each = self.length // (self.ranks * workers)
        number = worker * self.ranks + self.rank
        return iter(range(number * each, (number + 1) * each))


class OnlyWithWorkers(_Sharded):
    def __iter__(self):
        info = get_worker_info()
        number = info.id * self.ranks + self.rank
        return iter(range(number, self.length, self.ranks * info.num_workers))


RIGHT = {"12.rank_indices": [by_repeating, by_the_sampler], "12.shard": [InTurn, RankThenWorker]}
WRONG = {
    "12.rank_indices": [
        (unpadded, "pad the list before you take a part of it"),
        (never_drops, "what is left over is dropped"),
        (pads_with_the_last, "PyTorch pads with the samples from the beginning"),
        (pads_beyond_the_end, "which ones are padded with"),
        (pads_once_round, "must go round the list more than once"),
        (in_blocks, "like cards"),
        (forgets_to_return, "It must return the list"),
    ],
    "12.shard": [
        (All, "Every worker of every rank gives all of it"),
        (ByRank, "must ask which worker it is"),
        (ByWorker, "knows nothing of other ranks"),
        (RankAfterRank, "neighbours are of different ranks"),
        (SameNumber, "Two of them begin at the same sample"),
        (WholeDivision, "what a whole division leaves over"),
        (OnlyWithWorkers, "then there is worker 0 of 1"),
    ],
}
