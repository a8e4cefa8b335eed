"""A training curve draws what it is given, and says in words what it shows."""

import pytest

from labkit.lab.curve import Curve, show
from labkit.lab.plots.palette import theme
from labkit.lab.plots.pictures import png

LOSS = ([0.9, 0.6, 0.3, 0.2], "mean training loss", 0.5, "ignoring the features")


@pytest.fixture(autouse=True, scope="module")
def fonts_are_open():
    """matplotlib keeps the files of fonts open, once it has used them."""
    png(Curve(tuple(LOSS[0]), *LOSS[1:]).figure())


@pytest.mark.parametrize("dark", [False, True])
def test_the_curve_and_the_level_are_drawn_in_the_page_s_colours(dark):
    figure = Curve(tuple(LOSS[0]), *LOSS[1:]).figure(dark)
    (axes,) = figure.axes
    curve, level = axes.lines
    assert list(curve.get_xdata()) == [1, 2, 3, 4]
    assert list(curve.get_ydata()) == LOSS[0]
    assert set(level.get_ydata()) == {0.5}
    assert level.get_linestyle() == "--"
    assert curve.get_color() == theme(dark).data
    words = [text.get_text() for text in figure.texts]
    assert words == ["Mean training loss, by epoch", "epoch", "dashed: ignoring the features"]
    assert {text.get_color() for text in figure.texts} <= {theme(dark).ink, theme(dark).muted}


def test_all_values_lie_inside_of_the_axes_and_the_axis_has_its_zero():
    for values in ([3.0, 4.0], [-2.0, 1.0], [0.0, 0.0]):
        (axes,) = Curve(tuple(values), "loss", 0.5, "a level").figure().axes
        low, high = axes.get_ylim()
        assert low <= min(0, *values)
        assert high > max(0.5, *values)


def test_the_sentence_says_where_it_begins_ends_and_gets_below_the_level():
    picture = show(*LOSS)
    assert picture.sentence == (
        "Mean training loss: 0.900 in epoch 1, 0.200 in epoch 4. "
        "Dashed, at 0.500: ignoring the features; below it first in epoch 3."
    )
    assert picture.alt == f"Curve of mean training loss over 4 epochs. {picture.sentence}"
    assert "never below it" in show([0.9, 0.6], "loss", 0.5, "a level").sentence


def test_a_notebook_gets_light_and_dark_with_alt_text():
    data, metadata = show(*LOSS)._repr_mimebundle_()
    assert data["text/html"].count('alt="Curve of mean training loss') == 2
    assert metadata["image/png"]["alt"].startswith("Curve of mean training loss")
    assert data["text/plain"] == "Figure: mean training loss by epoch"


@pytest.mark.parametrize(
    ("values", "level", "said"),
    [
        ([1.0], 0.5, "two values or more, but got 1"),
        ([1.0, float("nan")], 0.5, "value 2 of the curve is nan"),
        ([1.0, 2.0], float("inf"), "the level of the curve is inf"),
    ],
)
def test_what_cannot_be_drawn_is_refused(values, level, said):
    with pytest.raises(ValueError, match=said):
        show(values, "loss", level, "a level")
