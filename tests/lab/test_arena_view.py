"""`labkit.lab.arena_view`: who has a slot, step by step; in words, drawn, and with buttons."""

import pytest

import labkit
from labkit.lab.arena_view import ArenaView
from labkit.lab.arena_view.drawing import show
from labkit.lab.arena_view.slots import STATES, Segment, Slot, Worker
from labkit.lab.datasets import Payload
from labkit.lab.resources import running
from labkit.sharing import report
from tests.lab.test_plots import assert_legible, fonts_are_open

__all__ = ["fonts_are_open"]  # a fixture

WORKER = Worker(
    0,
    (
        Segment(0, 400, 100, tuple(Slot(100 * i, state) for i, state in enumerate(
            ("in hand", "kept", "arrived", "going back")))),
        Segment(1, 2000, 100, (Slot(0, "given back"), Slot(100, "kept", (3,)),
            *(Slot(100 * i, "never seen") for i in range(2, 20)))),
    ),
)  # fmt: skip


@pytest.fixture
def arena():
    arena = ArenaView()
    yield arena
    arena.close()


def states(arena):
    return [slot.state for w in arena.workers() for s in w.segments for slot in s.slots]


def test_before_the_first_batch_nothing_is_known_and_nothing_runs(arena):
    assert arena.workers() == []
    assert "No slot was seen yet" in arena.as_text()
    assert "No slot was seen yet" in arena.picture().alt
    assert report().workers == []


def test_kept_batches_hold_slots_and_dropped_ones_go_back(arena):
    arena.take(5)
    assert arena.count("in hand") == 1
    for kept in range(1, 7):
        arena.take()
        arena.keep()
        assert arena.count("kept") == kept
        assert arena.count("in hand") == 0  # it is the one that was kept
    arena.drop_oldest()
    assert (arena.count("kept"), arena.count("going back")) == (5, 1)
    arena.drop_all()
    assert (arena.count("kept"), arena.count("in hand"), arena.count("going back")) == (0, 0, 6)
    arena.take()
    assert (arena.count("in hand"), arena.count("going back")) == (1, 0)
    assert set(states(arena)) <= STATES.keys()


def test_the_arena_grows_while_all_is_kept_and_not_without(arena):
    arena.take(10)
    before = len(states(arena))
    for _ in range(12):
        arena.take()
        arena.keep()
    grown = len(states(arena))
    assert grown > before
    arena.drop_all()
    arena.take(20)
    assert len(states(arena)) == grown


def test_a_kept_batch_is_where_it_was_and_keeps_its_values(arena):
    arena.take(3)
    arena.keep()
    number, batch = arena.kept[0]
    values = batch.clone()
    place = arena.as_text().count(f"kept, batch {number}")
    arena.take(15)
    assert place == arena.as_text().count(f"kept, batch {number}") == 1
    assert batch.equal(values)


def test_what_cannot_be_done_is_said(arena):
    with pytest.raises(RuntimeError, match="take one first"):
        arena.keep()
    with pytest.raises(RuntimeError, match="keep one first"):
        arena.drop_oldest()
    arena.take()
    arena.keep()
    with pytest.raises(RuntimeError, match="take one first"):
        arena.keep()
    arena.drop_oldest()
    assert arena.said == "Dropped batch 0. It is still in hand."
    assert arena.count("in hand") == 1


def test_each_worker_has_an_arena_of_its_own_and_other_loaders_are_not_looked_at(arena):
    arena.take()
    loader = labkit.DataLoader(Payload(100, 1000), num_workers=1, sharing_strategy="arena")
    with running(loader) as batches:
        next(batches)
        assert len(report().workers) == 2
        assert [worker.number for worker in arena.workers()] == [0]
    two = ArenaView(num_workers=2)
    two.take(8)
    assert [worker.number for worker in two.workers()] == [0, 1]
    two.close()
    assert two.workers() == []


def test_a_cell_that_is_run_again_leaves_one_view_with_workers_and_the_pictures(arena, buttons):
    arena.take()
    arena.keep()
    picture = buttons.figure.value
    again = ArenaView()
    assert arena.count("kept") == 1  # nothing was taken yet
    again.take()
    assert len(report().workers) == again.count("in hand") == 1
    assert buttons.figure.value == picture
    assert (arena.kept, arena.in_hand, arena.workers()) == ([], None, [])
    buttons.take.click()
    assert "in hand, batch 1" in buttons.figure.value
    assert again.workers() == []
    assert len(report().workers) == 1


def test_after_close_it_begins_anew(arena):
    arena.take(2)
    arena.keep()
    arena.close()
    assert arena.kept == []
    assert arena.in_hand is None
    assert report().workers == []
    arena.take()
    assert arena.count("in hand") == 1


def test_the_figure_has_a_box_a_slot_and_the_same_words_in_its_alt_text():
    picture = show([WORKER], "Kept batch 3.")
    for dark in (False, True):
        figure = picture.draw(dark)
        assert_legible(figure)
        words = [text.get_text() for text in figure.texts]
        assert len(figure.artists) == 4 + 2 + 3 + 1  # of those never seen at the end three, a count
        assert {*STATES, "batch 3", "15 more"} <= set(words)
    assert "Kept batch 3." in picture.alt
    assert "segment 0 with 4 slots of 100 B: slot 0 in hand; slot 1 kept" in picture.alt
    assert "slot 1 kept, batch 3; slots 2 to 19 never seen." in picture.alt
    assert "18 never seen" in picture.sentence
    assert "2 kept" in picture.sentence


def test_without_a_kernel_a_reader_gets_the_figure_and_constant_text(arena):
    arena.take(3)
    data, metadata = arena._repr_mimebundle_()
    assert "image/png" in data
    assert "in hand, batch 2" in metadata["image/png"]["alt"]
    assert data["text/plain"] == repr(arena) == repr(ArenaView())


# The buttons


@pytest.fixture
def buttons(arena):
    from labkit.lab.arena_view.buttons import Buttons

    return Buttons(arena)


def test_only_what_can_be_done_can_be_pressed(buttons):
    def enabled():
        each = (buttons.keep, buttons.drop_oldest, buttons.drop_all)
        return [not button.disabled for button in each]

    assert enabled() == [False, False, False]
    buttons.take.click()
    assert enabled() == [True, False, True]
    buttons.keep.click()
    assert enabled() == [False, True, True]
    buttons.take.click()
    buttons.drop_oldest.click()
    assert enabled() == [True, False, True]
    buttons.drop_all.click()
    assert enabled() == [False, False, False]


def test_a_step_is_said_and_drawn(buttons):
    assert "No slot was seen yet" in buttons.figure.value
    buttons.take.click()
    assert 'role="status"' in buttons.status.value
    assert "Took batch 0." in buttons.status.value
    assert "in hand, batch 0" in buttons.figure.value


def test_what_is_done_in_code_shows_too(arena, buttons):
    arena.take(3)
    arena.keep()
    assert "kept, batch 2" in buttons.figure.value
    arena.close()
    assert "The workers have ended" in buttons.status.value
    assert buttons.keep.disabled


def test_an_error_is_shown(buttons, monkeypatch, caplog):
    monkeypatch.setattr(buttons.arena, "_loader", None)
    buttons.take.click()
    assert 'role="alert"' in buttons.status.value
    assert "TypeError" in buttons.status.value
    assert "TypeError" in caplog.text  # raised as well, into the log of the page
