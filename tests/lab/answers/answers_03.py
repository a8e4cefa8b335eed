import heapq
import queue

from torch._utils import ExceptionWrapper
from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.data._utils.worker import (
    _IterableDatasetStopIteration,
    _ResumeIteration,
)

from labkit.errors import WorkerException


def as_pytorch_has_it(
    create_fetcher, index_queue, data_queue, done_event, worker_id, parent_is_alive
):
    iteration_end = False
    fetcher = create_fetcher()
    while parent_is_alive():
        try:
            r = index_queue.get(timeout=5.0)
        except queue.Empty:
            continue
        if isinstance(r, _ResumeIteration):
            data_queue.put((r, None))
            iteration_end = False
            fetcher = create_fetcher()
            continue
        elif r is None:
            assert done_event.is_set() or iteration_end
            break
        elif done_event.is_set() or iteration_end:
            continue
        idx, index = r
        try:
            data = fetcher.fetch(index)
        except Exception as e:
            if isinstance(e, StopIteration):
                data = _IterableDatasetStopIteration(worker_id)
                iteration_end = True
            else:
                data = ExceptionWrapper(where=f"in DataLoader worker process {worker_id}")
        data_queue.put((idx, data))
        del data, idx, index, r


def with_helpers(create_fetcher, index_queue, data_queue, done_event, worker_id, parent_is_alive):
    state = {"fetcher": create_fetcher(), "ended": False}

    def outcome(indices):
        try:
            return state["fetcher"].fetch(indices)
        except StopIteration:
            state["ended"] = True
            return _IterableDatasetStopIteration(worker_id)
        except Exception as error:
            return WorkerException(error, worker_id, indices)

    def handle(task):
        if isinstance(task, _ResumeIteration):
            state.update(fetcher=create_fetcher(), ended=False)
            data_queue.put((task, None))
        elif not (state["ended"] or done_event.is_set()):
            data_queue.put((task[0], outcome(task[1])))

    while True:
        if not parent_is_alive():
            return
        try:
            task = index_queue.get(True, 0.2)
        except queue.Empty:
            continue
        if task is None:
            return
        handle(task)


def loop(
    *,
    pair=lambda idx, indices, data: (idx, data),
    once=False,
    at_the_end=False,
    stops=True,
    wrap=lambda error, worker_id: ExceptionWrapper(where=f"in worker {worker_id}"),
    wraps_stop=False,
    marks_end=True,
    end_stays=False,
    acknowledges=True,
    recreates=True,
    forgets_end=True,
    looks_at_done=True,
    timeout=0.5,
    watches=True,
    ends_with_done=False,
):
    """A worker loop with a mistake, by what differs from the right one."""

    def worker_loop(
        create_fetcher, index_queue, data_queue, done_event, worker_id, parent_is_alive
    ):
        fetcher, ended, kept = create_fetcher(), False, []
        while parent_is_alive() or not watches:
            try:
                task = index_queue.get(timeout=timeout)
            except queue.Empty:
                continue
            if isinstance(task, _ResumeIteration):
                if acknowledges:
                    data_queue.put((task, None))
                if recreates:
                    fetcher = create_fetcher()
                if forgets_end:
                    ended = False
                continue
            if task is None:
                if stops:
                    break
                continue
            if done_event.is_set() and ends_with_done:
                break
            if ended or (done_event.is_set() and looks_at_done):
                continue
            idx, indices = task
            try:
                data = fetcher.fetch(indices)
            except StopIteration as error:
                if end_stays is None:
                    return
                data = _IterableDatasetStopIteration(worker_id if marks_end else None)
                if wraps_stop:
                    data = wrap(error, worker_id)
                ended = not end_stays
            except Exception as error:
                if wrap is None:
                    raise
                data = wrap(error, worker_id)
                if data is None:
                    continue
            kept.append(pair(idx, indices, data))
            if not at_the_end:
                data_queue.put(kept.pop())
            if once:
                return
        for result in kept:
            data_queue.put(result)

    return worker_loop


def ends_at_an_empty_queue(
    create_fetcher, index_queue, data_queue, done_event, worker_id, parent_is_alive
):
    right = loop()

    class Queue:
        def get(self, timeout):
            try:
                return index_queue.get(timeout=timeout)
            except queue.Empty:
                raise RuntimeError("nothing to do") from None

    right(create_fetcher, Queue(), data_queue, done_event, worker_id, parent_is_alive)


class Counting(IterableDataset):
    def __init__(self, length):
        self.length = length

    def __iter__(self):
        return iter(range(self.length))


class Strided(Counting):
    def __iter__(self):
        info = get_worker_info()
        for number in range(self.length):
            if info is None or number % info.num_workers == info.id:
                yield number


class InChunks(Counting):
    def __iter__(self):
        info = get_worker_info()
        if info is None:
            return iter(range(self.length))
        share = -(-self.length // info.num_workers)
        first = info.id * share
        return iter(range(first, min(first + share, self.length)))


class InFloorChunks(Counting):
    def __iter__(self):
        info = get_worker_info()
        if info is None:
            return iter(range(self.length))
        share = self.length // info.num_workers
        return iter(range(info.id * share, (info.id + 1) * share))


class InCeilChunksToTheEnd(Counting):
    def __iter__(self):
        info = get_worker_info()
        if info is None:
            return iter(range(self.length))
        share = -(-self.length // info.num_workers)
        return iter(range(info.id * share, (info.id + 1) * share))


class OnlyInWorkers(Counting):
    def __iter__(self):
        info = get_worker_info()
        return iter(range(info.id, self.length, info.num_workers))


class ShardedTooEarly(Counting):
    def __init__(self, length):
        info = get_worker_info()
        self.length = length
        self.first, self.step = (info.id, info.num_workers) if info else (0, 1)

    def __iter__(self):
        return iter(range(self.first, self.length, self.step))


class FirstWorkerDoesAll(Counting):
    def __iter__(self):
        info = get_worker_info()
        return iter(range(self.length)) if info is None or info.id == 0 else iter(())


class Overlapping(Counting):
    def __iter__(self):
        info = get_worker_info()
        if info is None:
            return iter(range(self.length))
        share = self.length // info.num_workers + 1
        first = max(0, info.id * share - info.id)
        return iter(range(first, min(first + share, self.length)))


def by_heap(results):
    early, due = [], 0
    for arrival in results:
        heapq.heappush(early, arrival)
        del arrival
        while early and early[0][0] == due:
            due += 1
            yield heapq.heappop(early)[1]


class InOrder:
    def __init__(self, results):
        self.results, self.early, self.due = iter(results), {}, 0

    def __iter__(self):
        return self

    def __next__(self):
        while self.due not in self.early:
            idx, self.early[idx] = next(self.results)
        self.due += 1
        return self.early.pop(self.due - 1)


def with_class(results):
    return InOrder(results)


def as_they_come(results):
    for _, batch in results:
        yield batch


def sorted_first(results):
    yield from (batch for _, batch in sorted(results, key=lambda pair: pair[0]))


def a_list(results):
    return [batch for _, batch in sorted(results, key=lambda pair: pair[0])]


def one_an_arrival(results):
    early, due = {}, 0
    for idx, batch in results:
        early[idx] = batch
        del batch
        if due in early:
            yield early.pop(due)
            due += 1


def keeps_them(results):
    early, due = {}, 0
    for idx, batch in results:
        early[idx] = batch
        while due in early:
            yield early[due]
            due += 1


def with_numbers(results):
    early, due = {}, 0
    for idx, batch in results:
        early[idx] = batch
        while due in early:
            yield due, early.pop(due)
            due += 1


RIGHT = {
    "03.worker_loop": [as_pytorch_has_it, with_helpers],
    "03.shard": [Strided, InChunks],
    "03.reorder": [by_heap, with_class],
}
WRONG = {
    "03.worker_loop": [
        # 1
        (loop(pair=lambda idx, indices, data: data), "the pair `(idx, data)`"),
        (loop(pair=lambda idx, indices, data: (indices, data)), "that the task came with"),
        (loop(once=True), "One task is done, and then?"),
        (loop(at_the_end=True), "Put each result as soon as it is there"),
        # 2
        (loop(stops=False), "leave the loop there"),
        # 3
        (loop(wrap=None), "ValueError: sample 4 is broken"),
        (loop(wrap=lambda error, worker_id: error), "A bare exception"),
        (loop(wrap=lambda error, worker_id: None), "hears nothing"),
        (loop(wrap=lambda error, worker_id: str(error)), "would take that for a batch"),
        (loop(wrap=lambda *_: ExceptionWrapper(where="in a worker")), "Which worker was it?"),
        # 4
        (loop(wraps_stop=True), "catch it before the others"),
        (loop(end_stays=True), "One is enough"),
        (loop(end_stays=None), "it may yet be asked to start anew"),
        (loop(marks_end=False), "no more tasks are sent to that"),
        # 5
        (loop(acknowledges=False), "waits for the acknowledgement"),
        (loop(recreates=False), "a new epoch needs a new fetcher"),
        (loop(forgets_end=False), "what did you note down"),
        # 6
        (loop(looks_at_done=False), "the work is in vain"),
        (loop(ends_with_done=True), "`done_event` alone ends nothing"),
        (loop(timeout=None), "it waits for ever"),
        (loop(watches=False), "it looks into the empty index queue for ever"),
        (ends_at_an_empty_queue, "nothing to do"),
    ],
    "03.shard": [
        (Counting, "each sample 2 times"),
        (InFloorChunks, "over 3 workers"),
        (InCeilChunksToTheEnd, "not in the dataset"),
        (OnlyInWorkers, "'NoneType' object has no attribute 'id'"),
        (FirstWorkerDoesAll, "one worker has most of the work"),
        (Overlapping, "Two shares overlap"),
    ],
    "03.reorder": [
        (as_they_come, "It must wait in a buffer"),
        (sorted_first, "waits for nothing"),
        (a_list, "A list is there only when all has arrived"),
        (one_an_arrival, "One arrival can free several"),
        (keeps_them, "Let go of what is given"),
        (with_numbers, "its number has done its work"),
    ],
}
