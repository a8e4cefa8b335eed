"""The what-if panel as a plain object, and through its sliders."""

import re
import threading
from html import escape

import pytest
from matplotlib import font_manager

from labkit.lab import panels
from labkit.lab.panels.what_if_sliders import Sliders
from labkit.lab.simulate import Costs, Measured, predict
from labkit.lab.simulate.images import images
from labkit.tracing import Trace

SLOW = Measured({"fetch": Costs((0.004,), (0.0,)), "rebuild": Costs(fixed_cpu=0.001)}, 8, what="it")
VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(autouse=True)
def fonts_are_closed():
    """matplotlib keeps the fonts open that a thread has used, those of the latest few threads."""
    yield
    font_manager._get_font.cache_clear()


@pytest.fixture
def undrawn(monkeypatch):
    """Timelines are named, and not drawn, which would take longer than all else."""
    drawn = lambda prediction: f"timeline with {prediction.settings.num_workers} workers"  # noqa: E731
    monkeypatch.setattr("labkit.lab.panels.what_if_sliders._timeline", drawn)


def wait_for_timelines() -> None:
    while drawing := [t for t in threading.enumerate() if t.name.startswith("what if: ")]:
        drawing[0].join(60)


def test_with_nothing_given_it_predicts_with_the_recorded_images_and_says_so():
    panel = panels.what_if(cores=4)
    found = images()
    assert panel.measured == found
    assert panel.last.batches_per_second > 0
    text = panel.as_text()
    assert "Predicted, not measured" in text
    assert found.what in panel.provenance
    assert found.machine["date"][:10] in panel.provenance
    assert panel.provenance in text
    assert panel.alt_text() in text
    for control in panel.controls:
        assert f"{control.label}: {control.words(control.value)}" in text


def test_run_predicts_what_predict_does_and_keeps_it():
    panel = panels.what_if(SLOW, cores=2, step_seconds=0.0, batch_size=8)
    found = panel.run(num_workers=2)
    same = predict(SLOW, cores=2, num_workers=2, batch_size=8)
    assert found.batches_per_second == same.batches_per_second
    assert panel.sentence == same.sentence
    panel.look(num_workers=4)
    more = panel.run(num_workers=4, cores=16)
    heading, first, second = panel.rows()
    assert heading == [
        *("kept, no.", "Cores", "Workers a device"),
        *("samples/s, predicted", "device busy", "held back by"),
    ]
    assert first[:3] == ["1", "2", "2"]
    assert second[:3] == ["2", "16", "4"]
    assert more.samples_per_second == pytest.approx(2 * found.samples_per_second, rel=0.1)
    assert second[-1] == "the workers"
    assert "held back by: the workers" in panel.as_text()


def test_every_value_of_every_slider_can_be_predicted():
    panel = panels.what_if(SLOW, cores=3, step_seconds=0.003)
    assert panel.settings["cores"] == 3
    for control in panel.controls:
        assert control.value in control.options.values()
        for value in control.options.values():
            found = panel.look(**{control.argument: value})
            assert getattr(found.settings, control.argument) == value
    values = list(panel.controls[0].options.values())
    assert values == sorted(values)


def test_what_it_does_not_have_is_refused():
    with pytest.raises(TypeError, match="colour"):
        panels.what_if(SLOW, colour="red")
    with pytest.raises(ValueError, match="num_workers"):
        panels.what_if(SLOW).look(num_workers=-1)
    for wrong in (float("nan"), "20 ms"):
        with pytest.raises(ValueError, match="step_seconds is a number"):
            panels.what_if(SLOW, step_seconds=wrong)
    with pytest.raises(TypeError, match=r"simulate.measured\(trace\)"):
        panels.what_if(Trace())
    with pytest.raises(TypeError, match="colour"):
        panels.what_if(SLOW).look(colour="red")


def test_a_move_of_a_slider_is_answered_before_it_returns(undrawn):
    panel = panels.what_if(SLOW, cores=8)
    view = Sliders(panel)
    assert view.figure.value == "timeline with 2 workers"
    view.settings["num_workers"].value = 4
    assert panel.last.settings.num_workers == 4
    assert "<div role='status'><strong>Predicted, not measured" in view.answer.value
    assert escape(panel.last.held_back) in view.answer.value
    view.settings["num_workers"].value = 8
    wait_for_timelines()
    assert view.figure.value == "timeline with 8 workers"
    assert view.drawing.value == ""
    assert view.history.value == '<div style="line-height: 1.4"></div>'
    view.keep.click()
    assert view.history.value.count("<tr>") == 2
    assert "<caption" in view.history.value
    assert re.findall(r'th scope="(\w+)"', view.history.value) == ["col"] * 4 + ["row"]
    panel.run(num_workers=1)  # in a cell
    assert view.history.value.count("<tr>") == 3
    wait_for_timelines()
    assert view.figure.value == "timeline with 1 workers"


def test_every_slider_has_its_label(undrawn):
    view = Sliders(panels.what_if(SLOW))
    for control in view.panel.controls:
        slider = view.settings[control.argument]
        assert slider.description == f"{control.label}:"
        assert slider.value == control.value
    assert view.keep.description
    assert view.keep.tooltip


def test_a_reader_without_a_kernel_gets_the_figure_with_its_alt_text(undrawn):
    panel = panels.what_if(SLOW, num_workers=6)
    data, metadata = panel._repr_mimebundle_()
    assert data.keys() == {"text/plain", "text/html", "image/png", VIEW}
    assert data["text/plain"] == repr(panel)
    alt = metadata["image/png"]["alt"]
    assert alt == panel.alt_text()
    assert alt.startswith("Predicted, not measured. Timeline of batches")
    assert "2 more workers are not drawn" in alt
    assert next(text.get_text() for text in panel.figure().texts).startswith(
        "Predicted, not measured: timeline"
    )
