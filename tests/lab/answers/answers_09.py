import contextlib
import queue
import threading

from labkit.lab.on_device.preloaders import tensors_of


def by_tensors_of(device, batch, ready):
    stream = device.current_stream()
    stream.wait_event(ready)
    for tensor in tensors_of(batch):
        tensor.record_stream(stream)
    return batch


def by_walking(device, batch, ready):
    device.current_stream().wait_event(ready)
    parts = [batch]
    while parts:
        part = parts.pop()
        if hasattr(part, "record_stream"):
            part.record_stream(device.current_stream())
        elif isinstance(part, dict):
            parts.extend(part.values())
        elif isinstance(part, (list, tuple)):
            parts.extend(part)
    return batch


def only_gives(device, batch, ready):
    return batch


def program_waits(device, batch, ready):
    ready.synchronize()
    for tensor in tensors_of(batch):
        tensor.record_stream(device.current_stream())
    return batch


def only_waits(device, batch, ready):
    device.current_stream().wait_event(ready)
    return batch


def only_the_top(device, batch, ready):
    device.current_stream().wait_event(ready)
    for tensor in batch.values() if isinstance(batch, dict) else [batch]:
        if hasattr(tensor, "record_stream"):
            tensor.record_stream(device.current_stream())
    return batch


def returns_nothing(device, batch, ready):
    device.current_stream().wait_event(ready)
    for tensor in tensors_of(batch):
        tensor.record_stream(device.current_stream())


def never_lets_go(device, batch, ready, held=[]):  # noqa: B006 (that is the fault)
    device.current_stream().wait_event(ready)
    held.append(batch)
    return batch


def ahead_with_pairs(batches, queue_size):
    ready, done = queue.Queue(queue_size), threading.Event()

    def put(*item):
        while not done.is_set():
            with contextlib.suppress(queue.Full):
                return ready.put(item, timeout=0.02)

    def fill():
        try:
            for batch in batches:
                put("batch", batch)
                if done.is_set():
                    return
            put("end", None)
        except Exception as error:
            put("error", error)

    thread = threading.Thread(target=fill)
    thread.start()
    try:
        while True:
            kind, what = ready.get()
            if kind == "error":
                raise what
            if kind == "end":
                return
            yield what
    finally:
        done.set()
        thread.join()


def ahead_with_a_semaphore(batches, queue_size):
    room, there, items = threading.Semaphore(queue_size), threading.Semaphore(0), []
    done = False

    def fill():
        it = iter(batches)
        while not done:
            try:
                items.append((next(it), None))
            except StopIteration:
                items.append((None, StopIteration()))
            except Exception as error:
                items.append((None, error))
            there.release()
            if items and items[-1][1] is not None:
                return
            room.acquire()

    thread = threading.Thread(target=fill)
    thread.start()
    try:
        while True:
            there.acquire()
            batch, error = items.pop(0)
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            room.release()
            yield batch
    finally:
        done = True
        room.release()
        thread.join()


def _with_queue(batches, ready, end, fill_end=True, catch=True):
    def fill():
        try:
            for batch in batches:
                ready.put(batch)
        except Exception as error:
            if catch:
                ready.put(error)
                return
        ready.put(end)

    thread = threading.Thread(target=fill, daemon=True)
    thread.start()
    while (item := ready.get()) is not end:
        if isinstance(item, Exception):
            raise item
        yield item


def leaves_the_thread(batches, queue_size):
    yield from _with_queue(batches, queue.Queue(queue_size), object())


def none_is_the_end(batches, queue_size):
    yield from _with_queue(batches, queue.Queue(queue_size), None)


def swallows_errors(batches, queue_size):
    yield from _with_queue(batches, queue.Queue(queue_size), object(), catch=False)


def without_a_bound(batches, queue_size):
    yield from _with_queue(batches, queue.Queue(), object())


def without_a_thread(batches, queue_size):
    yield from batches


def joins_without_making_room(batches, queue_size):
    ready, end = queue.Queue(queue_size), object()

    def fill():
        try:
            for batch in batches:
                ready.put(batch)
            ready.put(end)
        except Exception as error:
            ready.put(error)

    thread = threading.Thread(target=fill, daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not end:
            if isinstance(item, Exception):
                raise item
            yield item
    finally:
        thread.join()


def loads_the_rest(batches, queue_size):
    ready, end = queue.Queue(queue_size), object()

    def fill():
        try:
            for batch in batches:
                ready.put(batch)
            ready.put(end)
        except Exception as error:
            ready.put(error)

    thread = threading.Thread(target=fill, daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not end:
            if isinstance(item, Exception):
                raise item
            yield item
    finally:
        while thread.is_alive():
            with contextlib.suppress(queue.Empty):
                ready.get(timeout=0.01)


RIGHT = {
    "09.hand_over": [by_tensors_of, by_walking],
    "09.ahead": [ahead_with_pairs, ahead_with_a_semaphore],
}
WRONG = {
    "09.hand_over": [
        (only_gives, "The step ran before the copy"),
        (program_waits, "So the program waited"),
        (only_waits, "was given to the next copy while a step"),
        (only_the_top, "lie deeper than others"),
        (returns_nothing, "works with what is returned"),
        (never_lets_go, "Somebody still holds the batches"),
    ],
    "09.ahead": [
        (leaves_the_thread, "a queue that nobody empties any more"),
        (none_is_the_end, "A batch may be None, 0 or empty"),
        (swallows_errors, "was cut short and nobody was told"),
        (without_a_bound, "all of them pile up"),
        (without_a_thread, "belongs into the thread"),
        (joins_without_making_room, "and the thread for room in the queue"),
        (loads_the_rest, "All the rest was loaded for nobody"),
    ],
}
