"""The errors a user meets: caught as ever, pickled whole; an exception's way from a worker."""

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch._utils import ExceptionWrapper

import labkit.errors
from labkit.errors import (
    BatchNotShareable,
    CollateError,
    LabkitError,
    LoaderTimeout,
    SharedMemoryFull,
    StartupNotPicklable,
    TooManyOpenFiles,
    UncollatableType,
    WorkerDied,
    WorkerException,
    WorkerTraceback,
)

EXAMPLES = [
    LabkitError("what happened"),
    WorkerDied(
        "it died", worker_id=1, pid=2, exitcode=-9, signal="SIGKILL", batch=3, indices=[4, 5]
    ),
    LoaderTimeout("too late", worker_id=1, pid=2, batch=3, indices=[4], stack="File ..."),
    StartupNotPicklable("no", argument="dataset", attribute="file", start_method="spawn"),
    BatchNotShareable("it holds a lock"),
    SharedMemoryFull("full", wanted=10, free=5),
    TooManyOpenFiles("too many", limit=1024),
    CollateError("{0} is not {1}", 0, 2),
    CollateError("{0} is not {1}", 0, 2, path=("a", 1), indices=(7, 9)),
    UncollatableType("{0} returned None", 1),
]
EXAMPLES += [
    kind("what happened", some="fact")
    for kind in vars(labkit.errors).values()
    if isinstance(kind, type) and issubclass(kind, LabkitError)
    if kind not in map(type, EXAMPLES)
]
ways_to_copy = pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, *(
        lambda error, protocol=protocol: pickle.loads(pickle.dumps(error, protocol))
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    )],
    ids=["copy", "deepcopy", *map(str, range(pickle.HIGHEST_PROTOCOL + 1))],
)  # fmt: skip


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
@ways_to_copy
def test_an_error_is_pickled_with_its_message_and_its_facts(error, copied):
    again = copied(error)
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_except_runtime_error_catches_every_one(error):
    with pytest.raises(RuntimeError):
        raise error


def test_the_builtin_classes_that_pytorch_raises_catch_them_too():
    with pytest.raises(TypeError):
        raise UncollatableType("{0} is a set", 0)
    with pytest.raises(pickle.PicklingError):
        raise StartupNotPicklable("an open file")


# CollateError: from positions in the batch to indices in the dataset.


def test_a_collate_error_grows_its_path_on_its_way_up():
    error = CollateError("{0} and {1}", 0, 2).under("x").under(1).under("image")
    assert str(error) == "batch[0]['image'][1]['x'] and batch[2]['image'][1]['x']"
    told = error.with_indices([10, 11, 12])
    assert str(told) == "dataset[10]['image'][1]['x'] and dataset[12]['image'][1]['x']"
    assert told.indices == (10, 12)


def test_a_subclass_stays_one_on_its_way_up():
    error = UncollatableType("{0}", 0).under("x").with_indices(["key"])
    assert type(error) is UncollatableType
    assert str(error) == "dataset['key']['x']"


@given(key=st.one_of(st.text(), st.integers(), st.tuples(st.text())))
def test_any_key_may_be_on_the_way(key):
    assert str(CollateError("see {0}", 0).under(key)) == f"see batch[0][{key!r}]"


# WorkerException: PyTorch's ExceptionWrapper is the oracle.


class OneArgument(Exception):
    pass


class WithMessage(Exception):
    message = "has one"

    def __init__(self, message):
        super().__init__(message)
        self.message = message


class MessageFirstOfTwo(Exception):
    message = "has one"

    def __init__(self, code, message="none"):
        super().__init__(f"{code}: {message}")


class TwoArguments(Exception):
    def __init__(self, what, code):
        super().__init__(f"{what} failed with {code}")


class KeywordOnly(Exception):
    def __init__(self, *, code):
        super().__init__(f"code {code}")


class FormatsANumber(Exception):
    def __init__(self, code):
        super().__init__(f"code {code:d}")


class SaysItsOwn(Exception):
    def __init__(self, *anything):
        super().__init__("always this")


ORDINARY = [
    ValueError("no such value"),
    RuntimeError("at run time"),
    TypeError(),
    KeyError("label"),
    IndexError(5),
    OSError(2, "No such file"),
    FileNotFoundError("gone"),
    ZeroDivisionError("division"),
    AssertionError("ünicode ✓"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"),
    OneArgument("one"),
    WithMessage("has a message"),
    TwoArguments("reading", 5),
    KeywordOnly(code=3),
    FormatsANumber(7),
    StopIteration("over"),
    MemoryError(),
    NotImplementedError("not yet"),
]


def carried(error: Exception) -> WorkerException:
    """What arrives of an error that was raised in worker 3."""
    try:
        raise error.with_traceback(None)
    except Exception as caught:
        return pickle.loads(pickle.dumps(WorkerException(caught, 3, [4, 5])))


def reraised(carrier: WorkerException | ExceptionWrapper) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - any
        carrier.reraise()
    return caught.value


def wrapped_by_torch(error: Exception) -> ExceptionWrapper:
    try:
        raise error.with_traceback(None)
    except Exception:
        return ExceptionWrapper(where="in DataLoader worker process 3")


def without_lines(text: str) -> list[str]:
    """A traceback's text without the places in these two helpers."""
    return [line for line in text.splitlines() if "File " not in line and "^" not in line]


@pytest.mark.parametrize("error", ORDINARY, ids=lambda error: type(error).__name__)
def test_an_exception_is_raised_again_as_pytorch_does(error):
    ours, theirs = reraised(carried(error)), reraised(wrapped_by_torch(error))
    assert type(ours) is type(theirs)
    assert without_lines(str(ours)) == without_lines(str(theirs))


@pytest.mark.parametrize(
    "error",
    [*ORDINARY, MessageFirstOfTwo(5, "five"), SaysItsOwn(1)],
    ids=lambda error: type(error).__name__,
)
def test_name_message_and_traceback_can_always_be_read(error):
    raised = reraised(carried(error))
    cause = raised.__cause__
    assert isinstance(raised, (type(error), RuntimeError))
    assert isinstance(cause, WorkerTraceback)
    assert cause.type_name == type(error).__name__
    assert cause.message == str(error)
    assert cause.worker_id == 3
    assert cause.indices == [4, 5]
    assert "in carried" in str(cause)
    assert type(error).__name__ in str(cause)
    assert str(error) in str(cause)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_of_this_package_is_raised_as_it_was(error):
    raised = reraised(carried(error))
    assert type(raised) is type(error)
    assert str(raised) == str(error)
    assert vars(raised) == vars(error)
    assert "in carried" in str(raised.__cause__)


def test_the_traceback_of_a_key_error_has_lines():
    raised = reraised(carried(KeyError("label")))
    assert "\n" in str(raised)
    assert "'label'" in str(raised)


def test_a_class_that_cannot_be_pickled_leaves_its_name_and_message():
    class Local(Exception):
        pass

    try:
        raise Local("only here")
    except Local as error:
        carrier = pickle.loads(pickle.dumps(WorkerException(error, 0).without_type()))
    raised = reraised(carrier)
    assert type(raised) is RuntimeError
    assert "Caught Local in DataLoader worker process 0" in str(raised)
    assert raised.__cause__.message == "only here"


def test_chained_exceptions_are_told():
    try:
        try:
            raise ValueError("first")
        except ValueError as error:
            raise OneArgument("second") from error
    except OneArgument as error:
        carrier = WorkerException(error, 0)
    text = str(reraised(carrier))
    assert "ValueError: first" in text
    assert "direct cause" in text


def test_the_carrier_holds_no_frames():
    class Big:
        pass

    def fail(big):
        raise ValueError("with a big local")

    import weakref

    big = Big()
    died = weakref.ref(big)
    try:
        fail(big)
    except ValueError as error:
        carrier = WorkerException(error, 0)
    del big
    assert died() is None
    assert "with a big local" in carrier.text
