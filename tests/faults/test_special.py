"""The special episodes without a test elsewhere; and that the others have theirs.

One of them, a kernel's restart, is left to `make faults`: each of its kernels
imports torch anew.
"""

import re
from pathlib import Path

import pytest

from tests.faults.kernel_restart import kernel_restarts
from tests.faults.special import SPECIALS

TESTS = Path(__file__).parent.parent
RUN_HERE = [special for special in SPECIALS if special.run not in (None, kernel_restarts)]


@pytest.mark.parametrize("special", RUN_HERE, ids=lambda special: special.name)
def test_it_ends_as_it_must(special):
    told = special.tell()
    assert told.wrong == ""
    if told.words:
        pytest.skip(told.words)


@pytest.mark.parametrize(
    "special",
    [special for special in SPECIALS if not special.run],
    ids=lambda special: special.name,
)
def test_its_test_is_there(special):
    file, name = special.where.split("::")
    assert re.search(rf"^def {name}\(", (TESTS / file).read_text(), re.MULTILINE)
