"""When a call returned and when its copy was done, noted on one clock and compared."""

import time

import pytest
import torch

from labkit.lab import on_device
from labkit.lab.explain import sentence
from labkit.lab.on_device import sweep, work_log
from labkit.lab.on_device.copies_to_device import (
    QUANTITIES,
    WAYS,
    Copied,
    copied,
    copies_to_device,
    swept,
)
from labkit.lab.on_device.work_log import WorkLog
from labkit.simulated import SimulatedDevice
from tests.lab.on_device.conftest import NBYTES
from tests.lab.test_plots import assert_legible, fonts_are_open

__all__ = ["fonts_are_open"]  # a fixture

MACHINE = {"device": "simulated device, in slow motion 7×", "simulated": True}


def test_a_call_and_its_work_are_noted_on_one_clock(slow_device):
    log = WorkLog(slow_device)
    batch = torch.zeros(NBYTES // 4)
    with log.issuing("copy", "copy 0", nbytes=batch.nbytes):
        there = slow_device.to_device(batch, non_blocking=False)
    with log.issuing("step", "step 0"):
        on_device.step(slow_device, there, 0.1)
    with log.waiting("step 0"):
        slow_device.synchronize()
    copy, step = log.operations()
    copying, stepping, waiting = log.calls
    # The event before the copy is recorded just before the call.
    assert copying.start - 0.01 <= copy.start < copy.end - 0.09
    assert copying.end - copying.start >= 0.09  # it blocked
    assert stepping.end < step.end
    assert waiting.end >= step.end - 0.01
    assert (copy.kind, copy.nbytes, copy.stream) == ("copy", NBYTES, "default stream")
    assert [call.kind for call in log.calls] == ["copy", "step", "wait"]


def test_a_thread_that_was_stopped_while_the_clocks_were_joined_notes_right_times(
    slow_device, monkeypatch
):
    seconds = time.monotonic
    stalls = iter([0, 0.2, 0, 0.2])  # in the middle of the first pairs

    def stalled():
        time.sleep(next(stalls, 0))
        return seconds()

    monkeypatch.setattr(work_log.time, "monotonic", stalled)
    log = WorkLog(slow_device)
    with log.issuing("copy", "copy 0"):
        slow_device.to_device(torch.zeros(NBYTES // 4), non_blocking=False)
    with log.waiting("copy 0"):
        slow_device.synchronize()
    assert log.operations()[0].end <= log.calls[-1].end + 0.05


@pytest.mark.parametrize("way", WAYS)
def test_only_one_way_returns_early(way, slow_device):
    pinned, non_blocking = WAYS[way].values()
    batch = torch.zeros(NBYTES, dtype=torch.uint8)
    found = copied(slow_device, slow_device.pin(batch) if pinned else batch, non_blocking)
    assert found.returned_early == (way == "pinned, non_blocking")
    assert found.done >= 0.09


def test_a_call_that_stays_almost_as_long_as_the_copy_is_not_early():
    assert not Copied(returned=0.95, done=1.0).returned_early
    assert Copied(returned=0.5, done=1.0).returned_early


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_the_four_ways_are_compared_and_the_result_says_that_it_is_simulated(quantity, slow_device):
    result = copies_to_device(slow_device, nbytes=NBYTES // 2, quantity=quantity, repeats=1)
    assert result.labels == list(WAYS)
    assert result.origin == "simulated"
    assert result.machine["device"] == "simulated device"
    assert "20,000 bytes" in result.notes[0]
    assert sentence(result).startswith("Simulated")
    early = result.repeats["pinned, non_blocking"][0] < 40  # ms, of a copy of 50
    assert early == (quantity == QUANTITIES[0])
    assert result.repeats["pinned, blocking"][0] >= 49


@pytest.mark.parametrize("arguments", [{"quantity": "speed"}, {"nbytes": 0}])
def test_what_cannot_be_measured_is_refused(arguments):
    with pytest.raises(ValueError, match=r"write one of|1 or more"):
        copies_to_device(**arguments)


def test_many_sizes_are_measured_and_drawn():
    with SimulatedDevice(slow_motion=100) as device:
        machine, found = swept(device, sizes=(1000, 2_000_000), repeats=1)
    assert list(found) == [1000, 2_000_000]
    assert found[2_000_000]["pageable"].returned > found[2_000_000]["pinned"].returned
    picture = sweep.show(machine, found)
    assert "slow motion 100×" in picture.alt
    assert "1 kB, 2 MB" in picture.alt
    for dark in (False, True):
        drawn = picture.draw(dark)
        assert_legible(drawn)
        (axes,) = drawn.axes
        assert {line.get_gid() for line in axes.lines} == {
            f"{memory} {moment}"
            for memory in ("pageable", "pinned")
            for moment in ("done", "returned")
        }


def test_the_sentence_under_the_sizes_is_computed_from_them():
    def both(pageable, pinned):
        return {"pageable": Copied(*pageable), "pinned": Copied(*pinned)}

    found = {1000: both((1e-3, 1e-3), (1e-3, 1e-3)), 9000: both((4e-3, 4e-3), (2e-3, 9e-3))}
    said = sweep.show(MACHINE, found).sentence
    assert said.startswith("Simulated: from 1 kB to 9 kB")
    assert "from 1.00 ms to 4.00 ms for pageable" in said
    assert "from 1.00 ms to 2.00 ms for pinned" in said
    assert said.endswith("the call returned before the copy was done from pinned memory.")
    found[9000] = both((9e-3, 9e-3), (9e-3, 9e-3))
    live = sweep.show({**MACHINE, "simulated": False}, found).sentence
    assert live.startswith("from 1 kB")
    assert live.endswith("from neither memory.")


def test_one_size_makes_no_curve():
    with pytest.raises(ValueError, match="two sizes"):
        sweep.show(MACHINE, {1000: {}})
