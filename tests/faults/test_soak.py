"""The soak, as short as it can be while it can still fail: a planted leak is found."""

import mmap
import os
from dataclasses import replace

import pytest

from tests.faults.soak import Sample, judge, soak

ROUNDS = 13
EPOCH = 4  # batches of each loader in a round; the smallest that makes a passing one give any


def few_rounds(leak=lambda: None):
    asked = iter(range(ROUNDS + 1))
    return soak(lambda seconds, batches: next(asked) == ROUNDS, leak, EPOCH)


def test_nothing_grows_from_round_to_round():
    assert judge(few_rounds()) == {}


def test_a_descriptor_and_a_mapping_leaked_a_batch_are_found():
    held = []

    def leak():
        held.append(os.open("/dev/null", os.O_RDONLY))
        held.append(mmap.mmap(-1, 4096))
        held[-1][0] = 1

    try:
        found = judge(few_rounds(leak))
    finally:
        for thing in held:
            os.close(thing) if isinstance(thing, int) else thing.close()
    assert found.keys() == {"fds", "mappings"}


FLAT = Sample(0.0, 0, 200 << 20, 300 << 20, 20, 40, 500, 1, 3)


def made(**growth):
    """100 samples, some of whose figures grow by so much a sample, beside noise in memory."""
    return [
        replace(
            FLAT,
            batches=170 * i,
            rss=FLAT.rss + (i * 7919 % 13 << 17) + int(growth.get("rss", 0) * i),
            fds=FLAT.fds + i % 3 + int(growth.get("fds", 0) * i),
            names=FLAT.names + int(growth.get("names", 0) * i),
        )
        for i in range(100)
    ]


@pytest.mark.parametrize(
    ("growth", "found"),
    [
        ({}, set()),
        ({"fds": 0.1}, {"fds"}),
        ({"names": 0.05}, {"names"}),
        ({"rss": 1 << 20}, {"rss"}),
        ({"rss": 1 << 14}, set()),
    ],
    ids=str,
)
def test_growth_is_told_from_noise(growth, found):
    assert judge(made(**growth)).keys() == found


def test_too_few_samples_are_not_judged():
    with pytest.raises(ValueError, match="too few"):
        judge(made()[:5])
