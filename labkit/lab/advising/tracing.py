"""The trace of a setting: some seconds of its batches, or so many.

Before it: `timing`, the loop; `labkit.tracing`. After it: `layers`, which reads it.
"""

from __future__ import annotations

import time
from dataclasses import replace

import labkit
from labkit.lab.advising.consumer import Consumer
from labkit.lab.advising.findings import Traced
from labkit.lab.advising.setting import Setting
from labkit.lab.advising.subject import Subject
from labkit.lab.advising.timing import epochs

__all__ = ["trace_of"]

_MOST_BATCHES = 400
_FEWEST_BATCHES = 3


def trace_of(subject: Subject, setting: Setting, consumer: Consumer, seconds: float) -> Traced:
    """Trace labkit's loader with this setting, from its first batch on for so long.

    Raises:
        Exception: what the loader raises.
    """
    setting = replace(setting, module="labkit")
    began, first, count, in_epoch = time.monotonic(), 0.0, 0, None
    consumer.copy_seconds.clear()
    with labkit.trace() as trace:
        for is_end in epochs(subject, setting, consumer):
            passed = time.monotonic() - began
            first = first or passed
            if is_end and in_epoch is None:
                in_epoch = count
            count += not is_end
            is_over = passed - first > seconds and count >= _FEWEST_BATCHES
            if is_over or count >= _MOST_BATCHES:
                break
    return Traced(trace.spans, trace.max_depth, tuple(consumer.copy_seconds), in_epoch, first)
