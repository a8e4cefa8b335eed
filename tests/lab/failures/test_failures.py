"""Every failure with both loaders: who tells what, and that nothing is left of any of it."""

import os
import re

import numpy as np
import pytest
from matplotlib import font_manager
from PIL import Image

from labkit import errors
from labkit.lab import failures, panels
from labkit.lab.exercises.checks_11 import DIAGNOSES
from labkit.lab.failures import acts, datasets, growth, growth_picture, picture, playing
from labkit.lab.failures.outcome import Beside, Left, Outcome
from labkit.lab.failures.sides import SIDES, Side
from labkit.lab.plots.pictures import png

GIVEN_UP = "not known"
YES, NO, MUTE = ("yes", "yes", "yes"), ("no", "no", "no"), ("–", "–", "–")
TELLS_WAY_OUT = ("no", "no", "yes")
VERDICTS = {  # what came; names the worker, the batch, a way out; what stayed behind
    ("killed worker", "PyTorch"): ("RuntimeError", ("yes", "no", "no"), "nothing"),
    ("killed worker", "labkit"): ("WorkerDied", YES, "nothing"),
    ("worker exits", "PyTorch"): ("waits on", MUTE, GIVEN_UP),
    ("worker exits", "labkit"): ("WorkerDied", YES, "nothing"),
    ("dead parent", "PyTorch"): ("its worker lives on", MUTE, "1 process"),
    ("dead parent", "labkit"): ("its worker ends", MUTE, "nothing"),
    ("full shared memory", "PyTorch"): ("waits on", MUTE, GIVEN_UP),
    ("full shared memory", "labkit"): ("SharedMemoryFull", TELLS_WAY_OUT, "nothing"),
    ("too many open files", "PyTorch"): ("RuntimeError", TELLS_WAY_OUT, "nothing"),
    ("too many open files", "labkit"): ("TooManyOpenFiles", TELLS_WAY_OUT, "nothing"),
    ("unpicklable batch", "PyTorch"): ("waits on", MUTE, GIVEN_UP),
    ("unpicklable batch", "labkit"): ("BatchNotShareable", TELLS_WAY_OUT, "nothing"),
    ("unpicklable dataset", "PyTorch"): ("TypeError", NO, "nothing"),
    ("unpicklable dataset", "labkit"): ("StartupNotPicklable", TELLS_WAY_OUT, "nothing"),
    ("lock held at the fork", "PyTorch"): ("RuntimeError", NO, GIVEN_UP),
    ("lock held at the fork", "labkit"): ("LoaderTimeout", YES, "nothing"),
    ("slow batch", "PyTorch"): ("RuntimeError", NO, "nothing"),
    ("slow batch", "labkit"): ("LoaderTimeout", YES, "nothing"),
    ("Ctrl-C", "PyTorch"): ("KeyboardInterrupt", NO, "nothing"),
    ("Ctrl-C", "labkit"): ("KeyboardInterrupt", NO, "nothing"),
}


@pytest.fixture(scope="module")
def pairs() -> list[Beside]:
    """All failures: those with which PyTorch's loader waits at the same time, then the others."""
    known, found = failures.FAILURES, {}
    for waits in (True, False):
        names = [name for name, failure in known.items() if failure.pytorch_waits == waits]
        scenes = [(known[name], side) for name in names for side in acts.sides_of(name)]
        played = iter(playing.played(scenes, patience_s=2.0))
        found |= {name: Beside(name, [next(played), next(played)], "fork") for name in names}
    return [found[name] for name in known]


def outcome(package: str, **facts) -> Outcome:
    usual = {
        "failure": "killed worker", "seconds": 0.25, "is_over": True, "error": "WorkerDied",
        "message": "worker 0 (pid 77) is gone. Try fewer.", "workers": (77,), "batches": 1,
        "printed": "", "stack": "", "exit_codes": (), "megabytes": (), "closing_s": 0.1,
        "left": Left(0, 0, 0),
    }  # fmt: skip
    return Outcome(package=package, **{**usual, **facts})


FAKE = Beside(
    "killed worker",
    [
        outcome("PyTorch", is_over=False, error="", message="", seconds=3.0, left=None,
                printed="Traceback\nOSError: <full>\n\n"),
        outcome("labkit"),
    ],
    "fork",
)  # fmt: skip


# For real


def test_each_failure_comes_to_the_end_that_notebook_11_tells_of(pairs):
    rows = failures.verdicts(*pairs).rows
    found = {(row[0], row[1]): (row[2], tuple(row[3:6]), row[6]) for row in rows}
    assert found == VERDICTS


def test_what_was_seen_from_outside_tells_them_apart(pairs):
    by_name = {pair.failure: pair for pair in pairs}
    lock = by_name["lock held at the fork"]
    assert [o.stands_at for o in lock.outcomes] == ["`with LOCK:`, in __getitem__"] * 2
    assert "datasets.py" in lock.labkit.says
    lost = by_name["unpicklable batch"].pytorch
    assert lost.last_printed == "TypeError: cannot pickle 'generator' object"
    assert "index_queue.get" in lost.stands_at
    assert "No space left" in by_name["full shared memory"].pytorch.last_printed
    assert by_name["killed worker"].pytorch.exit_codes == (-9,)
    assert by_name["Ctrl-C"].labkit.tracebacks == 1
    for pair in pairs:
        for one in pair.outcomes:
            assert one.batches == {"too many open files": one.batches, "Ctrl-C": 2}.get(
                pair.failure, int(pair.failure in ("killed worker", "worker exits", "dead parent"))
            )


def test_the_broken_loaders_show_the_symptoms_that_the_exercise_speaks_of(monkeypatch):
    monkeypatch.setenv("LABKIT_MEASURE_SECONDS", "0.5")
    found = failures.examine()
    lost, killed, stuck, growing, late = found.outcomes
    assert (lost.ended, stuck.ended, growing.ended) == ("waits on", "waits on", "no error")
    assert "pickle" in lost.last_printed
    assert stuck.last_printed == ""
    assert (killed.error, killed.exit_codes) == ("RuntimeError", (-9,))
    assert "timed out" in late.message
    assert ["index_queue.get" in lost.stands_at, "LOCK" in stuck.stands_at] == [True, True]
    assert "sleep" in late.stands_at
    if growth.private_bytes():
        assert growing.megabytes[-1] > 10
    assert [row[0] for row in found.rows] == list(DIAGNOSES)
    assert set(DIAGNOSES.values()) < set(failures.FAULTS)
    assert "exit code -9" in str(found)


def test_every_error_of_labkit_is_raised_and_shows_a_way_out(pairs):
    found = failures.every_error(*pairs)
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    known = {kind.__name__ for kind in kinds if issubclass(kind, errors.LabkitError)}
    assert {row[0] for row in found.rows} == known - {"LabkitError"}
    for error, when, said in found.rows:
        assert outcome("labkit", error=error, message=said).names_way_out, when
    assert "CollateError: two samples of a batch differ in shape\n    stack expects" in str(found)
    assert found.rows[0][:2] == ("WorkerDied", "killed worker")
    assert '<td style="white-space: pre-line; ' in found._repr_html_()


def test_a_list_of_strings_grows_and_an_array_does_not():
    if not growth.private_bytes():
        with pytest.raises(RuntimeError, match="private memory"):
            growth.grow()
        return
    found = growth.grow()
    assert [row[2] for row in found.rows] == ["yes", "yes", "no", "no"]
    said = growth_picture.sentence(found.growths)
    assert re.search(r"labkit, list: \d+\.\d+ MB more", said)


def test_what_takes_too_long_is_ended_with_all_that_it_started(monkeypatch):
    """N5: by the lab's own limit, though nobody in there would ever end."""
    monkeypatch.setattr(playing, "_LIMIT_S", 1.0)
    with pytest.raises(RuntimeError, match="was not done after 1 s"):
        failures.beside("unpicklable batch", patience_s=60)


def _dies(side: Side, stage: acts.Stage) -> None:
    os.write(2, b"said before the end\n")
    os._exit(3)


def test_an_act_that_ends_its_main_process_is_no_outcome():
    scene = acts.Failure("dies", _dies), Side("labkit", "fork")
    with pytest.raises(RuntimeError, match="said before the end"):
        playing.played([scene])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("fire",), "write one of 'killed worker'"), (("Ctrl-C", "thread"), "write one of")],
)
def test_what_there_is_not_is_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        failures.beside(*arguments)


def test_the_panel_offers_what_there_is():
    panel = panels.failures()
    assert panel.labels == list(SIDES)
    failure, method, strategy = panel.controls
    for name in failure.options.values():
        for start_method in method.options.values():
            for shared in strategy.options.values():
                sides = acts.sides_of(name, start_method, shared)
                assert {side.start_method for side in sides} == {start_method}
                assert {side.sharing_strategy for side in sides} == {shared}


# As it is shown


def test_an_outcome_is_told_in_words_that_are_the_same_everywhere():
    pytorch, labkit = FAKE.outcomes
    assert (pytorch.ended, pytorch.when, pytorch.left_words) == (
        "waits on", "not after 3.0 s", GIVEN_UP,
    )  # fmt: skip
    assert pytorch.last_printed == "OSError: <full>"
    assert (labkit.ended, labkit.when, labkit.left_words) == (
        "WorkerDied", "after 0.25 s", "nothing",
    )  # fmt: skip
    assert (labkit.names_worker, labkit.names_batch, labkit.names_way_out) == (True, False, True)
    assert not outcome("labkit", workers=(7,)).names_worker  # 7 is in 77
    assert Left(2, 1, 3).words == "2 processes, 1 name in /dev/shm, 3 descriptors"
    assert "OSError: &lt;full&gt;" in FAKE._repr_html_()
    assert "OSError: <full>" in repr(FAKE)


def test_pages_of_stack_are_cut_to_the_innermost_lines():
    frames = "".join(f'  File "/long/way/f{n}.py", line {n} in f\n' for n in range(9))
    stack = f'Thread 0x1:\n  File "x.py", line 1 in g\n\nThread 0x2:\n{frames}'
    said = outcome("labkit", message=f"timed out.\nThe worker is here:\n{stack}").says
    lines = said.splitlines()
    assert lines[:3] == ["timed out.", "The worker is here:", 'File "…/f0.py", line 0 in f']
    assert lines[-1] == "…"
    assert len(lines) == 7


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(lambda: picture.show(FAKE, FAKE), id="times"),
        pytest.param(
            lambda: growth_picture.show(
                [growth.Growth(p, k, (1.0, 2.0)) for p in SIDES for k in growth.KINDS]
            ),
            id="growth",
        ),
    ],
)
def test_the_figures_are_light_or_dark_and_told_in_words(shown, tmp_path):
    found = shown()
    assert "PyTorch" in found.alt
    assert "labkit" in found.alt
    assert found.sentence in found.alt
    for dark in (False, True):
        path = tmp_path / "figure.png"
        path.write_bytes(png(found.draw(dark)))
        grey = np.asarray(Image.open(path).convert("L"))
        assert (np.median(grey) < 128) == dark
        assert grey.std() > 5  # something is drawn
    font_manager._get_font.cache_clear()


def test_a_side_that_was_given_up_is_said_to_be():
    assert "Killed worker: PyTorch given up after 3.00 s, labkit after 0.250 s" in picture.alt(
        [FAKE]
    )
    said = picture.sentence([FAKE])
    assert "PyTorch had not told 1 of 1 when it was given up, labkit none." in said
    assert "Of the 0 that both told, labkit was first with none." in said


def test_it_is_counted_who_told_first():
    def told(failure, pytorch_s, labkit_s):
        sides = [outcome("PyTorch", seconds=pytorch_s), outcome("labkit", seconds=labkit_s)]
        return Beside(failure, sides, "fork")

    pairs = [FAKE, told("Ctrl-C", 0.1, 0.2), told("slow batch", 2.0, 1.0)]
    assert "Of the 2 that both told, labkit was first with 1." in picture.sentence(pairs)
    assert "Ctrl-C: PyTorch after 0.100 s, labkit after 0.200 s." in picture.alt(pairs)


def test_the_batch_that_claims_too_much_takes_nothing():
    batch = datasets.LargerThan(1 << 36)([])
    assert batch.nbytes == 1 << 36
