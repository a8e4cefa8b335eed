"""The texts around the course: routes that add up, terms that occur, names that resolve, numbers
that were measured.
"""

import importlib
import json
import re
from functools import cache
from pathlib import Path

import nbformat
import pytest
from PIL import Image

from labkit.lab.exercises import all_exercises
from scripts import learner_needs, numbers_to_expect
from scripts.execute_notebooks import all_notebooks

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = {path.stem[:2]: path for path in all_notebooks()}


@cache
def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def prose_of(number: str) -> str:
    cells = nbformat.read(NOTEBOOKS[number], as_version=4).cells
    return "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def headings(number: str) -> set[str]:
    return set(re.findall(r"^#+ (.+?)\s*$", prose_of(number), re.MULTILINE))


def sections(level: int) -> dict[str, str]:
    """The text below each heading of the teaching notes."""
    marks = "#" * level
    found = re.findall(
        rf"^{marks} (.+?)\n(.*?)(?=^#{{2,{level}}} |\Z)",
        text_of("notebooks/TEACHING.md"),
        re.DOTALL | re.MULTILINE,
    )
    return dict(found)


def routes() -> dict[str, list[tuple[int, str, str]]]:
    """The steps of each route: minutes, notebook, what."""
    return {
        title: [(int(m), n, what) for m, n, what in re.findall(ROUTE_ROW, body, re.MULTILINE)]
        for title, body in sections(3).items()
    }


ROUTE_ROW = r"^\| (\d+) \| (\d\d) \| (.+) \|$"


def test_there_are_four_routes():
    starts = [title.partition(":")[0] for title in routes()]
    assert starts == ["A talk", "Half a day", "A day", "A week's unit"]


@pytest.mark.parametrize("title", routes())
def test_the_minutes_of_a_route_add_up(title):
    steps = routes()[title]
    stated = re.search(r": (\d+) minutes$", title)
    assert stated
    assert sum(minutes for minutes, _, _ in steps) == int(stated[1])
    assert [number for _, number, _ in steps] == sorted({number for _, number, _ in steps})


@pytest.mark.parametrize("title", routes())
def test_a_route_names_sections_and_exercises_that_are_there(title):
    for _, number, what in routes()[title]:
        what = re.sub(r"^[A-Z][a-z]+day: ", "", what)
        for part in re.split(r"; | and (?=[A-Z])| to (?=[A-Z])", what):
            name = re.sub(r"^all but ", "", part.partition(": ")[0])
            if name[0].isupper():
                whole = [h for h in headings(number) if part.removeprefix("all but ").startswith(h)]
                assert name in headings(number) or whole, f"{title}: {number} has no {name!r}"
        known = sum(exercise.id.startswith(number) for exercise in all_exercises())
        if exercises := re.search(r"exercises? (\d[\d, and to]*)", what):
            assert max(map(int, re.findall(r"\d", exercises[1]))) <= known


def test_a_week_leaves_no_notebook_out():
    assert {number for _, number, _ in routes()["A week's unit: 780 minutes"]} == set(NOTEBOOKS)


@pytest.mark.parametrize("number", NOTEBOOKS)
def test_each_notebook_has_notes_whose_minutes_are_its_own(number):
    (title,) = [title for title in sections(2) if title.startswith(f"{number} ")]
    stated = re.search(r"\((\d+) minutes\)$", title)
    own = re.search(r"\*\*Time:\*\* (\d+) minutes", prose_of(number))
    assert stated
    assert own
    assert stated[1] == own[1]
    body = sections(2)[title]
    rows = re.findall(r"^\| (?:[^|]+ \| )?(\d+) \|", body, re.MULTILINE)
    assert not rows or sum(map(int, rows)) == int(own[1])
    for needed in (
        "demonstrate",
        "likely wrong predictions",
        r"questions that|learners ask",
        "core",
    ):
        assert re.search(needed, body, re.IGNORECASE), needed


def glossary() -> list[tuple[str, str, str]]:
    rows = re.findall(
        r"^\| (.+?) \| (.+?) \| \[(\d\d)\]\(\w+\.ipynb\)", text_of("notebooks/GLOSSARY.md"), re.M
    )
    return [tuple(row) for row in rows]


def plain(text: str) -> str:
    return re.sub(r"[*`]", "", text).lower()


def test_the_glossary_is_in_order_and_has_each_term_once():
    terms = [plain(term) for term, _, _ in glossary()]
    assert len(terms) >= 80
    assert terms == sorted(set(terms))
    assert all(meaning.endswith(".") for _, meaning, _ in glossary())


@pytest.mark.parametrize("number", NOTEBOOKS)
def test_each_term_occurs_in_the_notebook_that_introduces_it(number):
    terms = [term for term, _, home in glossary() if home == number]
    assert terms
    assert [term for term in terms if plain(term) not in plain(prose_of(number))] == []


def correspondences() -> list[tuple[str, str]]:
    table = text_of("README.md").partition("## From labkit to PyTorch")[2].partition("\n## ")[0]
    return re.findall(r"^\| (`labkit.*?) \| (`torch.*?) \|", table, re.MULTILINE)


@pytest.mark.parametrize("row", correspondences(), ids=lambda row: row[0])
def test_every_name_in_the_map_to_pytorch_resolves(row):
    for cell in row:
        for name in re.findall(r"`([\w.]+)`", cell):
            assert resolve(name) is not None, name


def test_every_public_name_of_labkit_is_in_the_map_or_explained_above():
    import labkit

    assert [name for name in labkit.__all__ if name not in text_of("README.md")] in (
        [],
        ["get_all_sharing_strategies", "get_sharing_strategy"],
    )
    assert len(correspondences()) >= 15


def resolve(name: str):
    module, _, rest = name.partition(".")
    found = importlib.import_module(module)
    for part in rest.split("."):
        module = f"{module}.{part}"
        try:
            found = getattr(found, part)
        except AttributeError:
            found = importlib.import_module(module)
    return found


def test_pictures_in_the_readme_have_alt_texts_and_are_small():
    tags = re.findall(
        r'<img src="(notebooks/pictures/[^"]+)"[^>]*alt="([^"]+)"', text_of("README.md")
    )
    assert len(tags) == 3
    for source, alt in tags:
        assert len(alt.split()) >= 20
        assert (ROOT / source).stat().st_size < 150_000
        with Image.open(ROOT / source) as picture:
            assert picture.width >= 600
    stored = {path.name for path in (ROOT / "notebooks/pictures").iterdir()}
    assert stored == {Path(source).name for source, _ in tags}


def test_what_a_learner_needs_was_measured_for_each_notebook():
    needs = json.loads(learner_needs.NEEDS.read_text())["needs"]
    measured = needs.keys() - {learner_needs.SERVER}
    assert measured == {path.stem for path in all_notebooks()}, "run make needs"
    assert all(need["peak_bytes"] > 50e6 and need["cpu_seconds"] > 1 for need in needs.values())


def test_the_numbers_to_expect_are_what_is_stored():
    command = "python -m scripts.numbers_to_expect"
    assert text_of("notebooks/NUMBERS.md") == numbers_to_expect.page(), f"run {command}"
    assert len(numbers_to_expect.figures()) >= 20
    assert all(len(figure.rows) >= 2 for figure in numbers_to_expect.figures())


@pytest.mark.parametrize("name", ["TEACHING.md", "GLOSSARY.md", "NUMBERS.md"])
def test_links_of_the_pages_beside_the_notebooks_lead_somewhere(name):
    text = text_of(f"notebooks/{name}")
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        target, _, place = link.partition("#")
        assert re.match(r"https?:", link) or (ROOT / "notebooks" / target).exists(), link
        if place and not target:
            titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
            assert place in {re.sub(r"[^\w -]", "", t).replace(" ", "-").lower() for t in titles}
