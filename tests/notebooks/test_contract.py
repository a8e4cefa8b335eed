"""Every notebook keeps the contract that CONTRIBUTING.md states in short."""

import ast
import re
import statistics
from functools import cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest
from nbformat import NotebookNode

from labkit.lab.exercises import all_exercises
from labkit.lab.layer_map import NOTEBOOK_LAYERS, layer_map
from scripts.execute_notebooks import all_notebooks, normalise, to_text

CHECKED = "nbval-check-output"
RAISES = "raises-exception"
EXERCISE = "exercise"
IMAGES = ("image/png", "image/jpeg", "image/svg+xml")
ROOT = Path(__file__).resolve().parents[2]
MOST_BYTES = 1_500_000

# What a machine could contradict: a time, a rate, how many times as fast. A setting in code, such
# as `wait_ms=2`, is none.
TYPED_FIGURES = re.compile(
    r"\d\s?(?:ns|µs|us|ms|s|nanoseconds?|microseconds?|milliseconds?|seconds?)\b"
    r"|\d\s?[kKMG]i?B/s"
    r"|\d\s?(?:×|x|%|times)\s(?:as\s)?(?:fast|slow|quick|long|less time|more time)"
)

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


def calls(path: Path, function: str) -> list[tuple[NotebookNode, list[str]]]:
    """Return each cell that calls the function by its name, with the call's arguments as source."""
    found = []
    for cell in code_cells(path):
        source = re.sub(r"^[%!].*$", "", cell.source, flags=re.MULTILINE)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) == function:
                found.append((cell, [ast.unparse(argument) for argument in node.args]))
    return found


def texts(cell: NotebookNode) -> str:
    """Return the plain text of a cell's outputs."""
    return "\n".join(o.get("text", o.get("data", {}).get("text/plain", "")) for o in cell.outputs)


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


def test_it_opens_with_the_map_of_the_layers_and_its_own_are_marked(path):
    current = layer_map(NOTEBOOK_LAYERS[path.stem]).img()
    command = f"python -m labkit.lab.layer_map {path.relative_to(ROOT)}"
    assert current in read(path).cells[0].source, f"no map, or an old one: run {command}"


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


def test_no_cell_is_too_long_to_take_in(path):
    for cell in code_cells(path):
        assert len(cell.source.splitlines()) <= 32, cell.source
    for cell in prose_cells(path):
        assert len(re.sub(r"<[^>]+>", " ", cell.source).split()) <= 220, cell.source[:200]


def test_the_file_is_small_enough_for_a_code_host_to_show(path):
    assert path.stat().st_size <= MOST_BYTES


# What it says


def test_its_prose_states_no_time_and_no_speed_that_another_machine_would_contradict(path):
    without_code = re.sub(r"`[^`]*`|<[^>]+>", " ", prose(path))
    said = [
        without_code[max(0, m.start() - 40) : m.end()] for m in TYPED_FIGURES.finditer(without_code)
    ]
    assert said == []


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
            for tag in re.findall(r"<img\b[^>]*>", output.get("data", {}).get("text/html", "")):
                assert re.search(r'\balt="[^"]+"', tag), f"no alt text from:\n{cell.source}"


def test_each_panel_has_a_stored_figure_of_a_run(path):
    """Who reads the notebook without a kernel sees what the panel's latest run found."""
    alt_texts: dict[str, list[str]] = {}
    for cell in code_cells(path):
        for output in cell.outputs:
            data = output.get("data", {})
            panel = re.match(r"<Panel (['\"])(.+?)\1:", data.get("text/plain", ""))
            if panel:
                assert "image/png" in data, f"no figure of the panel from:\n{cell.source}"
                alt_texts.setdefault(panel[2], []).append(output.metadata["image/png"]["alt"])
    for title, texts_of_it in alt_texts.items():
        assert any("median" in alt for alt in texts_of_it), f"{title!r} is shown only before a run"


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


# Its exercises, and how it ends


def test_it_has_two_or_three_exercises_each_with_a_stub_and_then_its_check(path):
    code = code_cells(path)
    checks = {ast.literal_eval(args[0]): (cell, args[1]) for cell, args in calls(path, "check")}
    known = {exercise.id: exercise for exercise in all_exercises()}
    assert 2 <= len(checks) <= 3
    assert set(checks) == {id for id in known if id[:2] == path.stem[:2]}
    stubs = tagged(path, EXERCISE)
    assert len(stubs) == len(checks)
    for id, (check_cell, answer) in checks.items():
        assert answer == known[id].answer
        mine = [cell for cell in stubs if re.search(rf"^(def|class) {answer}\b", cell.source, re.M)]
        assert len(mine) == 1, f"no cell with the tag `{EXERCISE}` defines {answer}"
        assert code.index(mine[0]) < code.index(check_cell)


def test_its_exercises_are_stored_undone_and_lead_to_hints_and_solutions(path):
    for cell, args in calls(path, "check"):
        assert f"{ast.literal_eval(args[0])}: Not yet done." in texts(cell), cell.source
    assert f"solutions/{path.stem}.py" in prose(path)
    hint_as_it_can_be_called = f'`labkit.lab.hint("{path.stem[:2]}.'
    assert hint_as_it_can_be_called in prose(path)


def test_it_ends_with_its_quiz_what_to_remember_and_pytorchs_names(path):
    cells = read(path).cells
    (quiz_cell, arguments), *others = calls(path, "quiz")
    assert others == []
    assert arguments == [repr(path.stem[:2])]
    assert quiz_cell is code_cells(path)[-1]
    assert "text/html" in quiz_cell.outputs[0].data, "no quiz for readers without a kernel"
    end = "\n\n".join(cell.source for cell in cells[cells.index(quiz_cell) + 1 :])
    remember = re.search(r"^## Remember\n+((?:\d\. .+\n?)+)", end, re.MULTILINE)
    assert remember, "no list under `## Remember`"
    assert len(remember[1].splitlines()) == 5
    assert re.search(r"`[^`]*torch[^`]*`", end[remember.end() :]), "no names of PyTorch's"


def test_the_readme_leads_to_it(path):
    assert f"](notebooks/{path.name})" in (ROOT / "README.md").read_text(encoding="utf-8")


# How it was stored


def test_it_is_stored_as_make_notebooks_stores_it(path):
    """No widgets and no state of theirs, kernel python3, no versions, no view settings."""
    stored = path.read_text(encoding="utf-8")
    as_executed = to_text(normalise(nbformat.reads(stored, as_version=4)))
    assert stored == as_executed, "run `make notebooks`"
    assert "application/vnd.jupyter.widget" not in stored


def test_nothing_in_it_tells_where_it_was_run(path):
    stored = path.read_text(encoding="utf-8")
    assert str(ROOT) not in stored
    assert f"{Path.home()}/" not in stored


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


def test_only_cells_that_say_so_store_an_error_and_are_compared(path):
    """nbval lets a cell pass that is tagged raises-exception and does not raise, unless it compares
    the error.
    """
    for cell in code_cells(path):
        tags = cell.metadata.get("tags", [])
        has_error = any(output.output_type == "error" for output in cell.outputs)
        assert has_error == (RAISES in tags), cell.source
        assert CHECKED in tags or not has_error, cell.source


def test_no_cell_begins_a_line_with_a_magic(path):
    """An unknown one ends its cell, and nbval lets that pass."""
    for cell in code_cells(path):
        assert not re.search(r"^\s*[%!]", cell.source, re.MULTILINE), cell.source
