"""`labkit.lab.faults`: counts for real, and a figure that says what was counted."""

import mmap

import pytest
import torch

from labkit.lab import faults
from labkit.lab.faults import Faults
from labkit.sharing import Segment
from tests.lab.test_plots import assert_legible, fonts_are_open

__all__ = ["fonts_are_open"]  # a fixture

FOUND = {
    "fresh": Faults(256, (300, 256, 257, 256), (20, 16, 16, 17)),
    "recycled": Faults(256, (310, 256, 0, 0), (30, 16, 0, 1)),
}


def test_a_second_touch_costs_next_to_no_faults():
    pages = 512
    memory = torch.frombuffer(
        Segment.private(pages * mmap.PAGESIZE).exporter(0, pages * mmap.PAGESIZE),
        dtype=torch.uint8,
    )
    first = faults.faults_of(lambda: memory[:: mmap.PAGESIZE].fill_(1))
    second = min(faults.faults_of(lambda: faults.touch(memory)) for _ in range(3))
    assert second < pages / 100
    assert second <= first


@pytest.mark.parametrize("shape", [(7,), (3, 5000), ()])
def test_any_tensor_can_be_touched(shape):
    faults.touch(torch.zeros(shape, dtype=torch.float64))


def test_a_warm_arena_takes_next_to_no_faults():
    found = faults.by_batch(batches=16, batch_bytes=256 * mmap.PAGESIZE, sharing_strategy="arena")
    assert found.pages == 256
    assert len(found.worker) == len(found.reader) == 16
    assert min(found.worker[8:]) < 256 / 10
    assert min(found.reader[8:]) < 256 / 10
    assert found.late(found.worker) <= found.worker[0]


def test_the_figure_has_a_row_a_loader_and_a_bar_a_batch_in_light_and_dark():
    picture = faults.show(FOUND)
    for dark in (False, True):
        figure = picture.draw(dark)
        assert_legible(figure)
        rows = figure.axes
        assert len(rows) == 2
        for axes, found in zip(rows, FOUND.values(), strict=True):
            bars = [[bar.get_height() for bar in group] for group in axes.containers]
            assert bars == [list(found.worker), list(found.reader)]
    for words in (
        "fresh: 300 faults in the worker for batch 0, a median of 256 over the second half",
        "recycled: 310 faults in the worker for batch 0, a median of 0 ",
        "256 pages each",
    ):
        assert words in picture.alt
    assert picture.title == "Figure: page faults by batch (fresh, recycled)"


def test_nothing_cannot_be_drawn():
    with pytest.raises(ValueError, match="nothing to draw"):
        faults.show({})
