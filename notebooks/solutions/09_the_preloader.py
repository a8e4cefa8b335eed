"""Solutions to the exercises of `09_the_preloader.ipynb`."""

import contextlib
import queue
import threading

from labkit.lab.on_device.preloaders import tensors_of


def hand_over(device, batch, ready):
    """Give the batch to the current stream, which works with it when `ready` has happened."""
    stream = device.current_stream()
    stream.wait_event(ready)
    for tensor in tensors_of(batch):
        tensor.record_stream(stream)
    return batch


def ahead(batches, queue_size):
    """Give the batches, which a thread takes in advance: at most `queue_size` are ready."""
    ready, done, end = queue.Queue(queue_size), threading.Event(), object()

    def fill():
        try:
            for batch in batches:
                ready.put((batch, None))
                if done.is_set():
                    return
            ready.put((end, None))
        except Exception as error:
            ready.put((end, error))

    thread = threading.Thread(target=fill, daemon=True)
    thread.start()
    try:
        while True:
            batch, error = ready.get()
            if error is not None:
                raise error
            if batch is end:
                return
            yield batch
    finally:
        done.set()
        while thread.is_alive():
            with contextlib.suppress(queue.Empty):
                ready.get(timeout=0.01)  # it may wait for room
