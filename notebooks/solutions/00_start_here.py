"""Solutions to the exercises of `00_start_here.ipynb`."""

from collections import Counter


def most_workers(cores, allowed, quota, free_bytes, worker_bytes):
    """How many workers make sense on a machine.

    At most one for each whole core that may be used, but at least one; and no more than fit into
    the free memory, which may be none. `quota` is in cores, None without one.
    """
    usable = allowed if quota is None else min(allowed, quota)
    return min(max(1, int(usable)), free_bytes // worker_bytes)


def busiest_layer(spans, lane):
    """The layer on which this lane spent the most seconds; a wait (layer "wait") does not count."""
    seconds = Counter()
    for span in spans:
        if span.lane == lane and span.layer != "wait":
            seconds[span.layer] += span.end - span.start
    return seconds.most_common(1)[0][0]
