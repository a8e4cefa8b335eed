"""The map marks the layers of a notebook, in words and signs, and brings its alt text along."""

import base64
import json
import re
from html import unescape
from itertools import combinations
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.lab.layer_map import _BOXES, LAYERS, NOTEBOOK_LAYERS, layer_map, main, refresh
from labkit.lab.plots.lettering import Type, width_inches
from tests.lab.test_plots import fonts_are_open

__all__ = ["fonts_are_open"]  # a fixture

SVG = "{http://www.w3.org/2000/svg}"
SIZE = (820, 294)
marked = st.lists(st.sampled_from(LAYERS), unique=True)


def read(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


@given(marked)
def test_it_is_an_svg_that_says_what_it_shows(here):
    found = layer_map(here)
    root = read(found.svg)
    assert root.attrib["role"] == "img"
    assert (root.attrib["width"], root.attrib["viewBox"]) == ("820", f"0 0 {SIZE[0]} {SIZE[1]}")
    assert root.find(f"{SVG}title").text
    assert root.find(f"{SVG}desc").text == found.alt
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert {"sampler", "index queue", "fetch", "collate", "shared memory", "preloader"} <= set(
        words
    )


@given(marked)
def test_what_is_marked_is_filled_has_a_sign_and_is_named(here):
    root = read(layer_map(here).svg)
    signs = [path for path in root.iter(f"{SVG}path") if "l-5.5 8z" in path.attrib["d"]]
    assert len(signs) == len(here) + bool(here)  # one is the key
    filled = {
        (int(rect.attrib["x"]), int(rect.attrib["y"]))
        for rect in root.iter(f"{SVG}rect")
        if rect.attrib["fill"] in ("#1f5fa8", "#cfe0f5")
    }
    assert filled == {(_BOXES[layer].left, _BOXES[layer].top) for layer in here}
    alt = layer_map(here).alt
    if 0 < len(here) < len(LAYERS) - 1:
        named = alt.partition("You are here: ")[2].rstrip(".").split(", ")
        assert sorted(named) == sorted(here)
    elif not here:
        assert alt.endswith("No layer is marked.")


def test_the_order_in_which_layers_are_named_does_not_matter():
    assert layer_map(["collate", "fetch"]) == layer_map(("fetch", "collate"))
    assert layer_map("fetch") == layer_map(["fetch"])


def test_boxes_lie_apart_and_on_the_paper():
    boxes = {name: box for name, box in _BOXES.items() if name != "worker"}
    for box in boxes.values():
        assert 0 <= box.left < box.right <= SIZE[0]
        assert 0 <= box.top < box.bottom <= SIZE[1]
    for (one, a), (other, b) in combinations(boxes.items(), 2):
        apart = a.right < b.left or b.right < a.left or a.bottom < b.top or b.bottom < a.top
        assert apart, (one, other)


def test_text_fits_into_its_box():
    for name, box in _BOXES.items():
        for line in box.lines:
            # DejaVu Sans, in which this is measured, is wider than the map's Helvetica or Arial.
            wide = width_inches(line, Type(13, 0.2)) * 72
            assert wide <= box.right - box.left, (name, line)


@given(marked)
def test_the_key_stays_on_the_paper(here):
    for text in read(layer_map(here).svg).iter(f"{SVG}text"):
        assert 0 < float(text.attrib["y"]) < SIZE[1]
        if text.attrib["text-anchor"] == "start":
            wide = width_inches(text.text, Type(float(text.attrib["font-size"]), 0.2)) * 72
            assert float(text.attrib["x"]) + wide < SIZE[0]


def test_an_unknown_layer_is_refused_with_those_that_there_are():
    with pytest.raises(ValueError, match="no layer 'fetcher' on the map: write one of sampler, "):
        layer_map(["fetch", "fetcher"])


def test_the_tag_has_alt_text_and_the_map_inside():
    found = layer_map("fetch")
    alt, data = re.fullmatch(
        r'<img alt="([^"]+)" width="820" src="data:image/svg\+xml;base64,([^"]+)">', found.img()
    ).groups()
    assert unescape(alt) == found.alt
    assert base64.b64decode(data).decode() == found.svg


def test_as_an_output_it_has_alt_text_too():
    found = layer_map("fetch")
    assert found._repr_html_() == found.img()
    assert found._repr_svg_() == (found.svg, {"alt": found.alt})


def test_every_notebook_of_the_course_has_its_layers():
    assert [name[:2] for name in NOTEBOOK_LAYERS] == [f"{i:02}" for i in range(13)]
    for here in NOTEBOOK_LAYERS.values():
        assert set(layer_map(here).here) == set(here)
    assert set().union(*NOTEBOOK_LAYERS.values()) == set(LAYERS)


# In notebooks


@pytest.fixture
def notebook(tmp_path):
    """With an old map, spaces that json.dump would not write, and letters that it would escape."""
    path = tmp_path / "02_start_methods.ipynb"
    old = layer_map("sampler").img()
    cells = [
        {"cell_type": "markdown", "source": ["# Start – naïve\n", "\n", f"{old}\n", "\n", "End."]},
        {"cell_type": "code", "source": ["print(1)"]},
    ]
    path.write_text(json.dumps({"cells": cells}, ensure_ascii=False, indent=3), encoding="utf-8")
    return path


def test_refreshing_draws_the_map_anew_and_leaves_the_rest(notebook):
    before = notebook.read_text(encoding="utf-8")
    assert refresh(notebook)
    after = notebook.read_text(encoding="utf-8")
    old, new = layer_map("sampler").img(), layer_map("worker").img()
    assert json.loads(after)["cells"][0]["source"][2] == f"{new}\n"
    assert after == before.replace(json.dumps(old)[1:-1], json.dumps(new)[1:-1])
    assert not refresh(notebook)
    assert notebook.read_text(encoding="utf-8") == after


def test_a_notebook_without_a_map_is_told_what_to_put_in(notebook):
    notebook.write_text('{"cells": []}')
    with pytest.raises(ValueError, match=r"has no map: put this into its first cell:\n<img alt="):
        refresh(notebook)


def test_a_notebook_whose_layers_are_not_known_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"13_more\.ipynb is not in NOTEBOOK_LAYERS"):
        refresh(tmp_path / "13_more.ipynb")


def test_maps_can_be_refreshed_from_the_command_line(notebook, capsys):
    main([str(notebook)])
    main([str(notebook)])
    assert capsys.readouterr().out == f"{notebook} drawn anew\n{notebook} is up to date\n"
    source = json.loads(notebook.read_text(encoding="utf-8"))["cells"][0]["source"]
    assert source[2] == f"{layer_map('worker').img()}\n"
