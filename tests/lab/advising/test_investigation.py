"""Whatever is brought, an investigation ends with advice, or with words on what to mend."""

import pytest
import torch.utils.data

import labkit
from labkit.lab.advising.advice import Advice
from labkit.lab.advising.findings import Findings
from labkit.lab.advising.investigation import investigate
from labkit.lab.advising.journal import Options
from labkit.lab.advising.subject import subject_of
from labkit.lab.doctor.limits import Limits
from tests.lab.advising import samples
from tests.lab.advising.samples import Plain

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded")


@pytest.fixture(autouse=True)
def two_cores_and_no_time(monkeypatch):
    """One round of each measurement; a machine that is the same everywhere."""
    monkeypatch.setenv("LABKIT_MEASURE_SECONDS", "0.02")
    limits = Limits(affinity=2, memory_available=4 * 10**9, shm_free=10**9)
    monkeypatch.setattr("labkit.lab.advising.investigation.read_limits", lambda: limits)


def found_of(data, options=None, **arguments) -> tuple[Findings, list[str]]:
    """The findings, and why there was no advice."""
    found, why, parts = Findings(), [], []

    def tell(message):
        kind, value = message
        if kind == "found":
            for name, one in value.items():
                setattr(found, name, one)
        elif kind == "no advice":
            why.append(value)
        else:
            parts.append(value[0])

    subject = subject_of(data, **arguments)
    investigate(tell, lambda: subject, options or Options(60.0, 10**9))
    assert parts == sorted(parts)
    return found, why


@pytest.mark.parametrize(
    "data",
    [
        Plain(3),
        samples.Endless(),
        samples.WithLock(),
        torch.utils.data.DataLoader(Plain(40), batch_size=8, shuffle=True, num_workers=1),
        labkit.DataLoader(Plain(40), batch_sampler=[[1, 2], [3]] * 8),
        labkit.DataLoader(Plain(40), batch_size=None),
    ],
    ids=lambda data: type(data).__name__,
)
def test_there_is_a_line_to_write_for_whatever_can_be_loaded(data):
    found, why = found_of(data)
    assert not why
    advice = Advice(found)
    assert "DataLoader(dataset" in advice.line
    assert found.trials["workers"].compared
    assert advice.is_whole


def test_objects_that_the_default_cannot_collate_are_loaded_with_a_collate_function():
    found, why = found_of(samples.Things(40), collate_fn=list)
    assert not why
    assert "collate_fn=list" in Advice(found).line


def test_a_setting_that_fails_is_left_out_and_told():
    found, why = found_of(samples.BrokenInWorkers(100))
    assert not why
    assert found.advised.num_workers == 0
    assert any("the licence server takes one process" in note for note in found.notes)


def test_a_dataset_that_fails_later_is_told():
    loader = labkit.DataLoader(samples.Broken(40), batch_size=4)
    _, (why,) = found_of(loader)
    assert "cannot read image 17" in why


def test_a_loader_whose_workers_cannot_start_is_looked_at_with_forked_ones():
    loader = labkit.DataLoader(
        samples.WithLock(), batch_size=8, num_workers=1, multiprocessing_context="spawn"
    )
    found, why = found_of(loader, Options(60.0, 10**9, why_forked="it holds a lock"))
    assert not why
    assert any("Your setting does not start its workers" in note for note in found.notes)
    assert any("it holds a lock" in note for note in found.notes)
    assert "multiprocessing_context='fork'" in Advice(found).line


def test_a_loop_that_is_not_held_back_is_left_alone():
    found, why = found_of(Plain(400), Options(60.0, 10**9, step_seconds=0.05), batch_size=2)
    assert not why
    assert not found.trials
    assert "The loader keeps up" in " ".join(Advice(found).sentences).replace(
        "the loader", "The loader"
    )


def test_a_setting_beyond_the_memory_allowed_is_made_smaller_before_it_runs():
    loader = labkit.DataLoader(Plain(400, 1000), batch_size=25, num_workers=2, prefetch_factor=8)
    found, why = found_of(loader, Options(60.0, 800_000))
    assert not why
    assert found.traced.max_depth * found.probe.batch_bytes < 800_000
    assert any("takes more memory than it may" in note for note in found.notes)


def test_the_default_collate_function_is_tried_where_it_does_the_same():
    found, _ = found_of(labkit.DataLoader(Plain(), batch_size=8, collate_fn=samples.stacked))
    assert "the default collate function" in found.trials["transport"].settings
    found, _ = found_of(labkit.DataLoader(Plain(), batch_size=8, collate_fn=samples.doubled))
    assert "transport" not in found.trials


def test_on_a_simulated_device_a_preloader_is_tried_and_copies_are_told_apart():
    options = Options(60.0, 10**9, device="simulated")
    found, why = found_of(labkit.DataLoader(Plain(400, 1000), batch_size=20), options)
    assert not why
    assert found.traced.copy_seconds
    assert "a Preloader" in found.trials["transport"].settings


def test_an_iterable_dataset_that_is_not_sharded_is_noticed():
    found, _ = found_of(labkit.DataLoader(samples.Unsharded(), batch_size=16, num_workers=2))
    assert found.is_unsharded
