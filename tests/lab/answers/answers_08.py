"""Answers to the exercises of notebook 08: right ones, and wrong ones with words from their
explanation.
"""

from itertools import chain


def by_three_conditions(memory, part, non_blocking):
    return non_blocking and memory == "pinned" and part in ("all", "the first rows")


def by_table(memory, part, non_blocking):
    if memory == "pageable" or not non_blocking:
        return False
    return {"all": True, "the first rows": True, "every second column": False}[part]


def as_it_is_told(memory, part, non_blocking):
    return non_blocking


def pinned_is_enough(memory, part, non_blocking):
    return memory == "pinned"


def gaps_do_not_matter(memory, part, non_blocking):
    return memory == "pinned" and non_blocking


def parts_are_never_pinned(memory, part, non_blocking):
    return memory == "pinned" and non_blocking and part == "all"


def in_words(memory, part, non_blocking):
    return "early" if non_blocking else "late"


def stream_waits_then_host(device, batches, step):
    copying, copies, results = device.new_stream(), [], []
    for batch in batches:
        with device.stream(copying):
            copies.append(device.to_device(batch))
        ready = copying.record_event()
        device.current_stream().wait_event(ready)
        results.append(step(copies[-1]))
        ready.synchronize()
    return [result.item() for result in results]


def host_waits_for_each_copy(device, batches, step):
    copying, copies, results = device.new_stream(), [], []
    for batch in batches:
        with device.stream(copying):
            copies.append(device.to_device(batch))
        copying.synchronize()
        results.append(step(copies[-1]))
    return [result.item() for result in results]


def mending(before_copy=None, after_copy=None, after_step=None):
    """The loop, with something done at three places: called with device, copying stream, notes."""

    def mended(device, batches, step):
        copying, copies, results, notes = device.new_stream(), [], [], {}
        nothing = lambda *_: None  # noqa: E731
        for batch in batches:
            (before_copy or nothing)(device, copying, notes)
            with device.stream(copying):
                copies.append(device.to_device(batch))
            (after_copy or nothing)(device, copying, notes)
            results.append(step(copies[-1]))
            (after_step or nothing)(device, copying, notes)
        device.synchronize()
        return [result.item() for result in results]

    return mended


def record(device, copying, notes):
    notes["ready"] = copying.record_event()


def record_here(device, copying, notes):
    notes["ready"] = device.current_stream().record_event()
    device.current_stream().wait_event(notes["ready"])


def wait(device, copying, notes):
    device.current_stream().wait_event(notes["ready"])


def record_and_wait(device, copying, notes):
    record(device, copying, notes)
    wait(device, copying, notes)


def copying_waits(device, copying, notes):
    record(device, copying, notes)
    copying.wait_event(notes["ready"])


not_mended = mending()
recorded_too_early = mending(before_copy=record, after_copy=wait)
recorded_on_the_steps_stream = mending(after_copy=record_here)
the_copies_wait = mending(after_copy=copying_waits)
waited_too_late = mending(after_copy=record, after_step=wait)
the_buffer_forgotten = mending(after_copy=record_and_wait)


def nothing_returned(device, batches, step):
    for batch in batches:
        step(device.to_device(batch, non_blocking=False)).item()


def with_a_generator(device, batches, step):
    copying, compute = device.new_stream(), device.current_stream()

    def copied():
        for batch in batches:
            with device.stream(copying):
                there = device.to_device(batch)
            yield there, copying.record_event()

    ahead, results = copied(), []
    following = next(ahead, None)
    while following is not None:
        there, ready = following
        following = next(ahead, None)
        compute.wait_event(ready)
        results.append(step(there))
    return results


def with_a_sentinel(device, batches, step):
    copying, results, kept = device.new_stream(), [], None
    for batch in chain(batches, [None]):
        following = None
        if batch is not None:
            with device.stream(copying):
                there = device.to_device(batch)
                following = there, copying.record_event()
        if kept is not None:
            device.current_stream().wait_event(kept[1])
            results.append(step(kept[0]))
        kept = following
    return results


def one_after_the_other(device, batches, step):
    copying, results = device.new_stream(), []
    for batch in batches:
        with device.stream(copying):
            there = device.to_device(batch)
            ready = copying.record_event()
        device.current_stream().wait_event(ready)
        results.append(step(there))
    return results


def ahead(copying_of=lambda device: device.new_stream(), wait=True, host=False, last=True):
    """The prefetching loop, with a piece left out or changed."""

    def overlapped(device, batches, step):
        copying, results, kept = copying_of(device), [], None
        for batch in batches:
            with device.stream(copying):
                following = device.to_device(batch), copying.record_event()
            if host:
                following[1].synchronize()
            if kept is not None:
                if wait:
                    device.current_stream().wait_event(kept[1])
                results.append(step(kept[0]))
            kept = following
        if kept is not None and last:
            device.current_stream().wait_event(kept[1])
            results.append(step(kept[0]))
        return results

    return overlapped


def waits_for_the_next_one(device, batches, step):
    copying, results, kept = device.new_stream(), [], None
    for batch in batches:
        with device.stream(copying):
            following, ready = device.to_device(batch), copying.record_event()
        device.current_stream().wait_event(ready)
        if kept is not None:
            results.append(step(kept))
        kept = following
    return results if kept is None else [*results, step(kept)]


on_one_stream = ahead(copying_of=lambda device: device.current_stream())
without_an_event = ahead(wait=False)
the_host_waits = ahead(host=True)
the_last_forgotten = ahead(last=False)


def all_at_once(device, batches, step):
    copying, copied = device.new_stream(), []
    for batch in batches:
        with device.stream(copying):
            copied.append((device.to_device(batch), copying.record_event()))
    results = []
    for there, ready in copied:
        device.current_stream().wait_event(ready)
        results.append(step(there))
    return results


RIGHT = {
    "08.returns_early": [by_three_conditions, by_table],
    "08.mended": [stream_waits_then_host, host_waits_for_each_copy],
    "08.overlapped": [with_a_generator, with_a_sentinel],
}
WRONG = {
    "08.returns_early": [
        (as_it_is_told, "moved by the system"),
        (pinned_is_enough, "told to block"),
        (gaps_do_not_matter, "do not lie side by side"),
        (parts_are_never_pinned, "nothing keeps it"),
        (in_words, "True or False: does"),
    ],
    "08.mended": [
        (not_mended, "No event was recorded"),
        (recorded_too_early, "it has passed at once"),
        (recorded_on_the_steps_stream, "where no copy is"),
        (the_copies_wait, "waits, for itself"),
        (waited_too_late, "the step was issued before anybody waited"),
        (the_buffer_forgotten, "the buffer was filled again"),
        (nothing_returned, "one number for each batch is wanted"),
    ],
    "08.overlapped": [
        (one_after_the_other, "when the step before it was over"),
        (on_one_stream, "one thing after the other"),
        (without_an_event, "before its batch was there"),
        (the_host_waits, "the host waited for it"),
        (waits_for_the_next_one, "behind the copy of the next batch"),
        (the_last_forgotten, "one number for each batch is wanted"),
        (all_at_once, "needs memory on the device"),
    ],
}
