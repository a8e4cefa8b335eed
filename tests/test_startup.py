"""How workers start: every start method, with what a notebook defines, and what cannot go there."""

import multiprocessing
import threading

import psutil
import pytest
import torch
from torch.utils.data import Dataset

import labkit
from labkit.errors import StartupNotPicklable
from tests.datasets import Mapped, Samples, pid_of
from tests.scripts import run_cells, run_script

METHODS = ["fork", "spawn", "forkserver"]

# As in a notebook's cells: nothing of it can be imported.
DEFINITIONS = """
from typing import NamedTuple
import torch
import labkit
from torch.utils.data import Dataset, IterableDataset

class Batch(NamedTuple):
    x: torch.Tensor
    text: str

class NotThere(LookupError):
    pass

class Squares(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, i):
        return square(i)

class Stream(IterableDataset):
    def __iter__(self):
        yield from range(labkit.get_worker_info().id, 4, 2)

class Holes(Squares):
    def __getitem__(self, i):
        raise NotThere(f"no sample {i}")

OFFSET = 10

def square(i):
    return i * i + OFFSET

def make_batch(samples):
    return Batch(torch.tensor(samples), "made here")
"""

USE = """
for method in ["fork", "spawn", "forkserver"]:
    options = dict(batch_size=2, multiprocessing_context=method)
    loader = labkit.DataLoader(Squares(), num_workers=1, collate_fn=make_batch, **options)
    batches = list(loader)
    assert [type(batch) is Batch for batch in batches] == [True, True], batches
    assert [batch.x.tolist() for batch in batches] == [[10, 11], [14, 19]]
    double = lambda samples: [2 * i for i in samples]
    sharded = labkit.DataLoader(Stream(), num_workers=2, collate_fn=double, **options)
    assert list(sharded) == [[0, 4], [2, 6]]
    try:
        list(labkit.DataLoader(Holes(), num_workers=1, **options))
    except NotThere as error:
        assert "no sample 0" in str(error)
    print(method, "works")
"""


TALK = """
import sys, labkit
from tests.datasets import Mapped

def talk(i):
    print("item", i)
    print("warning", i, file=sys.stderr)
    return i

def load(method):
    loader = labkit.DataLoader(Mapped(talk, 2), num_workers=2, multiprocessing_context=method)
    assert len(list(loader)) == 2
"""
WITHOUT_LINE_END = """
data = Mapped(lambda i: print("no end", end=""), 1)
list(labkit.DataLoader(data, batch_size=None, num_workers=1))
"""


@pytest.fixture(scope="module")
def kernel():
    """What each of these cells gave in one kernel, by its source."""
    cells = [DEFINITIONS, USE, TALK, *(f"load({method!r})" for method in METHODS), WITHOUT_LINE_END]
    return dict(zip(cells, run_cells(*cells), strict=True))


def test_what_a_cell_defines_works_under_every_start_method(kernel):
    """W4, in a kernel; the batch's class and the exception's come back as the cell's own."""
    use = kernel[USE]
    assert use["error"] is None, use["traceback"]
    assert use["stdout"].split("\n")[:3] == [f"{method} works" for method in METHODS]


def test_what_standard_input_defines_works_under_every_start_method():
    """W4, by `python -`."""
    done = run_script(DEFINITIONS + USE, limit=150)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:3] == [f"{method} works" for method in METHODS]
    assert done.stderr == ""


def test_what_a_script_defines_works_under_every_start_method(tmp_path):
    """W4, from a file, with the guard that spawn needs there."""
    guarded = "if __name__ == '__main__':\n" + "".join(f"    {line}\n" for line in USE.splitlines())
    done = run_script(DEFINITIONS + guarded, tmp_path / "script.py", limit=150)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:3] == [f"{method} works" for method in METHODS]
    assert done.stderr == ""


@pytest.mark.parametrize("method", METHODS)
def test_what_a_function_defines_works_under_every_start_method(method):
    """W4, for a class and a lambda inside a function."""

    class Local(Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, i):
            return i + 1

    loader = labkit.DataLoader(
        Local(), 2, num_workers=1, collate_fn=lambda s: s, multiprocessing_context=method
    )
    assert list(loader) == [[1, 2]]


class CountAndLookUp:
    def __init__(self, counter, values):
        self.counter = counter
        self.values = values

    def __call__(self, index):
        with self.counter.get_lock():
            self.counter.value += 1
        return self.values[index]


@pytest.mark.parametrize("collate_fn", [None, lambda samples: samples], ids=["", "by value"])
@pytest.mark.parametrize("method", METHODS)
def test_tensors_locks_and_counters_of_the_dataset_reach_the_worker(method, collate_fn):
    """W4: also beside something that cannot be imported."""
    context = multiprocessing.get_context(method)
    look_up = CountAndLookUp(context.Value("i", 0), torch.tensor([5.0, 6.0, 7.0]))
    loader = labkit.DataLoader(
        Mapped(look_up, 3), 3, num_workers=1, multiprocessing_context=context, collate_fn=collate_fn
    )
    assert [[float(number) for number in batch] for batch in loader] == [[5.0, 6.0, 7.0]]
    assert look_up.counter.value == 3


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize("argument", ["dataset", "collate_fn", "worker_init_fn"])
def test_what_cannot_be_pickled_is_named_before_a_worker_starts(argument, method, tmp_path):
    """W5: which argument, which attribute, which start method."""
    holder = Samples(4)
    holder.__class__ = _CallableSamples
    with open(tmp_path / "file", "w") as holder.file:
        arguments = {"dataset": Samples(4), argument: holder}
        loader = labkit.DataLoader(**arguments, num_workers=2, multiprocessing_context=method)
        before = _workers()
        with pytest.raises(StartupNotPicklable) as caught:
            iter(loader)
    assert _workers() == before
    error = caught.value
    assert (error.argument, error.attribute, error.start_method) == (argument, "file", method)
    for fact in (argument, "file", "TextIOWrapper", method, "worker_init_fn", '"fork"'):
        assert fact in str(error)


class _CallableSamples(Samples):
    def __call__(self, *arguments):
        raise NotImplementedError


def _workers() -> set[int]:
    """Children, but not the servers of multiprocessing."""
    return {
        child.pid
        for child in psutil.Process().children(recursive=True)
        if "resource_tracker" not in str(child.cmdline())
        and "forkserver" not in str(child.cmdline())
    }


def test_an_open_file_is_no_matter_under_fork(tmp_path):
    """W5: what the error advises, works."""
    data = Samples(4)
    with open(tmp_path / "file", "w") as data.file:
        loader = labkit.DataLoader(data, 4, num_workers=1, multiprocessing_context="fork")
        assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3]]


@pytest.mark.parametrize("method", METHODS)
def test_an_error_in_unpickling_the_dataset_is_not_waited_for(method):
    """A worker that fails before it has begun is a worker that died."""
    loader = labkit.DataLoader(
        _CannotArrive(), num_workers=1, multiprocessing_context=method, timeout=60
    )
    if method == "fork":  # nothing is pickled
        assert len(list(loader)) == 1
    else:
        with pytest.raises(RuntimeError, match=r"worker 0 .*exited unexpectedly with exit code 1"):
            list(loader)


class _CannotArrive(Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        return index

    def __setstate__(self, state):
        raise OSError("not in this process")

    def __getstate__(self):
        return {"anything": 1}


def test_start_methods_follow_each_other_in_one_kernel():
    """W6: and the global start method is untouched."""
    use = """
        import multiprocessing, labkit
        from tests.datasets import Samples
        for method in ["fork", "spawn", "forkserver", "fork"]:
            loader = labkit.DataLoader(
                Samples(4), 2, num_workers=2, multiprocessing_context=method)
            assert [b.tolist() for b in loader] == [[0, 1], [2, 3]]
        print(multiprocessing.get_start_method(allow_none=True))
        print([b.tolist() for b in labkit.DataLoader(Samples(4), 2, num_workers=1)])
        print(multiprocessing.get_start_method(allow_none=True))
        multiprocessing.set_start_method("spawn")
    """
    (result,) = run_cells(use)
    assert result["error"] is None, result["traceback"]
    assert result["stdout"] == "None\n[[0, 1], [2, 3]]\nNone\n"


def test_without_a_context_the_global_start_method_is_taken(tmp_path):
    done = run_script(
        """
        import multiprocessing, sys, labkit
        from tests.datasets import Mapped

        def method(index):
            return multiprocessing.get_start_method(), "pytest" in sys.modules

        if __name__ == "__main__":
            multiprocessing.set_start_method("spawn")
            loader = labkit.DataLoader(Mapped(method, 1), batch_size=None, num_workers=1)
            print(list(loader))
        """,
        tmp_path / "script.py",
    )
    assert done.stdout == "[['spawn', False]]\n", done.stderr


def test_a_context_without_a_method_is_the_default_one():
    loader = labkit.DataLoader(
        Samples(2), 2, num_workers=1, multiprocessing_context=multiprocessing.get_context()
    )
    assert len(list(loader)) == 1


def test_a_workers_print_reaches_the_cell_that_started_it(kernel):
    """W7: under each start method, tagged with the worker id."""
    for method in METHODS:
        result = kernel[f"load({method!r})"]
        assert result["error"] is None, result["traceback"]
        out = ["[worker 0] item 0", "[worker 1] item 1"]
        assert sorted(result["stdout"].splitlines()) == out, method
        err = ["[worker 0] warning 0", "[worker 1] warning 1"]
        assert sorted(result["stderr"].splitlines()) == err, method


def test_a_workers_print_without_a_line_end_is_printed_when_it_ends(kernel):
    """W7."""
    result = kernel[WITHOUT_LINE_END]
    assert result["stdout"] == "[worker 0] no end\n", result["traceback"]


def test_in_a_program_a_worker_prints_to_the_programs_own_output(tmp_path):
    """W7: where workers share the program's output, nothing comes between."""
    done = run_script(
        """
        import labkit
        from tests.datasets import Mapped

        if __name__ == "__main__":
            for method in ["fork", "spawn", "forkserver"]:
                data = Mapped(lambda i: print("item", i), 1)
                list(labkit.DataLoader(
                    data, None, num_workers=1, multiprocessing_context=method))
        """,
        tmp_path / "script.py",
    )
    assert done.stdout == "item 0\n" * 3, done.stderr


def test_the_fork_server_imports_torch_and_labkit_once(tmp_path):
    """A worker finds them there: that is what makes its start quick."""
    done = run_script(
        """
        import multiprocessing, sys, labkit

        def imported(conn):
            conn.send(["torch" in sys.modules, "labkit.worker" in sys.modules])

        if __name__ == "__main__":
            from tests.datasets import Samples
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(["json.tool"])
            list(labkit.DataLoader(Samples(1), num_workers=1, multiprocessing_context=context))
            print(multiprocessing.forkserver._forkserver._preload_modules)
        """,
        tmp_path / "script.py",
    )
    assert done.stdout == "['json.tool', 'torch', 'labkit.worker']\n", done.stderr


def test_other_processes_of_the_fork_server_can_be_interrupted(tmp_path):
    """Ctrl-C is held back while workers start, but in nothing else that starts then."""
    done = run_script(
        """
        import multiprocessing, signal, labkit

        def blocked(conn):
            conn.send(signal.pthread_sigmask(signal.SIG_BLOCK, []))

        if __name__ == "__main__":
            from tests.datasets import Samples
            context = multiprocessing.get_context("forkserver")
            list(labkit.DataLoader(Samples(1), num_workers=1, multiprocessing_context=context))
            ours, theirs = context.Pipe()
            process = context.Process(target=blocked, args=(theirs,))
            process.start()
            print(ours.recv())
            process.join()
        """,
        tmp_path / "script.py",
    )
    assert done.stdout == "set()\n", done.stderr


def test_a_worker_is_another_process():
    loader = labkit.DataLoader(Mapped(pid_of, 4), batch_size=None, num_workers=2)
    pids = list(loader)
    assert len(set(pids)) == 2
    assert pids == pids[:2] * 2


def test_a_loader_starts_workers_from_a_thread_under_every_start_method():
    """Off the main thread there are no signal handlers to be had, and none are needed."""
    results = {}

    def load(method: str) -> None:
        loader = labkit.DataLoader(Samples(4), 2, num_workers=2, multiprocessing_context=method)
        results[method] = [batch.tolist() for batch in loader]

    for method in METHODS:
        thread = threading.Thread(target=load, args=(method,))
        thread.start()
        thread.join()
    assert results == {method: [[0, 1], [2, 3]] for method in METHODS}
