"""Advice as text, figures, a page that stands alone, and in a notebook."""

import base64
import dataclasses
import io
import re
from html.parser import HTMLParser

import pytest
from matplotlib import font_manager
from PIL import Image

from labkit.lab.advising.advice import Advice
from labkit.lab.advising.page import sections_html
from tests.lab.advising.found import findings, result, trial


@pytest.fixture(autouse=True)
def fonts_are_closed():
    """matplotlib keeps the fonts open that a thread has used, those of the latest few threads."""
    yield
    font_manager._get_font.cache_clear()


@pytest.fixture(scope="module")
def advice() -> Advice:
    screened = result(2, **{"your setting": 10.0, "num_workers=2": 5.0, "num_workers=4": 6.0})
    return Advice(findings(trials={"workers": trial(screened=screened)}))


class Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))


def test_the_line_and_every_sentence_are_in_the_text(advice):
    lines = " ".join(advice.as_text().split())
    for sentence in advice.sentences:
        assert " ".join(sentence.split()) in lines
    assert advice.as_text().endswith("labkit.DataLoader(dataset, num_workers=2)")
    assert advice.line == "labkit.DataLoader(dataset, num_workers=2)"
    assert advice.results["workers"].median("num_workers=2") == pytest.approx(5.075)


def test_the_page_needs_nothing_else_and_has_its_figures_for_light_and_dark(advice, tmp_path):
    path = tmp_path / "report.html"
    advice.save(path)
    page = path.read_text(encoding="utf-8")
    tags = Tags(page).found
    images = [attributes for tag, attributes in tags if tag == "img"]
    dark = [attributes for tag, attributes in tags if tag == "source"]
    assert len(images) == len(dark) == 4  # layers, screening, trial, timeline
    for image, source in zip(images, dark, strict=True):
        assert len(image["alt"]) > 40
        for data in (image["src"], source["srcset"]):
            kind, _, content = data.partition(",")
            assert kind == "data:image/png;base64"
            assert Image.open(io.BytesIO(base64.b64decode(content))).width > 500
        assert image["src"] != source["srcset"]
        assert source["media"] == "(prefers-color-scheme: dark)"
    links = [a for _, attributes in tags for a in ("href", "action") if a in attributes]
    assert not links
    assert "http" not in page.replace("http-equiv", "")
    assert dict(tags)["html"] == {"lang": "en"}


def test_a_notebook_gets_html_a_figure_and_the_text():
    advice = Advice(findings(traced=None))
    data, metadata = advice._repr_mimebundle_()
    assert data["text/plain"] == advice.as_text()
    assert "<h3>Advice for loading Images</h3>" in data["text/html"]
    assert data["image/png"]
    assert "num_workers=2: median 5.07 ms" in metadata["image/png"]["alt"]
    assert advice.alt_text() == metadata["image/png"]["alt"]


def test_before_anything_was_tried_the_figure_shows_the_layers():
    advice = Advice(findings(trials={}))
    assert re.search(r"fetch [\d.]+ ms, which holds it back", advice.alt_text())
    assert advice.figure(dark=True).get_facecolor()[:3] != (1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="nothing was measured"):
        Advice(findings(trials={}, traced=None)).figure()


def test_the_figure_is_of_the_last_trial_also_where_there_is_no_timeline():
    whole = result(8, **{"your setting": 10.0, "num_workers=4": 3.0})
    trials = {"workers": trial(), "all": dataclasses.replace(trial("all"), result=whole)}
    advice = Advice(findings(traced=None, trials=trials))
    assert "num_workers=4: median 3.0" in advice.alt_text()


def test_a_trial_of_too_few_repeats_is_told_of_and_not_drawn():
    few = result(2, **{"your setting": 10.0, "num_workers=2": 3.0})
    advice = Advice(findings(trials={"workers": dataclasses.replace(trial(), result=few)}))
    assert "of 2 repeats: give it more time" in " ".join(advice.as_text().split())
    assert len(advice.pictures()) == 2  # layers and timeline
    assert "which holds it back" in advice.alt_text()


def test_text_from_the_users_code_is_escaped():
    html = sections_html(findings(name="<script>alert(1)</script>"))
    assert "<script>" not in html
