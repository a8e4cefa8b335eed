"""What sharing strategies cost besides time: counts that follow from how they are built."""

import sys

import pytest

from labkit.lab.experiments.setting import Setting
from labkit.lab.experiments.sharing_costs import (
    KEPT,
    descriptors_of_kept,
    mappings_of_kept,
    names_in_use,
    page_faults,
    shared_memory_mb,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")


def setting(strategy, sample_bytes=1000):
    return Setting(
        sharing_strategy=strategy, num_workers=1, batch_size=4, sample_bytes=sample_bytes
    )


@pytest.mark.parametrize(
    ("strategy", "descriptors", "mappings"),
    [
        ("copy", 0, 0),
        ("file_system", 0, KEPT),
        ("file_descriptor", KEPT, KEPT),
        ("arena", 1, 1),
    ],
)
def test_what_kept_batches_hold(strategy, descriptors, mappings):
    assert descriptors_of_kept(setting(strategy), 0.0) == descriptors
    assert mappings_of_kept(setting(strategy), 0.0) == mappings


def test_only_named_memory_has_names_and_only_while_it_is_under_way():
    assert 1 <= names_in_use(setting("file_system"), 0.0) <= 4  # not one for each kept batch
    assert names_in_use(setting("file_descriptor"), 0.0) == 0


def test_fresh_memory_faults_at_each_page_and_recycled_memory_does_not():
    pages = 4 * 256_000 // 4096
    fresh = page_faults(setting("file_descriptor", 256_000), 0.0)
    recycled = page_faults(setting("arena", 256_000), 0.0)
    assert fresh > pages / 2  # the system may map several at once
    assert recycled < fresh / 4


def test_shared_memory_is_that_of_the_batches_there_are():
    batch_mb = 4 * 256_000 / 1e6
    assert shared_memory_mb(setting("copy", 256_000), 0.0) < batch_mb
    assert batch_mb <= shared_memory_mb(setting("file_descriptor", 256_000), 0.0) < 8 * batch_mb
