"""The episodes: a few that cover every pair of circumstances, and that they are what they say."""

import itertools
from dataclasses import replace

import pytest

import labkit
from tests.faults.covering import covering, met_in
from tests.faults.episode import FACTORS, Episode, Outcome, all_episodes
from tests.faults.gate import Gate, settle
from tests.faults.lanes import by_start_method, run_all
from tests.faults.loading import make_loader

CHOSEN = covering(all_episodes())


def test_every_episode_of_a_covering_selection_ends_in_time_right_and_clean():
    found = dict(run_all(by_start_method(CHOSEN)))
    assert found.keys() == set(CHOSEN)
    complaints = {str(episode): o.verdict for episode, o in found.items() if o.verdict}
    assert complaints == {}


def test_every_pair_of_values_occurs_in_the_selection():
    """Every pair that any episode has; and what no episode has, is what means nothing."""
    there = set().union(*map(met_in, all_episodes()))
    assert set().union(*map(met_in, CHOSEN)) == there
    factors = [[(name, value) for value in values] for name, values in FACTORS.items()]
    products = (itertools.product(*two) for two in itertools.combinations(factors, 2))
    missing = set(itertools.chain.from_iterable(products)) - there
    signals = {f for f in FACTORS["fault"] if f.startswith("SIG")}
    alone = {("interpreter exit", v) for v in FACTORS["victim"] if v != "main process"}
    in_a_group = {(f, "process group") for f in FACTORS["fault"] if f not in signals}
    assert {(one[1], other[1]) for one, other in missing} == alone | in_a_group
    assert len(CHOSEN) < 50


def test_every_three_values_occur_in_a_larger_selection():
    spawned = [episode for episode in all_episodes() if episode.start_method == "spawn"]
    chosen = covering(spawned, 3)
    met = set().union(*(met_in(episode, 3) for episode in chosen))
    assert met == set().union(*(met_in(episode, 3) for episode in spawned))
    assert len(chosen) < len(spawned) / 4


def test_a_covering_selection_of_a_small_grid_is_as_small_as_can_be():
    """Of 3 × 4 values of two factors: all pairs, so 12; and nothing of nothing."""
    episode = next(all_episodes())
    grid = [
        replace(episode, start_method=method, strategy=strategy)
        for method in FACTORS["start_method"]
        for strategy in FACTORS["strategy"]
    ]
    assert len(covering(grid)) == len(grid)
    assert covering([]) == []


WHERE = {
    "idle": ("in _next_message", "in read"),
    "fetching": ("in __getitem__", "in obey"),
    "collating": ("in __call__", "in obey"),
    "pickling": ("in __reduce__", "in dumps"),
    "sending": ("in send", "in flush"),
}


@pytest.mark.parametrize("stage", WHERE)
def test_a_worker_is_in_the_stage_in_which_it_is_hit(stage):
    episode = Episode("fork", "arena", "map", False, stage, "SIGKILL", "a worker")
    with Gate() as gate:
        loader = make_loader(episode, gate.hook)
        loader.timeout = 60  # its workers can tell where they are
        loader.set_epoch(1)
        batches = iter(loader)
        next(batches)
        next(batches)
        (guest,) = gate.wait_for(stage, 1)
        if stage == "sending":
            guest.tell("go on")
        if stage in ("idle", "sending"):
            settle(guest.pid)
        stack = batches._pool.stack(0)
        gate.open()
        batches.close()
    for words in WHERE[stage]:
        assert words in stack


def test_an_episode_that_is_late_or_wrong_is_complained_of():
    assert Outcome(seconds=0.9).verdict == []
    assert Outcome(seconds=1.1).verdict == ["took 1.10 s of 1, close 0.00 s"]
    assert Outcome(close_seconds=5.1).is_late
    assert Outcome(wrong=["given [0]"]).verdict == ["given [0]"]


def test_a_loader_that_gives_a_wrong_batch_is_found(monkeypatch):
    """An episode can fail: with a planted bug it does."""
    monkeypatch.setattr(
        "labkit.multiprocess.MultiProcessIterator._give",
        lambda self, batch, n: {"x": batch["x"] * (batch["x"] != 1008)},
    )
    (found,) = [
        outcome
        for _, outcome in run_all(
            [[Episode("fork", "copy", "map", False, "fetching", "exception", "a worker")]]
        )
    ]
    assert any("given [0, 1, 3, -1, 5, 6, 7]" in complaint for complaint in found.verdict)


def test_all_strategies_of_the_platform_are_in_the_grid():
    assert set(FACTORS["strategy"]) == labkit.get_all_sharing_strategies()
