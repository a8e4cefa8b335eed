"""The panel for a dataset of one's own, as a plain object and through its widgets."""

import threading

import pytest
from matplotlib import font_manager

from labkit.lab import panels
from labkit.lab.advising import Advice, NoAdvice
from labkit.lab.experiments import Cancelled
from labkit.lab.panels import advising
from labkit.lab.panels.advising_view import AdviceView
from tests.lab.advising.found import findings
from tests.scripts import seconds_until

VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(autouse=True)
def fonts_are_closed():
    """matplotlib keeps the fonts open that a thread has used, those of the latest few threads."""
    yield
    font_manager._get_font.cache_clear()


@pytest.fixture
def gate(monkeypatch):
    """Stands for an investigation: it tells what it has, and goes on when it is told to."""
    opened = threading.Event()

    def find(data, *, progress, so_far, cancel, **arguments):
        if arguments["step_seconds"] > 1:
            raise NoAdvice("a step as long as <that>")
        progress(0.4, "workers: num_workers=2")
        so_far(Advice(findings(trials={}, advised=None, traced=None)))
        while not opened.wait(0.01):
            if cancel.is_set():
                raise Cancelled("cancelled")
        return Advice(findings(traced=None))

    monkeypatch.setattr(advising, "find_advice", find)
    return opened


def press_run(view: AdviceView) -> None:
    view.run.click()
    seconds_until(lambda: view.panel.running)


def wait_for_the_end(view: AdviceView) -> None:
    seconds_until(lambda: not view.panel.running)
    for thread in threading.enumerate():
        if thread.name.startswith("panel: "):
            thread.join(60)


def test_with_nothing_given_it_has_an_example_and_says_how_to_run_it(gate):
    panel = panels.advise()
    assert panel.title == "Advice for Waiting"
    assert "press Run, or call run()" in panel.as_text()
    gate.set()
    assert panel.run().line == "labkit.DataLoader(dataset, num_workers=2)"
    assert "2 workers were not tried" in panel.as_text()


def test_run_shows_progress_then_what_there_is_then_the_advice(gate):
    view = AdviceView(panels.advise())
    assert view.cancel.disabled
    press_run(view)
    seconds_until(lambda: "So far" in view.result.value)
    assert "40%: workers: num_workers=2" in view.progress.value
    assert view.run.disabled
    assert "Measuring" in view.status.value
    gate.set()
    wait_for_the_end(view)
    assert "labkit.DataLoader(dataset, num_workers=2)" in view.result.value
    assert 'alt="How long does a batch take?' in view.result.value
    assert view.progress.value == ""
    assert not view.run.disabled


def test_cancel_keeps_what_was_found(gate):
    view = AdviceView(panels.advise())
    press_run(view)
    seconds_until(lambda: "So far" in view.result.value)
    view.cancel.click()
    wait_for_the_end(view)
    assert 'role="alert">Cancelled.' in view.status.value
    assert "Cancelled. This is what was found." in view.result.value
    assert "A sample takes" in view.panel.as_text()


def test_an_error_is_shown_and_raised_and_the_step_is_the_widgets(gate):
    panel = panels.advise(step_seconds=2.0)
    view = AdviceView(panel)
    assert view.step_ms.value == 2000.0
    view.run.click()
    seconds_until(lambda: panel.error)
    wait_for_the_end(view)
    assert "a step as long as &lt;that&gt;" in view.status.value
    with pytest.raises(NoAdvice):
        panel.run()


def test_only_one_run_at_a_time(gate):
    view = AdviceView(panels.advise())
    press_run(view)
    with pytest.raises(RuntimeError, match="wait for it, or cancel it"):
        view.panel.run()
    gate.set()
    wait_for_the_end(view)


def test_displayed_it_has_widgets_and_for_other_readers_the_advice(gate):
    panel = panels.advise()
    data, _ = panel._repr_mimebundle_()
    assert VIEW in data
    gate.set()
    panel.run()
    data, metadata = panel._repr_mimebundle_()
    assert data["text/plain"] == "<Panel 'Advice for Waiting': .run() finds it, .as_text() tells>"
    assert "image/png" in data
    assert "num_workers=2: median" in metadata["image/png"]["alt"]
