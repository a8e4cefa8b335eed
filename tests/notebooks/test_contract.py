"""Every notebook keeps the contract that CONTRIBUTING.md states in short."""

import re
import statistics
from functools import cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest
from nbformat import NotebookNode

from scripts.execute_notebooks import all_notebooks, normalise, to_text

CHECKED = "nbval-check-output"
RAISES = "raises-exception"
IMAGES = ("image/png", "image/jpeg", "image/svg+xml")

# A title tells the learner what to do. A new verb is added here.
VERBS = {
    *("ask", "balance", "break", "build", "choose", "collate", "count", "explain", "feed", "find"),
    *("follow", "get", "go", "keep", "learn", "load", "make", "measure", "mend", "move", "open"),
    *("overlap", "pin", "predict", "read", "recognise", "run", "see", "send", "share", "shard"),
    *("spread", "start", "take", "train", "trace", "tune", "turn", "understand", "use", "watch"),
    "write",
}

pytestmark = pytest.mark.parametrize("path", all_notebooks(), ids=lambda path: path.stem)


@cache
def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def code_cells(path: Path) -> list[NotebookNode]:
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


def prose_cells(path: Path) -> list[NotebookNode]:
    return [cell for cell in read(path).cells if cell.cell_type == "markdown"]


def tagged(path: Path, tag: str) -> list[NotebookNode]:
    return [cell for cell in code_cells(path) if tag in cell.metadata.get("tags", [])]


def prose(path: Path) -> str:
    """Return the text of all prose cells, without code blocks."""
    text = "\n\n".join(cell.source for cell in prose_cells(path))
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def headings(path: Path) -> list[tuple[int, str]]:
    found = re.findall(r"^(#{1,6})\s+(.+?)\s*#*$", prose(path), flags=re.MULTILINE)
    return [(len(marks), title) for marks, title in found]


def opening(path: Path) -> str:
    """Return the prose before the first code cell."""
    cells = read(path).cells
    first_code = next(i for i, cell in enumerate(cells) if cell.cell_type == "code")
    return "\n\n".join(cell.source for cell in cells[:first_code])


# How it opens


def test_it_begins_with_its_only_title_which_is_a_verb_form(path):
    titles = [title for level, title in headings(path) if level == 1]
    assert len(titles) == 1
    assert read(path).cells[0].source.startswith(f"# {titles[0]}")
    first_word = titles[0].split()[0].lower().strip(":,")
    assert first_word in VERBS or first_word.endswith("ing"), f"no verb first: {titles[0]!r}"


def test_no_heading_level_is_skipped(path):
    levels = [level for level, _ in headings(path)]
    skips = [(a, b) for a, b in pairwise(levels) if b > a + 1]
    assert skips == []


def test_it_opens_with_three_to_five_goals(path):
    lists = re.findall(r"(?:^(?:[-*]|\d+\.) .+\n?(?:^ +\S.*\n?)*)+", opening(path), re.MULTILINE)
    assert lists, "no list before the first code cell"
    goals = re.findall(r"^(?:[-*]|\d+\.) ", lists[0], re.MULTILINE)
    assert 3 <= len(goals) <= 5


def test_it_says_how_long_it_takes_and_what_it_needs(path):
    assert re.search(r"\b\d+ minutes\b", opening(path))
    assert re.search(r"\bGPU\b", opening(path))


# Its size


def test_it_has_20_to_40_cells_about_half_of_them_prose(path):
    cells = len(read(path).cells)
    assert 20 <= cells <= 40
    assert 0.4 <= len(prose_cells(path)) / cells <= 0.65


def test_it_has_at_most_1500_words(path):
    without_markup = re.sub(r"<[^>]+>|\]\([^)]*\)", " ", prose(path))
    words = [word for word in without_markup.split() if re.search(r"\w", word)]
    assert len(words) <= 1500


def test_its_median_code_cell_has_at_most_8_lines(path):
    lines = [len(cell.source.strip().splitlines()) for cell in code_cells(path)]
    assert 0 not in lines, "an empty code cell"
    assert statistics.median(lines) <= 8


# Its images and links


def test_every_image_in_the_prose_has_an_alt_text_and_a_file(path):
    images = re.findall(r"!\[([^\]]*)\]\(([^)\s]+)[^)]*\)", prose(path))
    tags = re.findall(r"<img\b[^>]*>", prose(path))
    for tag in tags:
        alt, source = (re.search(rf'\b{name}="([^"]+)"', tag) for name in ("alt", "src"))
        assert alt, f"no alt text: {tag}"
        assert source, f"no source: {tag}"
        images.append((alt[1], source[1]))
    for alt, source in images:
        assert alt.strip(), f"no alt text: {source}"
        assert resolves(path, source), source


def test_every_figure_in_an_output_has_an_alt_text(path):
    for cell in code_cells(path):
        for output in cell.outputs:
            for kind in IMAGES:
                if kind in output.get("data", {}):
                    about = {**output.metadata, **output.metadata.get(kind, {})}
                    assert about.get("alt"), f"figure without alt text from:\n{cell.source}"


def test_every_relative_link_resolves(path):
    links = re.findall(r"(?<!!)\[[^\]]*\]\(([^)\s]+)[^)]*\)", prose(path))
    assert [link for link in links if not resolves(path, link)] == []


def resolves(path: Path, link: str) -> bool:
    if re.match(r"(https?|mailto|attachment|data):", link):
        return True
    target, _, fragment = unquote(link).partition("#")
    if not target:
        return fragment in {title.replace(" ", "-") for _, title in headings(path)}
    return (path.parent / target).exists()


# How it was stored


def test_it_is_stored_as_make_notebooks_stores_it(path):
    """No widget state, kernel python3, no versions, no view settings."""
    stored = path.read_text(encoding="utf-8")
    as_executed = to_text(normalise(nbformat.reads(stored, as_version=4)))
    assert stored == as_executed, "run `make notebooks`"


def test_its_cells_were_executed_once_and_in_order(path):
    counts = [cell.execution_count for cell in code_cells(path)]
    assert counts == list(range(1, len(counts) + 1)), "run `make notebooks`"


def test_it_has_three_checked_cells_and_each_has_an_output_that_nbval_compares(path):
    checked = tagged(path, CHECKED)
    assert len(checked) >= 3
    for cell in checked:
        comparable = [
            output
            for output in cell.outputs
            if output.output_type in ("stream", "error") or "text/plain" in output.data
        ]
        assert comparable, f"nothing to compare in:\n{cell.source}"
        assert not cell.source.rstrip().endswith(";"), cell.source
        assert all(output.get("name") != "stderr" for output in cell.outputs), cell.source


def test_only_cells_that_say_so_store_an_error_and_those_do(path):
    """nbval lets a cell pass that is tagged raises-exception and does not raise."""
    for cell in code_cells(path):
        has_error = any(output.output_type == "error" for output in cell.outputs)
        assert has_error == (RAISES in cell.metadata.get("tags", [])), cell.source
