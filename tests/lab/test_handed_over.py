"""Whether an object is copied or shared is found by writing to it, and drawn as it was found."""

import queue
import threading

import pytest
from matplotlib import font_manager

from labkit.lab import address_spaces
from labkit.lab.handed_over import Way, by_kind, handed_over
from labkit.lab.plots.pictures import png
from labkit.lab.programs import counters, kinds


@pytest.fixture(autouse=True)
def fonts_are_closed():
    """matplotlib keeps the fonts open that it has used."""
    yield
    font_manager._get_font.cache_clear()


def test_a_thread_shares_and_a_process_copies_whatever_the_ids_say():
    assert handed_over() == [
        Way("thread", same_ids=True, there=1, here=1),
        Way("fork", same_ids=True, there=1, here=0),
        Way("spawn", same_ids=False, there=1, here=0),
        Way("forkserver", same_ids=False, there=1, here=0),
    ]


def test_what_is_shared_is_told_by_the_write():
    assert Way("thread", True, 1, 1).is_shared
    assert not Way("fork", True, 1, 0).is_shared
    words = " ".join(str(Way("fork", True, 1, 0)).split())
    assert words == "fork ids: all the same value there: 1 value here: 0"


def test_by_kind_there_is_an_answer_for_every_way_and_the_plain_tensor_differs():
    found = by_kind()
    assert list(found) == list(kinds.WAYS)
    assert set(found["thread"].values()) == {1}
    differ = [kind for kind in found["fork"] if found["fork"][kind] != found["spawn"][kind]]
    assert differ == ["tensor"]


def test_the_program_counts_in_a_thread_too():
    counter, seen = counters.Counter(), queue.SimpleQueue()
    for _ in range(2):
        thread = threading.Thread(target=counters.count, args=(counter, seen))
        thread.start()
        thread.join()
    assert [seen.get(), seen.get(), counter.value] == [1, 2, 2]


def test_the_picture_says_who_has_which_object():
    ways = [Way("thread", True, 1, 1), Way("fork", True, 1, 0), Way("spawn", False, 1, 0)]
    picture = address_spaces.show(ways)
    assert "thread: one object, the value is 1 for both" in picture.alt
    assert "fork: two objects, the child's at the same address, in other memory" in picture.alt
    assert "spawn: two objects, the child's at another address; 0 here, 1 there" in picture.alt
    assert picture.png != png(picture.draw(True))


@pytest.mark.parametrize("way", [Way("thread", True, 1, 1), Way("fork", True, 1, 0)])
def test_values_are_drawn_as_they_were_found(way):
    texts = {text.get_text() for text in address_spaces.show([way]).figure.texts}
    assert f"value {way.here}" in texts
    assert f"value {way.there}" in texts
