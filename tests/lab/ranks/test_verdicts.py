"""Whether shares are disjoint, complete and equal is judged right, and drawn and told so."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DistributedSampler

from labkit.lab.plots.pictures import png
from labkit.lab.ranks import judged, picture
from tests.lab.test_plots import assert_legible, fonts_are_open

__all__ = ["fonts_are_open"]  # a fixture


@pytest.mark.parametrize(
    ("shares", "length", "expected"),
    [
        ([[0, 1], [2, 3]], 4, (True, True, True, 0, 0)),
        ([[0, 1], [2]], 3, (True, True, False, 0, 0)),
        ([[0, 1], [2, 0]], 3, (False, True, True, 1, 0)),
        ([[0], [1]], 3, (True, False, True, 0, 1)),
        ([[0, 0], [1, 2]], 3, (False, True, True, 1, 0)),
        ([[], []], 0, (True, True, True, 0, 0)),
    ],
)
def test_each_verdict_is_one_of_its_own(shares, length, expected):
    found = judged(shares, length)
    values = (found.disjoint, found.complete, found.equal, found.repeated, found.missing)
    assert values == expected


def test_an_index_that_is_not_of_the_dataset_is_an_error():
    with pytest.raises(ValueError, match="read were 4, but there are only 0 to 3"):
        judged([[0, 4]], 4)


@given(st.integers(1, 40), st.integers(1, 9), st.booleans(), st.booleans())
def test_the_sampler_always_gives_equal_numbers_and_repeats_or_leaves_out_what_it_must(
    length, count, drop_last, shuffle
):
    shares = [
        list(DistributedSampler(range(length), count, r, shuffle, drop_last=drop_last))
        for r in range(count)
    ]
    found = judged(shares, length)
    assert found.equal
    assert found.complete == (found.missing == 0)
    assert found.disjoint == (found.repeated == 0)
    assert sum(found.counts) == length + found.repeated - found.missing
    if drop_last:
        assert (found.repeated, found.missing) == (0, length % count)
    else:
        assert (found.repeated, found.missing) == (-length % count, 0)


READS = [[(0, 0, 0), (2, 1, 1)], [(1, 0, 0), (0, 1, 1)]]


def test_the_picture_says_in_words_what_it_shows():
    shown = picture.show(4, {"epoch 0": READS})
    assert "Grid of who read which of 4 samples" in shown.alt
    assert "the ranks read 2 and 2 samples" in shown.alt
    assert "disjoint: no, complete: no, equal: yes" in shown.sentence
    texts = [text.get_text() for text in shown.figure.texts]
    assert {"rank 0, worker 1", "rank 1, worker 0", "epoch 0"} <= set(texts)
    assert texts.count("2×") == 1
    assert texts.count("0×") == 1


def test_the_picture_has_as_many_filled_cells_as_there_are_reads_and_both_pages_differ():
    shown = picture.show(4, {"epoch 0": READS, "epoch 1": READS})
    for dark in (False, True):
        filled = [cell for cell in shown.draw(dark).artists if cell.get_facecolor()[3] > 0]
        assert len(filled) == 2 * 4
        assert_legible(shown.draw(dark))
    assert shown.png != png(shown.draw(True))
    assert not re.search(r"\d", shown.title)


def test_without_workers_a_row_is_a_rank():
    shown = picture.show(2, {"all": [[(0, -1, 0)], [(1, -1, 0)]]})
    texts = [text.get_text() for text in shown.figure.texts]
    assert "rank 0" in texts
    assert "rank 1" in texts


def test_nothing_to_draw_is_an_error():
    with pytest.raises(ValueError, match="at least one epoch"):
        picture.show(4, {})
