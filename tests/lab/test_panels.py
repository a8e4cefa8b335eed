"""Panels as plain objects, and through their widgets as a learner presses them."""

import base64
import re
import threading
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from matplotlib import font_manager
from PIL import Image

from labkit.lab import panels
from labkit.lab.experiments import Cancelled, measure
from labkit.lab.panels.history import in_every_run, rows
from labkit.lab.panels.model import Control, Panel
from labkit.lab.panels.view import PanelView
from labkit.lab.predictions import Prediction
from labkit.lab.results import Result
from tests.lab import measured
from tests.scripts import ROOT, alive, run_script, seconds_until

VIEW = "application/vnd.jupyter.widget-view+json"
FACTORIES = (
    panels.start_methods,
    panels.sharing_strategies,
    panels.workers,
    panels.prefetch,
    panels.batch_size,
    panels.payload,
    panels.persistent_workers,
    panels.loaders,
    panels.messages,
)


@pytest.fixture(autouse=True)
def fonts_are_closed():
    """matplotlib keeps the fonts open that a thread has used, those of the latest few threads."""
    yield
    font_manager._get_font.cache_clear()


def result_of(slow: float) -> Result:
    steps = range(8)
    repeats = {"a": tuple(1 + i / 100 for i in steps), "b": tuple(slow + i / 100 for i in steps)}
    return Result("Which?", "time", "ms", repeats, machine={"cpu": "some"})


def experiment(slow=2.0, progress=None, so_far=None, cancel=None, **others):
    """Stands for a measurement, without one."""
    if others:
        raise ValueError(f"no such setting: {others}")
    progress(0, 2, "a, repeat 1 of 1")
    so_far(result_of(slow))
    if slow < 0:
        raise RuntimeError("it broke <here>")
    progress(2, 2, "done")
    return result_of(slow)


def make(run=experiment, **options) -> Panel:
    controls = [Control("slow", "How slow", {"twice": 2.0, "ten times": 10.0, "broken": -1.0}, 2.0)]
    return Panel("Compare a and b", run, ["a", "b"], controls, **options)


class Gate:
    """An experiment that goes on when it is told to."""

    def __init__(self) -> None:
        self.started, self.open = threading.Event(), threading.Event()

    def __call__(self, slow, progress, so_far, cancel):
        progress(1, 4, "b, repeat 1 of 2")
        self.started.set()
        while not self.open.wait(0.01):
            if cancel.is_set():
                raise Cancelled("cancelled")
        return result_of(slow)


class Tags(HTMLParser):
    """The tags of a text, with their attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def of(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.found if tag == name]


def press_run(view: PanelView, after: int) -> None:
    """Skip the prediction, press Run, and wait for the end."""
    if not view.skip.disabled:
        view.skip.click()
    view.run.click()
    seconds_until(lambda: len(view.panel.history) == after and not view.panel.running)
    wait_for_threads()


def wait_for_threads() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("panel: "):
            thread.join(60)


# As a plain object


def test_before_the_first_run_it_says_how_to_run():
    panel = make()
    assert panel.last is None
    assert "Not run yet" in panel.sentence
    assert "Not run yet" in panel.alt_text()
    assert panel.as_text().startswith("Compare a and b\n  How slow: twice\n")
    assert "run()" in panel.as_text()


def test_a_run_gives_its_result_and_goes_into_the_history():
    panel = make()
    result = panel.run()
    assert result == panel.last.result == result_of(2.0)
    other = panel.run(slow=10.0)
    assert [entry.settings for entry in panel.history] == [{"slow": 2.0}, {"slow": 10.0}]
    assert other == panel.last.result == result_of(10.0)
    assert "b took 9.70 times as long as a" in panel.sentence
    assert panel.sentence in panel.as_text()
    assert not panel.running


def test_a_prediction_is_drawn_judged_and_used_up():
    panel = make()
    assert panel.predict("b", 3) == Prediction("b", 3)
    panel.run()
    assert panel.last.prediction == Prediction("b", 3)
    assert "You expected b to be the fastest, but a was faster." in panel.sentence
    assert "You predicted: b is the fastest" in panel.alt_text()
    panel.run()
    assert panel.last.prediction is None
    assert "expected" not in panel.sentence


@pytest.mark.parametrize(
    ("fastest", "factor", "said"),
    [("c", None, "write one of 'a', 'b'"), ("a", 0.5, "1 or more"), ("a", float("nan"), "1 or")],
)
def test_a_prediction_of_what_cannot_be_is_refused(fastest, factor, said):
    panel = make()
    with pytest.raises(ValueError, match=said):
        panel.predict(fastest, factor)
    assert panel.prediction is None


def test_the_history_compares_the_runs_with_what_differs_in_them():
    panel = make()
    assert rows(panel) == []
    panel.run()
    assert rows(panel)[1][1] == "nothing"
    assert in_every_run(panel) == "How slow: twice"
    panel.predict("a")
    panel.run(slow=10.0)
    heading, first, second = rows(panel)
    assert in_every_run(panel) == ""
    assert heading == [
        "run",
        "what differed",
        "measured",
        "n",
        "a",
        "b",
        "predicted",
        "how far off",
    ]
    assert first[:6] == ["1", "How slow: twice", "time", "8", "1.04 ms", "2.04 ms"]
    assert first[6:] == ["nothing", "–"]
    assert second[:6] == ["2", "How slow: ten times", "time", "8", "1.04 ms", "10.0 ms"]
    assert second[6] == "a least"
    assert "and it was" in second[7]
    for cell in [*first, *second]:
        assert cell in panel.as_text()


def test_a_failure_is_raised_and_told_until_the_next_run():
    panel = make()
    with pytest.raises(RuntimeError, match="it broke"):
        panel.run(slow=-1.0)
    assert panel.error == "RuntimeError: it broke <here>"
    assert panel.error in panel.as_text()
    assert panel.history == []
    assert not panel.running
    panel.run()
    assert panel.error == ""
    with pytest.raises(ValueError, match="colour"):
        panel.run(colour="red")


def test_a_panel_runs_once_at_a_time_and_two_panels_in_turn():
    gate, runs = Gate(), []
    first, second = make(gate), make()
    threads = [threading.Thread(target=first.run)]
    threads[0].start()
    assert gate.started.wait(30)
    with pytest.raises(RuntimeError, match="is measuring: wait for it, or cancel it"):
        first.run()
    threads.append(threading.Thread(target=lambda: runs.append(second.run())))
    threads[1].start()
    seconds_until(lambda: second.progress[2].startswith("waiting"))
    assert (second.running, runs) == (True, [])
    gate.open.set()
    for thread in threads:
        thread.join(30)
    assert len(first.history) == len(second.history) == 1


def test_who_waits_for_another_panel_can_be_cancelled():
    gate = Gate()
    first, second = make(gate), make()
    thread = threading.Thread(target=first.run)
    thread.start()
    assert gate.started.wait(30)
    threading.Timer(0.1, second.cancel).start()
    with pytest.raises(Cancelled, match="another panel"):
        second.run()
    gate.open.set()
    thread.join(30)
    assert len(first.history) == 1


def test_a_reader_without_a_kernel_gets_the_figure_and_constant_text():
    panel = make(widgets=lambda panel: PanelView(panel).box)
    before, metadata = panel._repr_mimebundle_()
    assert before.keys() == {"text/plain", "text/html", "image/png", VIEW}
    assert "Not run yet" in metadata["image/png"]["alt"]
    panel.run()
    after, metadata = panel._repr_mimebundle_()
    assert after["text/plain"] == before["text/plain"] == repr(panel)
    assert after[VIEW] == before[VIEW]  # the same widgets, however often it is displayed
    assert base64.b64decode(after["image/png"]).startswith(b"\x89PNG")
    assert after["image/png"] != before["image/png"]
    assert metadata["image/png"] == {"alt": panel.alt_text(), "width": 820}


def test_figures_are_light_or_dark_before_and_after_a_run(tmp_path):
    panel = make()
    for _ in range(2):
        for dark in (False, True):
            path = tmp_path / "figure.png"
            panel.figure(dark).savefig(path)
            grey = np.asarray(Image.open(path).convert("L"))
            assert (np.median(grey) < 128) == dark
            assert grey.std() > 5  # something is drawn
        panel.run()


def test_without_widgets_and_figures_there_is_text_and_the_model_imports_neither():
    done = run_script("""
        import sys
        sys.modules["ipywidgets"] = sys.modules["matplotlib"] = None
        from labkit.lab import panels
        panel = panels.workers()
        print(panel._repr_mimebundle_())
        print("Not run yet" in panel.as_text())
    """)
    assert done.returncode == 0, done.stderr
    text = repr(panels.workers())
    assert done.stdout == f"({ {'text/plain': text} }, {{}})\nTrue\n"


def test_the_model_does_not_name_the_widgets():
    modules = ("panels/model", "panels/history", "experiments/__init__", "experiments/measuring")
    for module in modules:
        source = (ROOT / "labkit" / "lab" / f"{module}.py").read_text()
        assert not re.search(r"import.*(ipywidgets|panels.view)", source)


# Through its widgets


def test_run_waits_for_a_prediction_or_for_skipping_it():
    view = PanelView(make())
    assert view.run.disabled
    assert view.predict.disabled  # nothing is chosen yet
    view.fastest.value = "b"
    view.factor.value = 3
    assert (view.predict.disabled, view.run.disabled) == (False, True)
    view.predict.click()
    assert view.panel.prediction == Prediction("b", 3)
    assert not view.run.disabled
    assert view.fastest.disabled
    assert "b least, the greatest 3 times that" in view.status.value
    view.settings["slow"].value = 10.0  # it was made for another setting
    assert view.panel.prediction is None
    assert view.run.disabled
    view.skip.click()
    assert not view.run.disabled


def test_a_press_on_run_measures_with_what_is_chosen_and_shows_it():
    view = PanelView(make())
    view.settings["slow"].value = 10.0
    view.fastest.value = "a"
    view.predict.click()
    press_run(view, after=1)
    assert view.panel.last.settings == {"slow": 10.0}
    assert view.panel.last.prediction == Prediction("a", 1)
    (image, dark) = Tags(view.result.value).of("img")
    assert image["alt"] == dark["alt"] == view.panel.alt_text()
    assert view.panel.last.sentence in view.result.value
    assert "<caption" in view.history.value
    assert [h["scope"] for h in Tags(view.history.value).of("th")] == ["col"] * 8 + ["row"]
    assert view.run.disabled  # until there is another prediction
    assert "Done" in view.status.value
    press_run(view, after=2)
    assert view.history.value.count("<tr>") == 3


def test_while_it_runs_nothing_can_be_chosen_and_cancel_stops_it():
    gate = Gate()
    view = PanelView(make(gate))
    assert view.cancel.disabled
    view.skip.click()
    view.run.click()
    assert view.run.disabled  # at once: no second press
    assert gate.started.wait(30)
    chosen = [*view.settings.values(), view.fastest, view.factor]
    for widget in [*chosen, view.predict, view.skip, view.run]:
        assert widget.disabled, widget
    assert not view.cancel.disabled
    (bar,) = Tags(view.progress.value).of("progress")
    assert (bar["value"], bar["max"]) == ("1", "4")
    assert "b, repeat 1 of 2" in view.progress.value
    view.cancel.click()
    wait_for_threads()
    assert "Cancelled." in view.status.value
    assert view.progress.value == ""
    assert not any(widget.disabled for widget in chosen)
    assert view.panel.history == []


def test_a_failure_is_shown_as_text_that_is_read_out():
    view = PanelView(make())
    view.settings["slow"].value = -1.0
    view.skip.click()
    view.run.click()
    wait_for_threads()
    assert "RuntimeError: it broke &lt;here&gt;" in view.status.value
    assert [div.get("role") for div in Tags(view.status.value).of("div")] == [None, "alert"]
    view.settings["slow"].value = 2.0
    press_run(view, after=1)
    assert 'role="status"' in view.status.value


def test_a_run_in_a_cell_shows_in_the_widgets_too():
    panel = make()
    view = PanelView(panel)
    panel.run()
    assert "Run 1" in view.result.value
    assert panel.last.sentence in view.result.value


def test_a_long_run_shows_what_there_is_so_far(monkeypatch):
    shown = []
    monkeypatch.setattr("labkit.lab.panels.view._FIRST_FIGURE_SECONDS", 0.0)
    panel = make()
    view = PanelView(panel)
    view.result.observe(lambda change: shown.append(change.new), names="value")
    panel.run()
    assert ["so far" in html for html in shown] == [True, False]


def test_every_control_has_its_label_and_every_button_its_words():
    for factory in FACTORIES:
        view = PanelView(factory())
        for widget in [*view.settings.values(), view.fastest, view.factor]:
            assert widget.description.rstrip(":"), widget
        for button in (view.predict, view.skip, view.run, view.cancel):
            assert button.description
            assert button.tooltip


# The panels of the notebooks


@pytest.mark.parametrize("factory", FACTORIES)
def test_every_panel_asks_for_an_experiment_that_there_is(factory, monkeypatch):
    asked = []

    def note(settings, function, **options):
        asked.append([arguments["setting"] for arguments in settings.values()])
        repeats = dict.fromkeys(settings, (1.0, 1.1))
        return Result(options["question"], options["quantity"], options["unit"], repeats)

    monkeypatch.setattr("labkit.lab.experiments.measure", note)
    panel = factory()
    panel.predict(panel.labels[0])
    panel.run()
    assert panel.last.result.labels == panel.labels
    assert panel.last.prediction is not None
    for control in panel.controls:
        assert control.value in control.options.values()
        for value in control.options.values():
            panel.run(**{control.argument: value})
            assert panel.last.settings[control.argument] == value
            assert control.words(value) in control.options
    assert len({repr(settings) for settings in asked}) > 1  # the controls do something
    some = list(panel.last.result.settings.values())[:2]
    options = [value for setting in some for value in setting.values()]
    assert panel.run(options=options).labels == panel.labels[:2]


def test_a_real_run_from_the_button_to_the_figure():
    panel = panels.panel(
        "Compare numbers of workers",
        "workers",
        options=[0, 1],
        quantity="time to the next loader's first batch",
        repeats=2,
    )
    view = PanelView(panel)
    press_run(view, after=1)
    assert panel.error == ""
    assert panel.last.result.labels == ["0 workers", "1 worker"]
    assert all(len(values) == 2 for values in panel.last.result.repeats.values())
    assert Tags(view.result.value).of("img")


def test_cancel_really_stops_the_processes_that_measure(tmp_path):
    note = tmp_path / "pids"

    def hang(slow, progress, so_far, cancel):
        return measure(
            {"a": {"note": str(note)}},
            measured.hang,
            where="fresh children",
            cancel=cancel,
            progress=progress,
        )

    view = PanelView(make(hang))
    view.skip.click()
    view.run.click()
    pids = measured.wait_for_pids(Path(note))
    assert any(map(alive, pids))
    view.cancel.click()
    wait_for_threads()
    assert not any(map(alive, pids))
    assert "Cancelled." in view.status.value
