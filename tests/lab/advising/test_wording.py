"""Sentences come from numbers: gains with their spread, and what did not help, and why not more."""

import dataclasses
import re

import pytest

from labkit.lab.advising.advice import Advice
from labkit.lab.advising.setting import Setting
from labkit.lab.advising.wording import sections
from tests.lab.advising.found import FOUR, TWO, YOURS, findings, result, trial
from tests.lab.advising.test_layers import traced


def under(heading: str, found) -> str:
    return "\n".join(dict(sections(found)).get(heading, []))


def test_a_gain_is_told_with_its_interval_and_both_medians():
    said = under("What to change", findings())
    assert re.search(r"num_workers=2: [12].\d\d times as fast \(95% interval 1.9\d to 2.0\d,", said)
    assert "n = 8): 5.07 ms in place of 10.1 ms with your setting" in said
    assert "a batch is there every 5.07 ms" in said
    assert under("Write", findings()) == "labkit.DataLoader(dataset, num_workers=2)"


def test_no_difference_is_told_as_such():
    found = findings(trials={"workers": trial(ours=10.0)}, advised=YOURS, lines={YOURS: "line"})
    assert "no setting that was tried is better" in under("What to change", found)
    said = under("What was tried and did not help", found)
    assert "num_workers=2: no difference beyond the spread, ratio 1.01" in said


def test_what_differs_by_too_little_is_not_told_to_be_within_the_spread():
    found = findings(trials={"workers": trial(ours=10.2)}, advised=YOURS, lines={YOURS: "line"})
    said = under("What was tried and did not help", found)
    assert re.search(
        r"no difference that is sure to exceed 3%, ratio 1\.0\d \(95% interval 1\.", said
    )
    assert "beyond the spread" not in said


def test_what_is_slower_is_told_as_such():
    found = findings(trials={"workers": trial(ours=20.0)}, advised=YOURS, lines={YOURS: "line"})
    assert "takes 2.02 times as long" in under("What was tried and did not help", found)


def test_too_few_repeats_say_nothing_but_what_to_do():
    found = findings(trials={"workers": trial(repeats=3)}, advised=YOURS, lines={YOURS: "line"})
    assert "Nothing can be said yet" in under("What to change", found)
    said = under("What was tried and did not help", found)
    assert "of 3 repeats: give it more time, for 6 or more" in said


def test_what_was_only_screened_is_told_to_prove_nothing():
    screened = result(2, **{"your setting": 10.0, "num_workers=2": 5.0, "num_workers=4": 6.0})
    said = under(
        "What was tried and did not help", findings(trials={"workers": trial(screened=screened)})
    )
    assert "in 2 rounds" in said
    assert "proves nothing: num_workers=4 6.03 ms; beside them num_workers=2 5.03 ms" in said


def test_gains_that_do_not_hold_together_are_told():
    trials = {"workers": trial(), "transport": trial("transport"), "all": trial("all", ours=10.0)}
    said = under("What to change", findings(trials=trials, advised=YOURS, lines={YOURS: "line"}))
    assert "So leave it as it is" in said


@pytest.mark.parametrize(
    ("costs", "words"),
    [
        ({"fetch": 0.01}, "fetch holds it back (the dataset, sample by sample). Without workers"),
        ({"fetch": 1e-5, "step": 0.02}, "the loader keeps up"),
        ({"fetch": 0.01, "workers": 2}, "the workers worked"),
        ({"fetch": 0.001, "idle": 0.01, "workers": 2}, "nobody was busy for long"),
    ],
)
def test_what_holds_it_back_is_named_with_what_it_costs(costs, words):
    given = Setting(num_workers=costs.get("workers", 0))
    said = under("What holds it back", findings(traced=traced(**costs), given=given))
    assert words in said
    assert "What it costs: of " in said


def test_where_the_step_takes_the_time_nothing_is_to_be_changed():
    found = findings(
        traced=traced(fetch=1e-5, step=0.02), trials={}, advised=YOURS, lines={YOURS: "line"}
    )
    assert "make the step faster" in under("What to change", found)


def test_an_unsharded_iterable_dataset_is_to_be_sharded_before_it_gets_workers():
    assert "shard it" in under("What to change", findings(is_unsharded=True))
    alone = findings(is_unsharded=True, advised=YOURS, lines={YOURS: "line"})
    assert "shard it" not in under("What to change", alone)


def test_an_own_collate_function_is_told_of_shared_memory_and_that_it_was_not_tried():
    found = findings(
        traced=traced(fetch=0.001, send=0.01, workers=2), given=TWO, has_own_collate=True
    )
    assert "labkit.empty_shared" in under("Besides", found)
    assert "it was not tried" in under("Besides", found)
    assert "empty_shared" not in under("Besides", dataclasses.replace(found, has_own_collate=False))


def test_a_lock_that_is_held_long_and_a_busy_machine_are_told():
    probe = dataclasses.replace(findings().probe, lock_seconds=0.08, core_share=1.0)
    said = under("What is loaded", findings(probe=probe))
    assert "holds the interpreter's lock for up to 80.0 ms" in said
    busy = findings(probe=dataclasses.replace(probe, queued_share=0.5))
    assert "interpreter's lock" not in under("What is loaded", busy)
    assert "for 50% of a sample's time others had the cores" in under("Besides", busy)
    assert "what it waits for is a core, which others had" in under("What is loaded", busy)


def test_what_was_not_tried_is_told_and_so_is_an_early_end():
    text = Advice(findings(stopped="Interrupted.", advised=None)).as_text()
    assert "More than 2 workers were not tried" in text
    assert "Interrupted. This is what was found." in text
    assert "Write" not in text
    assert FOUR.against(YOURS) == "num_workers=4"
