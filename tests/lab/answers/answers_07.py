import queue
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import islice


def by_table(way, kind):
    seen = {"thread": {"plain object", "numpy array", "tensor"}, "spawn": {"tensor"}}
    return int(kind in {"shared tensor", "Value"} | seen.get(way, set()))


def by_rules(way, kind):
    if way == "fork":
        return 1 if kind in ("shared tensor", "Value") else 0
    return 1 if way == "thread" or kind not in ("plain object", "numpy array") else 0


def in_bools(way, kind):
    return bool(by_rules(way, kind))


def all_copied(way, kind):
    return 1 if way == "thread" else int(kind == "Value")


def processes_share(way, kind):
    return 1


def tensors_are_objects_like_others(way, kind):
    return 1 if way == "thread" else int(kind in ("shared tensor", "Value"))


def tensors_are_always_shared(way, kind):
    return 1 if way == "thread" else int(kind in ("tensor", "shared tensor", "Value"))


def threads_copy(way, kind):
    return int(kind in ("shared tensor", "Value"))


def in_words(way, kind):
    return "shared" if way == "thread" else "copied"


def primed(fetch, tasks, threads, ahead):
    tasks = iter(tasks)
    pool = ThreadPoolExecutor(threads)
    waiting = deque(pool.submit(fetch, task) for task in islice(tasks, ahead))
    try:
        while waiting:
            batch = waiting.popleft().result()
            waiting.extend(pool.submit(fetch, task) for task in islice(tasks, 1))
            yield batch
    finally:
        for future in waiting:
            future.cancel()
        pool.shutdown()


def waits_before_it_hands_out(fetch, tasks, threads, ahead):
    waiting, pool = deque(), ThreadPoolExecutor(threads)
    try:
        for task in tasks:
            if len(waiting) == ahead:
                yield waiting.popleft().result()
            waiting.append(pool.submit(fetch, task))
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def with_threads_by_hand(fetch, tasks, threads, ahead):
    todo, waiting = queue.SimpleQueue(), deque()

    def work():
        while (item := todo.get()) is not None:
            task, done = item
            try:
                done.put((fetch(task), None))
            except Exception as error:
                done.put((None, error))

    def result():
        batch, error = waiting.popleft().get()
        if error is not None:
            raise error
        return batch

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    try:
        for task in tasks:
            waiting.append(queue.SimpleQueue())
            todo.put((task, waiting[-1]))
            if len(waiting) == ahead:
                yield result()
        while waiting:
            yield result()
    finally:
        while not todo.empty():
            todo.get()
        for _ in workers:
            todo.put(None)
        for worker in workers:
            worker.join()


def one_after_the_other(fetch, tasks, threads, ahead):
    for task in tasks:
        yield fetch(task)


def all_at_once(fetch, tasks, threads, ahead):
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(fetch, tasks)


def as_they_come(fetch, tasks, threads, ahead):
    with ThreadPoolExecutor(threads) as pool:
        for future in as_completed([pool.submit(fetch, task) for task in tasks]):
            yield future.result()


def as_a_list(fetch, tasks, threads, ahead):
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(fetch, tasks))


def not_cancelled(fetch, tasks, threads, ahead):
    waiting = deque()
    with ThreadPoolExecutor(threads) as pool:
        for task in tasks:
            waiting.append(pool.submit(fetch, task))
            if len(waiting) == ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def one_too_many(fetch, tasks, threads, ahead):
    waiting, pool = deque(), ThreadPoolExecutor(threads)
    try:
        for task in tasks:
            waiting.append(pool.submit(fetch, task))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def never_shut_down(fetch, tasks, threads, ahead):
    waiting = deque()
    pool = ThreadPoolExecutor(threads)
    for task in tasks:
        waiting.append(pool.submit(fetch, task))
        if len(waiting) == ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def in_rounds(fetch, tasks, threads, ahead):
    tasks = iter(tasks)
    pool = ThreadPoolExecutor(threads)
    try:
        while handed_out := [pool.submit(fetch, task) for task in islice(tasks, ahead)]:
            yield from [future.result() for future in handed_out]
    finally:
        pool.shutdown(cancel_futures=True)


def errors_left_out(fetch, tasks, threads, ahead):
    waiting = deque()
    pool = ThreadPoolExecutor(threads)

    def good():
        future = waiting.popleft()
        return [] if future.exception() else [future.result()]

    try:
        for task in tasks:
            waiting.append(pool.submit(fetch, task))
            if len(waiting) == ahead:
                yield from good()
        while waiting:
            yield from good()
    finally:
        pool.shutdown(cancel_futures=True)


def errors_at_once(fetch, tasks, threads, ahead):
    waiting = deque()
    pool = ThreadPoolExecutor(threads)

    def first():
        batch = waiting.popleft().result()
        for future in waiting:
            if future.done():
                future.result()
        return batch

    try:
        for task in tasks:
            waiting.append(pool.submit(fetch, task))
            if len(waiting) == ahead:
                yield first()
        while waiting:
            yield first()
    finally:
        pool.shutdown(cancel_futures=True)


RIGHT = {
    "07.copied_or_shared": [by_table, by_rules, in_bools],
    "07.thread_loader": [primed, waits_before_it_hands_out, with_threads_by_hand],
}
WRONG = {
    "07.copied_or_shared": [
        (all_copied, "both lie over the same shared memory"),
        (processes_share, "Its write stays there"),
        (tensors_are_objects_like_others, "torch has its own way to pickle"),
        (tensors_are_always_shared, "nobody pickles it"),
        (threads_copy, "A thread is in this process"),
        (in_words, "The number 0 or 1"),
    ],
    "07.thread_loader": [
        (one_after_the_other, "one fetch after the other"),
        (all_at_once, "batches pile up in memory"),
        (as_they_come, "not that in which fetches end"),
        (as_a_list, "a list"),
        (not_cancelled, "for nobody, and the `break` waits"),
        (one_too_many, "one more than `ahead`"),
        (never_shut_down, "thread still there"),
        (in_rounds, "the threads should fetch the next ones"),
        (errors_left_out, "nobody is told"),
        (errors_at_once, "those before it are good"),
    ],
}
