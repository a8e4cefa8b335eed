"""Which layer holds a loader back, from traces whose answer is known."""

import pytest

from labkit.lab.advising.findings import Traced
from labkit.lab.advising.layers import layers_of
from labkit.spans import Span

BATCHES = 20


def traced(
    step=0.0, workers=0, fetch=0.0, collate=0.0, send=0.0, rebuild=0.0, idle=0.0, **others
) -> Traced:
    """A trace in which every batch takes so many seconds in these layers."""
    spans, now = [], 100.0
    each = max((fetch + collate) / workers, send / workers) if workers else fetch + collate
    for batch in range(BATCHES):

        def add(layer, start, seconds, lane="main", worker=-1, batch=batch):
            spans.append(Span(lane, layer, start, start + seconds, batch, worker=worker))

        if workers:
            worker = batch % workers
            begun = now + (each + idle) * (batch // workers) * workers
            add("fetch", begun, fetch, f"worker {worker}", worker)
            add("collate", begun + fetch, collate, f"worker {worker}", worker)
            add("pickle", begun + fetch + collate, send / 2, f"feeder {worker}", worker)
            add("send", begun + fetch + collate + send / 2, send / 2, f"feeder {worker}", worker)
            add("rebuild", now + (each + idle) * batch, rebuild)
            at = now + (each + idle) * batch + rebuild
            add("take", at, 0.0)
            add("consumer", at, step)
        else:
            add("fetch", now, fetch)
            add("collate", now + fetch, collate)
            add("take", now + fetch + collate, 0.0)
            add("consumer", now + fetch + collate, step)
            now += fetch + collate + step
    return Traced(sorted(spans, key=lambda span: span.start), 2 * workers, **others)


@pytest.mark.parametrize(
    ("expected", "costs"),
    [
        ("fetch", {"fetch": 0.01, "collate": 0.001}),
        ("collate", {"fetch": 0.001, "collate": 0.01}),
        ("fetch", {"fetch": 0.01, "step": 0.02}),
        ("step", {"fetch": 0.0001, "step": 0.02}),
        ("fetch", {"fetch": 0.01, "collate": 0.001, "workers": 2}),
        ("collate", {"fetch": 0.001, "collate": 0.01, "workers": 2}),
        ("transport", {"fetch": 0.001, "send": 0.01, "workers": 2}),
        ("transport", {"fetch": 0.001, "rebuild": 0.0009, "workers": 1}),
        ("nobody", {"fetch": 0.001, "idle": 0.01, "workers": 2}),
    ],
)
def test_the_layer_that_the_loop_waits_for_is_named(expected, costs):
    assert layers_of(traced(**costs)).held_back_by == expected


def test_copies_to_the_device_are_no_step():
    found = layers_of(traced(fetch=0.001, step=0.01, copy_seconds=(0.01,) * BATCHES))
    assert found.held_back_by == "copy"
    assert found.seconds["step"] == pytest.approx(0.0)


def test_what_is_waited_and_worked_is_counted_a_batch():
    found = layers_of(traced(fetch=0.006, collate=0.002, step=0.002))
    assert found.batch_seconds == pytest.approx(0.01)
    assert found.waited == pytest.approx(0.8)
    assert found.seconds["fetch"] == pytest.approx(0.006)
    assert found.seconds["step"] == pytest.approx(0.002, rel=0.1)


def test_of_two_batches_nothing_is_said():
    assert layers_of(Traced(traced(fetch=0.01).spans[:7], 0)) is None
