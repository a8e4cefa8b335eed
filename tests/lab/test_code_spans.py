"""What stands between backticks is code, and nothing of a text is taken for HTML."""

from matplotlib.figure import Figure

from labkit.lab.code_spans import with_code
from labkit.lab.plots.pictures import Picture
from labkit.lab.table import Table


def test_code_is_marked_and_all_else_escaped():
    assert with_code("write `a < b`, not <b>") == "write <code>a &lt; b</code>, not &lt;b&gt;"
    assert with_code("one ` alone") == "one ` alone"


def test_a_table_marks_code_and_its_text_keeps_the_backticks():
    table = Table(("worker", "stands at"), [("1", "`queue.get()`")])
    assert "<code>queue.get()</code>" in table._repr_html_()
    assert "`queue.get()`" in str(table)


def test_the_sentence_under_a_picture_marks_code():
    picture = Picture(lambda dark: Figure((2, 1)), "alt", "title", "run `labkit doctor`")
    assert "<figcaption>run <code>labkit doctor</code></figcaption>" in picture.html
