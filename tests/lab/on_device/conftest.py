"""A simulated device whose copies take long, however few bytes they have."""

from collections.abc import Iterator

import pytest

from labkit.simulated import SimulatedDevice

NBYTES = 40_000


@pytest.fixture
def slow_device() -> Iterator[SimulatedDevice]:
    """A copy of `NBYTES` takes 0.1 s, and a call next to nothing."""
    rate = NBYTES / 0.1 / 1e9
    with SimulatedDevice(rate, rate, rate, launch_us=0) as device:
        yield device
