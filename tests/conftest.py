"""What holds for every test: it leaves nothing behind, and hypothesis knows its profile."""

import gc
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests import leftovers

# The dev profile is for the next minute's answer; HYPOTHESIS_PROFILE=ci repeats exactly.
# A deadline would fail a test because a shared machine was busy.
settings.register_profile("dev", max_examples=25, deadline=None)
settings.register_profile(
    "ci",
    max_examples=12,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

# What a shell starts in the background ignores Ctrl-C, and so does what that starts in its turn.
signal.signal(signal.SIGINT, signal.default_int_handler)

FAILED = pytest.StashKey[bool]()
NAMES = pytest.StashKey[set[leftovers.Name]]()


def pytest_sessionstart(session: pytest.Session) -> None:
    session.stash[NAMES] = set(leftovers.names())


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that leaves a name in shared memory: where tests run beside each other, none of
    them can tell whose a new one is.
    """
    if not leftovers.NAMES_ARE_OURS:
        return  # one of several: whoever started them asks
    left = leftovers.names_since(session.stash[NAMES])
    if left and session.exitstatus == pytest.ExitCode.OK:
        print("\nleft behind by the tests:", *map(str, left), sep="\n  ")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_collection_finish() -> None:
    """Leave what was imported out of every later garbage collection: it takes most of their time.

    And there is one in many tests, when something seems to be left behind.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


@pytest.fixture(autouse=True)
def nothing_stays_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test that leaves a process, thread, descriptor, shared mapping or name.

    A test that failed anyway is let off: its traceback keeps its objects alive.
    """
    before = leftovers.take()
    yield
    if request.node.stash.get(FAILED, False):
        return
    left = leftovers.since(before)
    if left:
        pytest.fail("left behind by this test:\n  " + "\n  ".join(left), pytrace=False)
