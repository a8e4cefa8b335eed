"""A panel shows what was recorded on another machine, beside its own runs and before the first."""

import dataclasses
import functools

import pytest
from matplotlib import font_manager

from labkit.lab import plots, recorded
from labkit.lab.on_device import EXPERIMENTS, Experiment
from labkit.lab.panels import beside, model
from labkit.lab.panels.model import Control, Panel
from labkit.lab.panels.view import PanelView
from tests.lab import recordings
from tests.lab.recordings import MACHINE, recording, write
from tests.lab.test_panels import Tags, press_run


@pytest.fixture(autouse=True)
def fonts_are_closed():
    yield
    font_manager._get_font.cache_clear()


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Where the package's recordings are looked for."""
    monkeypatch.setitem(EXPERIMENTS, "which", Experiment(recordings.measured))
    monkeypatch.setattr(recorded, "FOLDER", tmp_path)
    return tmp_path


def experiment(slow=2.0, *, progress=None, so_far=None, cancel=None):
    return recordings.measured(slow=slow)


def make() -> Panel:
    controls = [Control("slow", "How slow", {"twice": 2.0, "ten times": 10.0}, 2.0)]
    return Panel("Compare a and b", experiment, ["a", "b"], controls, recorded="which")


def markers(figure) -> dict[str, str]:
    lines = figure.axes[0].get_lines()
    return {line.get_gid(): line.get_marker() for line in lines if "repeats" in str(line.get_gid())}


WHERE = "Recorded on NVIDIA H200, 2026-03-01, driver 570.86, CUDA 12.8, torch 2.11.0"


def test_before_the_first_run_the_recorded_result_stands_alone(folder):
    write(folder, recording())
    panel = make()
    assert markers(panel.figure()) == {"repeats of a": "s", "repeats of b": "s"}
    assert "Recorded on another machine on 2026-03-01: NVIDIA H200" in panel.alt_text()
    assert "Not run yet" in panel.sentence
    assert WHERE in panel.sentence
    assert "b took 3." in panel.sentence
    assert panel.alt_text() in panel.as_text()
    data, metadata = panel._repr_mimebundle_()
    assert metadata["image/png"]["alt"] == panel.alt_text()
    assert WHERE in data["text/html"]


def test_a_run_is_drawn_beside_the_recording_in_another_shape(folder):
    write(folder, recording())
    panel = make()
    panel.run()
    assert markers(panel.figure()) == {
        "simulated: repeats of a": "^",
        "recorded: repeats of a": "s",
        "simulated: repeats of b": "^",
        "recorded: repeats of b": "s",
    }
    said = panel.alt_text()
    assert said.index("Simulated: here") < said.index("recorded on another machine on 2026-03-01")
    assert "a: median 12.5 ms" in said
    assert "a: median 1.25 ms" in said
    assert "Simulated: b took" in panel.sentence
    assert WHERE in panel.sentence
    assert panel.last.recorded.origin == "recorded"
    assert "n" in panel.as_text()


def test_settings_that_nobody_recorded_say_how_a_recording_is_made(folder):
    write(folder, recording())
    panel = make()
    panel.run(slow=10.0)
    assert panel.last.recorded is None
    assert "python -m labkit record --out" in panel.sentence
    assert markers(panel.figure()) == {"repeats of a": "^", "repeats of b": "^"}


def test_without_any_recording_nothing_else_changes(folder):
    panel = make()
    assert "Nothing is recorded for these settings" in panel.as_text()
    assert "no figure yet" in panel.alt_text()
    plain = Panel("Compare a and b", experiment, ["a", "b"], panel.controls)
    assert plain.beside({}) is None
    assert "recorded" not in plain.as_text()


def test_an_older_recording_is_said_to_be_older(folder):
    write(folder, recording(modules={"labkit.preload": "of other code"}))
    panel = make()
    assert "older than the code in this copy (changed since: labkit.preload)" in panel.sentence


def test_a_damaged_recording_is_told_of_and_the_panel_still_runs(folder):
    write(folder, recording())
    (folder / "0.json").write_text("{")
    panel = make()
    panel.run()
    assert "0.json cannot be used" in panel.sentence
    assert panel.last.recorded is None


def test_a_simulated_recording_is_none_unless_it_is_asked_for(folder, monkeypatch):
    write(folder, recording(simulated=True))
    assert make().beside({"slow": 2.0}).result is None
    monkeypatch.setattr(model, "look_up", functools.partial(beside.look_up, simulated=True))
    assert "Recorded on a simulated device" in make().beside({"slow": 2.0}).words


def test_the_widgets_show_it_once_the_learner_has_predicted(folder):
    write(folder, recording())
    view = PanelView(make())
    assert "comes here when you have predicted" in view.recorded.value
    assert not Tags(view.recorded.value).of("img")
    view.skip.click()
    (picture, _) = Tags(view.recorded.value).of("img")  # for a light page, and for a dark one
    assert "NVIDIA H200" in picture["alt"]
    press_run(view, after=1)
    assert view.recorded.value == ""  # it is in the run's figure now
    (picture, _) = Tags(view.result.value).of("img")
    assert "Simulated: here" in picture["alt"]
    assert "NVIDIA H200" in picture["alt"]
    assert "The numbers recorded" in view.result.value
    view.settings["slow"].value = 10.0
    assert "python -m labkit record" in view.recorded.value


def test_a_recording_of_fewer_settings_leaves_their_rows_empty():
    live = recordings.measured()
    there = recording().result
    fewer = dataclasses.replace(there, repeats={"b": (1.0,)})
    figure = plots.figure(live, None, True, fewer)
    assert set(markers(figure)) == {
        "simulated: repeats of a",
        "simulated: repeats of b",
        "recorded: repeats of b",
    }
    assert MACHINE["device"] in " ".join(text.get_text() for text in figure.texts)
