"""Exercise 03.worker_loop: six behaviours of a worker's loop, one after another.

The answer's signature is `worker_loop(create_fetcher, index_queue, data_queue, done_event,
worker_id, parent_is_alive)`, a part of PyTorch's `_worker_loop`; what it gets follows a script, see
`scripted`. The last case runs it in a real process with real queues.

Mirrors: torch/utils/data/_utils/worker.py (`_worker_loop`).
"""

from __future__ import annotations

import multiprocessing
import queue
from collections.abc import Callable
from typing import Any

from torch._utils import ExceptionWrapper
from torch.utils.data import IterableDataset
from torch.utils.data._utils.worker import _IterableDatasetStopIteration, _ResumeIteration

from labkit.errors import WorkerException
from labkit.lab.exercises.scripted import DONE, WORKER_ID, CreateFetcher, Parent, Run, as_text
from labkit.lab.exercises.trial import Trial

__all__ = ["check_worker_loop"]

WorkerLoop = Callable[..., None]


class _Tens:
    """Sample i is 10 × i; sample 4 is broken."""

    def __getitem__(self, index: int) -> int:
        if index == 4:
            raise ValueError("sample 4 is broken")
        return 10 * index


class _Three(IterableDataset[int]):
    """0, 1, 2."""

    def __iter__(self) -> Any:
        return iter(range(3))


def check_worker_loop(answer: WorkerLoop, trial: Trial) -> None:
    """Try the behaviours in the order in which one would write them."""
    _fetches_and_returns(answer, trial)
    _ends_at_none(answer, trial)
    _wraps_exceptions(answer, trial)
    _sends_one_end_marker(answer, trial)
    _resumes(answer, trial)
    _skips_work_once_done(answer, trial)
    _ends_when_the_parent_is_dead(answer, trial)
    _works_in_a_process(answer, trial)


def _fetches_and_returns(answer: WorkerLoop, trial: Trial) -> None:
    expected = [(0, [0, 10]), (1, [20, 30])]
    trial.case(
        "1. the tasks `(0, [0, 1])` and `(1, [2, 3])`; sample i is 10 × i",
        f"in the data queue `{expected}` (batches are tensors)",
        "A task is `(idx, indices)`: fetch the indices, put `(idx, data)`, and go on.",
    )
    script = [(0, [0, 1]), (1, [2, 3]), DONE, None]
    run = Run(answer, CreateFetcher(_Tens()), script)
    if run.results == expected and run.index_queue.late:
        trial.fail(
            "the first result came after the second task had been asked for",
            "Put each result as soon as it is there: the training loop waits for it.",
        )
    if run.results != expected:
        trial.fail(as_text(run.results), _about_results(run))


def _about_results(run: Run) -> str:
    got = run.results
    if not got:
        return (run.trouble or "Nothing was put into the data queue") + ": is each result put?"
    if any(not (isinstance(entry, tuple) and len(entry) == 2) for entry in got):
        return "Results may come in any order: the main process needs the pair `(idx, data)`."
    if [entry[1] for entry in got] == [[0, 10], [20, 30]]:
        return "The data are right. They go back under the number `idx` that the task came with."
    if len(got) == 1:
        return "One task is done, and then? The loop goes on until it is told to end."
    return "For each task, ask the fetcher for exactly its indices."


def _ends_at_none(answer: WorkerLoop, trial: Trial) -> None:
    trial.case(
        "2. a task, then `None`",
        "the loop returns, and takes nothing more from the index queue",
        "`None` is the last that comes: return, without touching the queues again.",
    )
    run = Run(answer, CreateFetcher(_Tens()), [(0, [0]), DONE, None])
    if run.trouble:
        trial.fail(run.trouble, "`None` is the final signal: leave the loop there.")
    if not run.index_queue.ended:
        trial.fail("it returned before it had taken the `None`", "Only `None` ends the worker.")
    if len(run.results) != 1:
        trial.fail(as_text(run.results), "`None` is no task: nothing is put for it.")


def _wraps_exceptions(answer: WorkerLoop, trial: Trial) -> None:
    trial.case(
        f"3. the tasks `(0, [4])` and `(1, [5])` in worker {WORKER_ID}; sample 4 raises a "
        "ValueError",
        f"`(0, an ExceptionWrapper that names worker {WORKER_ID})`, then `(1, [50])`",
        "An exception of the dataset's is the outcome of that one task: catch it, send it, go on.",
    )
    run = Run(answer, CreateFetcher(_Tens()), [(0, [4]), (1, [5]), DONE, None])
    got = run.results
    if not got or got[0] == (1, [50]):
        trial.fail(
            as_text(got) if got else run.trouble or "no result",
            "The main process waits for batch 0 and hears nothing: send the exception as its data.",
        )
    idx, data = got[0]
    if isinstance(data, BaseException):
        trial.fail(
            as_text(got),
            "A bare exception loses its traceback when it is pickled. `ExceptionWrapper(where=…)`, "
            "made inside the `except`, keeps it as text.",
        )
    if not isinstance(data, (ExceptionWrapper, WorkerException)):
        trial.fail(
            as_text(got),
            "The main process would take that for a batch: send an `ExceptionWrapper`.",
        )
    where = data.where if isinstance(data, ExceptionWrapper) else data.worker_id
    if str(WORKER_ID) not in str(where):
        trial.fail(
            f"(0, an ExceptionWrapper that says: {where})",
            "Which worker was it? Name it in `where`: the main process prints that first.",
        )
    if idx != 0 or got[1:] != [(1, [50])]:
        trial.fail(as_text(got), "After an exception the worker goes on with the next task.")


def _sends_one_end_marker(answer: WorkerLoop, trial: Trial) -> None:
    task = [None, None]
    trial.case(
        "4. an IterableDataset with the samples 0, 1, 2, and four tasks for two samples each",
        f"`[(0, [0, 1]), (1, [2]), (2, IterableEnd({WORKER_ID}))]`; nothing for the fourth task",
        "The fetcher raises StopIteration once the dataset has ended. That is no error: it is the "
        "end marker's turn.",
    )
    script = [*((i, task) for i in range(4)), None]
    run = Run(answer, CreateFetcher(_Three(), is_iterable=True), script)
    got = run.results
    if len(got) < 3 or not run.index_queue.ended:
        trial.fail(
            run.trouble or f"{as_text(got)}, and the loop returned before the `None`",
            "An exhausted worker stays until the `None`: it may yet be asked to start anew.",
        )
    if isinstance(got[2][1], ExceptionWrapper):
        trial.fail(
            as_text(got),
            "StopIteration is an Exception, too: catch it before the others, as the end.",
        )
    if not isinstance(got[2][1], _IterableDatasetStopIteration):
        trial.fail(
            as_text(got), "The end is told by an `IterableEnd(worker_id)` as the task's data."
        )
    if got[2][1].worker_id != WORKER_ID:
        trial.fail(
            as_text(got), "The marker says which worker has ended: no more tasks are sent to that."
        )
    if len(got) > 3:
        trial.fail(
            f"{len(got) - 2} end markers",
            "One is enough. Remember that the dataset has ended, and skip the tasks after it.",
        )


def _resumes(answer: WorkerLoop, trial: Trial) -> None:
    resume = _ResumeIteration()
    task = [None, None]
    trial.case(
        "5. the same dataset, exhausted; then a `ResumeIteration` and a task",
        "`(resume, None)` as the acknowledgement, then the dataset's first batch again",
        "A new epoch: acknowledge, make a new fetcher, and forget that the dataset had ended.",
    )
    script = [*((i, task) for i in range(3)), resume, (3, task), DONE, None]
    run = Run(answer, CreateFetcher(_Three(), is_iterable=True), script)
    after = run.results[3:]
    if not any(isinstance(r, tuple) and isinstance(r[0], _ResumeIteration) for r in after):
        trial.fail(
            run.trouble or as_text(run.results),
            "The main process waits for the acknowledgement `(resume, None)`, with the object "
            "that it sent, before it hands out tasks.",
        )
    if run.create_fetcher.made < 2:
        trial.fail(
            f"{as_text(after)}, from {run.create_fetcher.made} fetcher",
            "The old fetcher's iterator is used up: a new epoch needs a new fetcher.",
        )
    if run.results[4:] != [(3, [0, 1])]:
        trial.fail(
            as_text(after),
            "It skips the new epoch's tasks, or ends again: what did you note down when the "
            "dataset ended?",
        )


def _skips_work_once_done(answer: WorkerLoop, trial: Trial) -> None:
    trial.case(
        "6. a task; then `done_event` is set; two more tasks; `None`",
        "one result; the two tasks are taken and skipped; the `None` ends it",
        "Nobody will read the results any more: take the tasks, but do not fetch.",
    )
    script = [(0, [0]), DONE, (1, [1]), (2, [2]), None]
    run = Run(answer, CreateFetcher(_Tens()), script)
    if len(run.create_fetcher.fetched) > 1:
        trial.fail(
            f"{len(run.create_fetcher.fetched)} fetches",
            "Look at `done_event` after each `get()`: once it is set, the work is in vain.",
        )
    if run.trouble or not run.index_queue.ended:
        trial.fail(
            run.trouble or "it returned before it had taken the `None`",
            "`done_event` alone ends nothing: the worker goes on taking, until `None` comes.",
        )


def _ends_when_the_parent_is_dead(answer: WorkerLoop, trial: Trial) -> None:
    trial.case(
        "6. a task; then no more comes, and `parent_is_alive()` turns False",
        "the loop returns",
        "`get` with a timeout, catch `queue.Empty`, and ask `parent_is_alive()` at each turn.",
    )
    try:
        run = Run(answer, CreateFetcher(_Tens()), [(0, [0])], parent_answers=4)
    except queue.Empty:
        trial.fail(
            "the loop ended with queue.Empty, while the parent was alive",
            "An empty queue means only: nothing yet. Catch `queue.Empty` and go on.",
        )
    if run.trouble:
        trial.fail(
            run.trouble,
            "A dead parent sends no `None`. Wait with a timeout only, and go on only while "
            "`parent_is_alive()`.",
        )
    if run.results != [(0, [0])]:
        trial.fail(as_text(run.results), "Before that, the task is done as always.")


def _works_in_a_process(answer: WorkerLoop, trial: Trial) -> None:
    expected = [(0, [0, 10]), (1, [20])]
    trial.case(
        "all together: a forked process, real queues, the tasks `(0, [0, 1])` and `(1, [2])`",
        repr(expected),
        "Alone it works. What does it need that a process of its own does not have?",
    )
    context = multiprocessing.get_context("fork")
    index_queue, data_queue, done_event = context.Queue(), context.Queue(), context.Event()
    create_fetcher = CreateFetcher(_Lists())
    arguments = (create_fetcher, index_queue, data_queue, done_event, WORKER_ID, Parent())
    process = context.Process(target=answer, args=arguments)
    process.start()
    for task in ((0, [0, 1]), (1, [2])):
        index_queue.put(task)
    try:
        got = [data_queue.get(timeout=10) for _ in expected]
    except queue.Empty:
        got = []
    done_event.set()
    index_queue.put(None)
    process.join(5)
    if [(idx, [int(x) for x in data["x"]]) for idx, data in got] != expected:
        trial.fail(as_text(got), "The two results did not come within 10 s.")
    if process.exitcode is None:
        trial.fail("the process does not end", "`None` came over a real queue: is it compared?")


class _Lists:
    """As `_Tens`, but its batches hold no tensor, for which a queue would need a server thread."""

    def __getitems__(self, indices: list[int]) -> list[dict[str, str]]:
        return [{"x": str(10 * index)} for index in indices]
