"""The special episodes without a test elsewhere; and that the others have theirs."""

import re
from pathlib import Path

import pytest

from tests.faults.special import SPECIALS

TESTS = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "special", [special for special in SPECIALS if special.run], ids=lambda special: special.name
)
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
