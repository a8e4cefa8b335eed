"""Solutions to the exercises of `07_threads_and_the_gil.ipynb`."""

from collections import deque
from concurrent.futures import ThreadPoolExecutor


def seen_here(way, kind):
    """What is seen here in an object of value 0, when `way` has added 1 to it: 0 or 1."""
    if way == "thread" or kind in ("shared tensor", "Value"):
        return 1
    if kind == "tensor" and way == "spawn":
        return 1
    return 0


def thread_loader(fetch, tasks, threads, ahead):
    """Yield `fetch(task)` for each task, in order, with at most `ahead` handed out."""
    waiting = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for task in tasks:
            waiting.append(pool.submit(fetch, task))
            if len(waiting) == ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
