"""`experiments.first_touch`: measured in turns, in one thread, cancelled like any other."""

import threading

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from labkit.lab.experiments import Cancelled
from labkit.lab.experiments import first_touch as module
from labkit.lab.experiments.first_touch import WAYS, first_touch
from labkit.lab.panels import collates, fresh_or_recycled
from labkit.lab.panels import first_touch as panel


def test_every_way_is_measured_and_the_bytes_are_told():
    threads = torch.get_num_threads()
    said, so_far = [], []
    result = first_touch(
        20_000, repeats=2, progress=lambda *step: said.append(step), so_far=so_far.append
    )
    assert result.labels == list(WAYS)
    assert all(len(values) == 2 and min(values) > 0 for values in result.repeats.values())
    assert result.common == so_far[0].common == {"batch_bytes": 20_000}
    assert said[-1] == (12, 12, "done")
    assert torch.get_num_threads() == threads


def test_memory_used_before_has_its_turn_again_when_the_caches_have_lost_it():
    memories = module._used_before(5000)
    first = next(memories)
    assert (first.nbytes, first.unique().tolist()) == (5000, [1])
    turns = next(i for i, each in enumerate(memories, 1) if each.data_ptr() == first.data_ptr())
    assert turns * 5000 > module._CACHE_BYTES / 2


def test_only_the_writing_is_timed(monkeypatch):
    clock = iter(range(1000))
    operations = []

    class Noting(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            operations.append((func._schema.name, now[0]))
            return func(*args, **(kwargs or {}))

    now = [0]

    def tick():
        now[0] = next(clock)
        return float(now[0])

    monkeypatch.setattr(module.time, "perf_counter", tick)
    with Noting():
        module._timed("fresh shared", False, 20_000, 0)
    fills = [at for name, at in operations if name == "aten::fill_" and at]
    slices = [at for name, at in operations if name == "aten::slice"]
    assert len(fills) == len(slices) == 3
    assert not set(fills) & set(slices)


def test_it_can_be_cancelled():
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(Cancelled):
        first_touch(1000, cancel=cancel)


def test_no_bytes_cannot_be_touched():
    with pytest.raises(ValueError, match="batch_bytes is 1 or more"):
        first_touch(0)


def test_the_panel_runs_it_with_what_was_chosen():
    touching = panel()
    assert touching.labels == list(WAYS)
    result = touching.run(batch_bytes=5000, repeats=1)
    assert result.common == {"batch_bytes": 5000}
    assert "Not run yet" not in touching.sentence


def test_the_other_panels_compare_what_their_titles_say():
    assert collates().labels == ["default", "naive: torch.stack", "aware: out=empty_shared"]
    assert fresh_or_recycled().labels == ["file_descriptor", "arena"]
