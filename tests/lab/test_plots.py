"""The figure of a result shows all of it, legibly, and the same each time."""

import base64
import io
import re
from dataclasses import replace
from html import unescape
from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from PIL import Image

from labkit.lab import plots
from labkit.lab.explain.wording import duration, median_interval, number
from labkit.lab.plots.axis import axis_for, tick
from labkit.lab.plots.palette import LAYER_STYLES, theme
from labkit.lab.plots.pictures import Picture
from labkit.lab.predictions import Prediction
from labkit.lab.results import Result

MACHINE = {"date": "2026-03-01T10:00:00", "cpu": "Some CPU", "cores": 2, "torch": "2.13.0"}


def result(repeats, **more) -> Result:
    about = {"machine": MACHINE, "common": {"batch_size": 64}, **more}
    return Result("How long does it take?", "time a batch", "ms", repeats, **about)


TWO = result({"fork": (32.0, 30.0, 31.0, 36.0, 33.0, 35.0), "spawn": (52.0,) * 6})


@pytest.fixture(autouse=True, scope="module")
def fonts_are_open():
    """matplotlib keeps the files of fonts open, once it has used them."""
    plots.png(plots.figure(TWO))


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.texts]


def extents(figure: Figure) -> dict[str, object]:
    """Each text on the figure with its place, in pixels."""
    figure.draw_without_rendering()
    every = list(figure.texts)
    for axes in figure.axes:
        every += [label for label in axes.get_xticklabels() if label.get_visible()]
    return {f"{i}: {text.get_text()}": text.get_window_extent() for i, text in enumerate(every)}


def dots(figure: Figure, label: str):
    lines = figure.axes[0].get_lines()
    return next(line for line in lines if line.get_gid() == f"repeats of {label}")


def assert_legible(figure: Figure) -> None:
    """All text is on the page, and no two texts touch."""
    placed = extents(figure)
    for text, box in placed.items():
        on_page = figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1
        on_page = on_page and figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1
        assert on_page, f"{text!r} is at {box.extents}, the page at {figure.bbox.extents}"
    for (one, box), (other, its) in combinations(placed.items(), 2):
        apart = box.x1 <= its.x0 or its.x1 <= box.x0 or box.y1 <= its.y0 or its.y1 <= box.y0
        assert apart, f"{one!r} overlaps {other!r}"


# What is drawn

numbers = st.one_of(
    st.just(0.0), st.floats(1e-12, 1e12), st.floats(1.0, 1.001), st.integers(1, 9).map(float)
)
labels = st.one_of(
    st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=12),
    st.sampled_from(["$a_1$ {x}", "%s", "num_workers=4, " * 12, "W" * 90, " ", "spawn"]),
)


@st.composite
def results(draw) -> Result:
    names = draw(st.lists(labels, min_size=1, max_size=8, unique=True))
    repeats = {name: tuple(draw(st.lists(numbers, min_size=1, max_size=9))) for name in names}
    origin = draw(st.sampled_from(["live", "recorded", "simulated"]))
    return result(repeats, origin=origin, notes=draw(st.sampled_from([(), ("A note. " * 30,)])))


@st.composite
def predicted_results(draw) -> tuple[Result, Prediction | None]:
    found = draw(results())
    factor = draw(st.one_of(st.none(), st.just(1.0), st.floats(1, 1e6)))
    fastest = draw(st.sampled_from([None, *found.labels]))
    return found, Prediction(fastest, factor) if fastest is not None else None


@given(predicted_results(), st.booleans())
@settings(max_examples=12)
@example((result({"a": (5.0,), "b": (5.0,)}), None), False)
@example((result({"a": (0.0,) * 5, "b": (0.0,) * 5}), Prediction("a", 3)), True)
@example((result({"a": (1e-12, 2e-12), "b": (1e12,)}), Prediction("b", 1e6)), False)
@example((result({"a": (-3.0, 2.0), "b": (-1.0,)}), Prediction("a", 2)), False)
def test_every_repeat_is_a_dot_and_all_text_is_on_the_page_and_apart(case, dark):
    found, prediction = case
    figure = plots.figure(found, prediction, dark)
    low, high = figure.axes[0].get_xlim()
    for label, values in found.repeats.items():
        assert tuple(dots(figure, label).get_xdata()) == values
        assert all(low <= value <= high for value in values)
    medians = [text for text in texts(figure) if text.startswith("median ")]
    assert medians == [f"median {number(found.median(label))} ms" for label in found.labels]
    assert_legible(figure)


@pytest.mark.parametrize("count", range(2, 9))
def test_nothing_overlaps_with_two_to_eight_settings(count):
    found = result({f"num_workers={i}, file_descriptor": (40.0 + i,) * 5 for i in range(count)})
    assert_legible(plots.figure(found, Prediction("num_workers=1, file_descriptor", 1.02)))


def test_dots_of_equal_repeats_lie_apart():
    figure = plots.figure(result({"a": (5.0,) * 20}))
    heights = sorted(dots(figure, "a").get_ydata())
    assert min(np.diff(heights)) > 0.005


def test_the_line_is_at_the_median_and_the_band_at_its_interval():
    figure = plots.figure(TWO)
    row = figure.axes[0].get_lines()[1]
    assert set(row.get_xdata()) == {32.5}
    interval = median_interval(TWO.repeats["fork"])
    vertices = figure.axes[0].collections[0].get_paths()[0].vertices
    assert {vertices[:, 0].min(), vertices[:, 0].max()} == {interval.low, interval.high}


def test_rows_stand_in_the_order_of_the_settings():
    figure = plots.figure(TWO)
    assert max(dots(figure, "fork").get_ydata()) < min(dots(figure, "spawn").get_ydata())
    top, bottom = figure.axes[0].get_ylim()
    assert bottom < top  # y grows downwards


def test_the_axis_starts_at_zero_and_names_its_unit():
    figure = plots.figure(TWO)
    assert figure.axes[0].get_xlim()[0] == 0
    assert "time a batch in ms, less is better" in texts(figure)


def test_values_far_apart_get_a_logarithmic_axis_that_says_so():
    figure = plots.figure(result({"fork": (30.0,) * 5, "spawn": (1200.0,) * 5}))
    assert figure.axes[0].get_xscale() == "log"
    assert any("logarithmic" in text for text in texts(figure))
    assert len(figure.axes[0].get_xticks()) >= 2


@given(st.lists(st.floats(1e-12, 1e12), min_size=1, max_size=5))
def test_an_axis_holds_its_values_and_has_two_ticks_or_more(values):
    axis = axis_for(values)
    assert all(axis.low <= value <= axis.high for value in values)
    assert len(axis.ticks) >= 2
    assert len({tick(t) for t in axis.ticks}) == len(axis.ticks)


@pytest.mark.parametrize("prediction", [None, Prediction("spawn", 3)])
def test_what_was_recorded_is_drawn_below_in_each_row_and_all_text_is_apart(prediction):
    live = replace(TWO, origin="simulated")
    machine = {**MACHINE, "device": "Some GPU", "date": "2026-02-01T10:00:00"}
    repeats = {"fork": (3.0, 3.1, 3.2), "spawn": (0.01, 0.02, 0.03)}
    there = replace(TWO, repeats=repeats, origin="recorded", machine=machine, notes=("Of old.",))
    figure = plots.figure(live, prediction, False, there)
    assert_legible(figure)
    lines = {line.get_gid(): line for line in figure.axes[0].get_lines()}
    for label in live.labels:
        above, below = (lines[f"{w}: repeats of {label}"] for w in ("simulated", "recorded"))
        assert (above.get_marker(), below.get_marker()) == ("^", "s")
        assert tuple(below.get_xdata()) == repeats[label]
        assert max(above.get_ydata()) < min(below.get_ydata())  # inches downwards
    said = " ".join(texts(figure))
    assert "■ Recorded on another machine on 2026-02-01: Some GPU" in said
    assert "recorded: median 3.10 ms" in said
    assert "Of old." in said
    alt = plots.alt_text(live, prediction, there)
    assert "Drawn below, recorded on another machine on 2026-02-01: fork: median 3.10 ms" in alt


@pytest.mark.parametrize(
    ("origin", "words", "marker"),
    [
        ("live", "Measured here on", "o"),
        ("recorded", "Recorded on", "s"),
        ("simulated", "Sim", "^"),
    ],
)
def test_where_it_comes_from_is_told_by_words_and_by_the_dots_shape(origin, words, marker):
    found = replace(TWO, origin=origin)
    figure = plots.figure(found)
    assert dots(figure, "fork").get_marker() == marker
    assert any(re.match(rf"\W {words}", text) and "Some CPU" in text for text in texts(figure))
    assert words in plots.alt_text(found)
    assert "2026-03-01" in plots.alt_text(found)


def test_the_caption_names_n_settings_notes_and_what_the_band_is():
    found = replace(TWO, settings={"fork": {"start_method": "fork"}}, notes=("Mind the gap.",))
    caption = " ".join(texts(plots.figure(found)))
    for words in ("n = 6", "differ in start_method", "batch_size=64", "Mind the gap.", "95%"):
        assert words in caption
    few = replace(TWO, repeats={"fork": (1.0,) * 5, "spawn": (2.0,) * 3})
    caption = " ".join(texts(plots.figure(few)))
    assert "n = 3 to 5" in caption
    assert "smallest to largest, a 75.0% interval" in caption


# The prediction


def test_a_prediction_is_drawn_and_named():
    figure = plots.figure(TWO, Prediction("fork", 2))
    assert "◆ you predicted: this is the fastest" in texts(figure)
    assert "you predicted: the slowest here, 2× the fastest" in texts(figure)
    dashed = [line for line in figure.axes[0].get_lines() if line.get_linestyle() == "--"]
    assert {x for line in dashed for x in line.get_xdata()} == {65.0}  # 2 × 32.5
    assert "fork is the fastest, and the slowest 2 times that" in plots.alt_text(
        TWO, Prediction("fork", 2)
    )


def test_a_prediction_of_no_difference_reads_so():
    assert "you predicted: all here, no difference" in texts(
        plots.figure(TWO, Prediction("fork", 1))
    )
    assert "You predicted: no difference." in plots.alt_text(TWO, Prediction("fork", 1))


def test_a_prediction_without_a_factor_names_the_fastest_only():
    figure = plots.figure(TWO, Prediction("spawn"))
    assert sum("you predicted" in text for text in texts(figure)) == 1
    assert "You predicted: spawn is the fastest." in plots.alt_text(TWO, Prediction("spawn"))


def test_a_prediction_of_a_setting_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"'forkserver'.*'fork', 'spawn': write one"):
        plots.figure(TWO, Prediction("forkserver"))


@pytest.mark.parametrize("draw", [plots.figure, plots.alt_text, plots.show])
def test_a_result_without_repeats_is_refused(draw):
    with pytest.raises(ValueError, match="no settings"):
        draw(result({}))
    with pytest.raises(ValueError, match="'spawn' has no repeats: leave it out"):
        draw(result({"fork": (1.0,), "spawn": ()}))


# In words


@given(results())
def test_the_alt_text_names_each_setting_with_its_median(found):
    alt = plots.alt_text(found)
    for label in found.labels:
        assert f"{label}: median {number(found.median(label))} ms" in alt


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "0"),
        (0.0382, "0.0382"),
        (3.825, "3.83"),
        (38.25, "38.2"),
        (3825.4, "3,825"),
        (999999.0, "1.00×10⁶"),
        (1e-9, "1.00×10⁻⁹"),
        (-12.0, "-12.0"),
    ],
)
def test_numbers_have_three_digits_or_more(value, words):
    assert number(value) == words


@given(st.floats(1e-15, 1e15))
def test_a_number_in_words_is_that_number(value):
    superscripts = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
    words = number(value).replace(",", "").replace("×10", "e").translate(superscripts)
    assert float(words) == pytest.approx(value, rel=0.0051)


@pytest.mark.parametrize(
    ("seconds", "words"), [(26.5, "26.5 s"), (0.14, "140 ms"), (35e-6, "35.0 µs"), (0, "0 s")]
)
def test_durations_have_a_unit_that_suits_them(seconds, words):
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("n", "left_out"), [(1, 0), (5, 0), (6, 0), (8, 0), (9, 1), (12, 2), (15, 3)]
)
def test_the_interval_of_the_median_is_that_of_the_tables(n, left_out):
    """Order statistics for 95%, as in tables of the sign test."""
    interval = median_interval(range(n))
    assert (interval.low, interval.high) == (left_out, n - 1 - left_out)
    assert (interval.coverage >= 0.95) == (n >= 6)


def test_the_interval_holds_the_median_as_often_as_it_says():
    draws = np.random.default_rng(0).exponential(size=(2000, 9))
    intervals = [median_interval(list(draw)) for draw in draws]
    held = np.mean([interval.low <= np.log(2) <= interval.high for interval in intervals])
    assert held == pytest.approx(intervals[0].coverage, abs=0.02)


# On the page


def test_equal_results_give_the_same_picture():
    prediction = Prediction("fork", 2)
    assert plots.png(plots.figure(TWO, prediction)) == plots.png(plots.figure(TWO, prediction))
    other = replace(TWO, repeats={**TWO.repeats, "fork": (60.0,) * 6})
    assert plots.png(plots.figure(TWO)) != plots.png(plots.figure(other))


@pytest.mark.parametrize("dark", [False, True])
def test_the_paper_is_light_or_dark_and_ink_can_be_read_on_it(dark):
    image = Image.open(io.BytesIO(plots.png(plots.figure(TWO, dark=dark)))).convert("RGB")
    colours = theme(dark)
    assert "#{:02x}{:02x}{:02x}".format(*image.getpixel((2, 2))) == colours.paper
    assert (luminance(colours.paper) < 0.02) == dark
    for name in ("ink", "muted", "data", "prediction"):
        assert contrast(getattr(colours, name), colours.band) >= 4.5, name


def test_numbers_in_bars_can_be_read():
    for layer, style in LAYER_STYLES.items():
        if style.colour is not None:
            assert contrast(style.ink, style.colour) >= 4.5, layer


def contrast(one: str, other: str) -> float:
    """Of two colours, from 1 to 21. Source: WCAG 2.1, "contrast ratio"."""
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_an_image_tag_has_the_alt_text_escaped_and_the_picture_inside():
    alt = 'fork < spawn & "so on"'
    tag = plots.img(plots.figure(TWO), alt)
    assert unescape(re.search(r'alt="([^"]*)"', tag)[1]) == alt
    data = base64.b64decode(re.search(r"base64,([^\"]+)", tag)[1])
    width = Image.open(io.BytesIO(data)).width
    assert width == 1312
    assert 'width="820"' in tag


def test_an_image_without_alt_text_is_refused():
    with pytest.raises(ValueError, match="needs alt text"):
        plots.img(plots.figure(TWO), " ")


def test_a_shown_result_has_html_a_png_with_alt_text_and_text_without_measurements():
    data, metadata = plots.show(TWO, Prediction("fork", 2))._repr_mimebundle_()
    alt = plots.alt_text(TWO, Prediction("fork", 2))
    assert metadata["image/png"]["alt"] == alt
    assert base64.b64decode(data["image/png"]) == plots.png(
        plots.figure(TWO, Prediction("fork", 2))
    )
    assert data["text/plain"] == "Figure: How long does it take? (fork, spawn)"
    assert unescape(data["text/html"]).count(alt) == 2  # light and dark
    caption = re.search(r"<figcaption>(.+)</figcaption>", data["text/html"])
    assert "spawn" in caption[1]


def test_without_its_style_only_the_light_figure_is_shown():
    tags = re.findall(r"<img[^>]*>", plots.themed(lambda dark: plots.figure(TWO, dark=dark), "alt"))
    assert ["display: none" in tag.partition("src=")[0] for tag in tags] == [False, True]
    assert len(set(tags)) == 2


def test_a_picture_in_a_terminal_reads_as_its_title_and_sentence():
    picture = Picture(lambda dark: plots.figure(TWO, dark=dark), "alt", "Title", "Sentence.")
    assert repr(picture) == "Title"
    assert str(picture) == "Title\nSentence."
