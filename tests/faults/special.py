"""Episodes that fit into no grid: what each is, what must follow, and where it is run.

Those that have tests of their own are named with them; the others are functions of `scarcity`,
`surroundings` and `kernel_restart`, which return what is to be said of them.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from tests import leftovers
from tests.faults import kernel_restart, scarcity, surroundings

__all__ = ["SPECIALS", "Special", "Told"]


@dataclass
class Told:
    """How a special episode ended."""

    seconds: float = 0.0
    words: str = ""  #: in the place of the time: why it was skipped
    wrong: str = ""  #: what was not as it must be

    @staticmethod
    def load(path: Path) -> dict[str, Told]:
        if not path.exists():
            return {}
        return {name: Told(**told) for name, told in json.loads(path.read_text()).items()}

    @staticmethod
    def save(path: Path, told: dict[str, Told]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({name: asdict(one) for name, one in told.items()}, indent=1))


@dataclass(frozen=True)
class Special:
    """One of them."""

    name: str
    follows: str  #: what must follow
    bound: float  #: seconds it may take; 0: only to end
    where: str  #: the test that has it, or the function that runs it
    run: Callable[[], float] | None = None  #: gives the seconds; None: its test has it

    def tell(self) -> Told:
        """Run it, and once or twice more if it was right but late: see `running.run`."""
        assert self.run is not None
        for _ in range(3):
            before = leftovers.take()
            began = time.monotonic()
            try:
                seconds = self.run()
            except scarcity.NotHere as reason:
                return Told(words=f"skipped: {reason}")
            except Exception:
                return Told(time.monotonic() - began, wrong=traceback.format_exc())
            told = Told(seconds, wrong="; ".join(leftovers.since(before)))
            if told.wrong or not self.bound or seconds <= self.bound:
                return told
        return Told(seconds, wrong=f"took {seconds:.2f} s of {self.bound:.0f}")


def _of(run: Callable[[], float], name: str, follows: str, bound: float = 0) -> Special:
    where = f"{run.__module__.removeprefix('tests.')}.{run.__name__}"
    return Special(name, follows, bound, where, run)


SPECIALS = [
    Special(
        "Ctrl-C, to the process group",
        "one traceback; no worker left",
        2,
        "test_worker.py::test_ctrl_c_ends_a_program_with_one_traceback",
    ),
    Special(
        "a kernel's interrupt",
        "one traceback; the next cell iterates",
        2,
        "test_worker.py::test_after_a_kernels_interrupt_the_next_cell_iterates_again",
    ),
    _of(
        kernel_restart.kernel_restarts,
        "a kernel's restart, as JupyterLab asks for it, and by force",
        "workers, idle ones and one in a sample, are gone; names go with the next loader",
        5,
    ),
    Special(
        "no descriptor left, for batches that are kept",
        "an error with ways out, or all batches",
        0,
        "test_transport_cases.py::test_descriptors_that_run_out_are_an_error_with_ways_out",
    ),
    _of(
        scarcity.no_descriptor_for_workers,
        "no descriptor left while workers start, for a loader and a Preloader",
        "TooManyOpenFiles, however many are left; then it works",
    ),
    Special(
        "/dev/shm full",
        "batches, or one error with three ways out",
        5,
        "test_transport_cases.py::test_a_full_dev_shm_hinders_none_or_is_one_error_with_ways_out",
    ),
    _of(
        scarcity.memory_of_the_control_group_ends,
        "the memory of the control group ends",
        "WorkerDied by SIGKILL, with the hint at memory",
        1,
    ),
    _of(
        scarcity.address_space_ends,
        "the address space of a worker ends (RLIMIT_AS)",
        "MemoryError from that worker, then the other batches",
    ),
    _of(
        scarcity.disk_full,
        "the disk is full for a dataset that writes",
        "OSError 28 from that worker, then the other batches",
    ),
    Special(
        "a fork while another thread holds the dataset's lock",
        "a timeout error that shows where the worker is stuck",
        3,
        "test_worker.py::test_a_timeout_tells_where_a_forked_worker_is_stuck",
    ),
    _of(
        surroundings.fork_beside_busy_threads,
        "forks while threads log, import, allocate and iterate",
        "all batches of all loaders",
    ),
    _of(
        surroundings.death_in_a_thread,
        "a loader in a thread, its worker killed",
        "WorkerDied in that thread",
        1,
    ),
    _of(
        surroundings.death_in_a_process,
        "a loader in a Process, its worker killed",
        "WorkerDied in that process",
        1,
    ),
    _of(
        surroundings.death_around_a_loader,
        "a loader without workers inside another loader's dataset, whose worker is killed",
        "WorkerDied of the outer one",
        1,
    ),
    _of(
        surroundings.many_loaders_beside_one,
        "many loaders made and dropped beside a running one, a worker of every tenth killed",
        "the running one's batches; as many descriptors, mappings and threads as before",
    ),
    _of(
        surroundings.close_with_stopped_workers,
        "stopped workers (SIGSTOP, no SIGCONT) when the loader is closed",
        "they are gone",
        5,
    ),
    _of(
        surroundings.close_while_pinning_hangs,
        "a `pin_memory` that hangs when the loader is closed",
        "workers are gone, the thread is not waited for",
        5,
    ),
    _of(
        scarcity.huge_pages,
        "shared memory in huge pages",
        "WorkerDied, right batches before and after",
        1,
    ),
]
