"""Solutions to the exercises of `03_the_worker_loop.ipynb`."""

import queue

from torch._utils import ExceptionWrapper
from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.data._utils.worker import _IterableDatasetStopIteration as IterableEnd
from torch.utils.data._utils.worker import _ResumeIteration as ResumeIteration


def worker_loop(create_fetcher, index_queue, data_queue, done_event, worker_id, parent_is_alive):
    """Do the tasks from the index queue until `None` comes or the parent is dead."""
    fetcher = create_fetcher()
    iteration_end = False
    while parent_is_alive():
        try:
            task = index_queue.get(timeout=0.5)
        except queue.Empty:
            continue
        if isinstance(task, ResumeIteration):
            data_queue.put((task, None))
            fetcher = create_fetcher()
            iteration_end = False
            continue
        if task is None:
            return
        if done_event.is_set() or iteration_end:
            continue
        idx, indices = task
        try:
            data = fetcher.fetch(indices)
        except StopIteration:
            data = IterableEnd(worker_id)
            iteration_end = True
        except Exception:
            data = ExceptionWrapper(where=f"in worker {worker_id}")
        data_queue.put((idx, data))
        del task, indices, data  # or the batch stays in memory until the next one is made


class Sharded(IterableDataset):
    """The numbers 0 to length - 1, each from one worker."""

    def __init__(self, length):
        self.length = length

    def __iter__(self):
        """Ask who you are, and give your part."""
        info = get_worker_info()
        if info is None:
            return iter(range(self.length))
        return iter(range(info.id, self.length, info.num_workers))


def in_order(results):
    """Yield the batches of `results`, pairs (idx, batch) as they arrive, in the order of idx."""
    buffer = {}
    due = 0
    for idx, batch in results:
        buffer[idx] = batch
        del batch
        while due in buffer:
            yield buffer.pop(due)
            due += 1
