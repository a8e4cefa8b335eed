"""Run an episode: bring the workers to the stage, hit, and judge what comes of it.

Before it: `__main__`, the tests. After it: `program`, which iterates; `gate`, where workers wait.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from labkit.errors import WorkerDied, WorkerTraceback
from labkit.sharing import names
from tests import leftovers
from tests.faults.episode import Episode, Outcome
from tests.faults.gate import Gate, Guest, settle
from tests.faults.loading import BATCHES, PlantedError, armed
from tests.faults.program import Consumer, Program

__all__ = ["gone_when", "run"]

_TRIES = 3
_STOPPED_SECONDS = 0.2
_LIMIT_SECONDS = 30.0  # for what has a bound: to see by how much it misses it
_SIGNALS = {"SIGKILL", "SIGSEGV", "SIGTERM"}


def run(episode: Episode) -> Outcome:
    """Run it, and once or twice more if all was right but late.

    A machine that is busy is late now and then; a loader that is broken is late every time. What is
    wrong otherwise is never tried again. Nor does the time count in which this process stood ready
    and the machine had no core for it.
    """
    for tries in range(1, _TRIES + 1):
        before = leftovers.take()
        try:
            outcome = _run_once(episode)
        except Exception:
            return Outcome(wrong=[traceback.format_exc()])
        outcome.tries = tries
        outcome.wrong += leftovers.since(before)
        if outcome.wrong or not outcome.is_late:
            break
    return outcome


def _run_once(episode: Episode) -> Outcome:
    with Gate() as gate:
        if episode.hits_workers:
            return _hit_workers(episode, gate)
        return _hit_program(episode, gate)


def _hit_workers(episode: Episode, gate: Gate) -> Outcome:
    consumer = Consumer(episode, gate.hook)
    outcome = Outcome(bound=1.0)
    consumer.go_to_the_stage()
    pids = consumer.worker_pids()
    victims = pids[:1] if episode.victim == "a worker" else pids
    guests = _at_the_stage(episode, gate, victims)
    with ExitStack() as afterwards, gone_when(victims if episode.kills else []) as gone:
        hit_at = _hit(episode, gate, guests, victims, afterwards)
        if episode.kills:
            gone(_LIMIT_SECONDS)
        stood_before = _stood_ready()
        consumer.go_on()
        stood = _stood_ready() - stood_before
    outcome.seconds = max(0.0, (consumer.raised_at or time.monotonic()) - hit_at - stood)
    outcome.wrong += _judge(episode, consumer, victims)
    gate.open()
    consumer.look_after()
    outcome.close_seconds = consumer.close()
    outcome.wrong += consumer.wrong + _names_of([os.getpid(), *pids], episode)
    consumer.errors.clear()
    return outcome


def _stood_ready() -> float:
    """Seconds that this thread has waited for a core, as Linux counts them."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


def _at_the_stage(episode: Episode, gate: Gate, victims: list[int]) -> list[Guest]:
    """Wait until those who are to be hit are where they shall be."""
    guests = []
    between_epochs = episode.stage == "idle" and episode.persistent
    if not between_epochs:
        guests = gate.wait_for(episode.stage, len(victims))
    if episode.stage == "sending":
        for guest in guests:
            guest.tell("go on")  # nobody reads now
    if episode.stage in ("idle", "sending"):
        for pid in victims:
            settle(pid)
    if episode.fault == "os._exit" and episode.hits_workers:
        guests = [g for g in gate.wait_for("agent", episode.workers) if g.pid in victims]
    return guests


def _hit(
    episode: Episode,
    gate: Gate,
    guests: list[Guest],
    victims: list[int],
    afterwards: ExitStack,
) -> float:
    """Let the fault happen to some workers. Returns when it did, or when it was over."""
    if episode.fault in _SIGNALS:
        for pid in victims:
            os.kill(pid, signal.Signals[episode.fault])
    elif episode.fault == "os._exit":
        for guest in guests:
            guest.tell("exit")
    elif episode.fault == "exception":
        for guest in guests:
            guest.tell("raise")
    else:
        continued = _stop_for_a_while(victims, lambda pid, number: os.kill(pid, number), gate)
        afterwards.callback(continued.join)
        return time.monotonic() + _STOPPED_SECONDS
    return time.monotonic()


def _stop_for_a_while(
    pids: list[int], send: Callable[[int, int], None], gate: Gate
) -> threading.Thread:
    """Stop processes now, let them go on soon, from a thread of its own."""
    for pid in pids:
        send(pid, signal.SIGSTOP)

    def go_on() -> None:
        time.sleep(_STOPPED_SECONDS)
        gate.open()
        for pid in pids:
            send(pid, signal.SIGCONT)

    thread = threading.Thread(target=go_on)
    thread.start()
    return thread


def _judge(episode: Episode, consumer: Consumer, victims: list[int]) -> Iterator[str]:
    """What of the batches and errors of epoch 1 is not as it must be."""
    if not episode.kills:
        is_planted = episode.fault == "exception"
        lost = _lost_to_exceptions(episode, len(victims)) if is_planted else set()
        wanted = [number for number in range(BATCHES) if number not in lost]
        if consumer.given != wanted:
            yield f"given {consumer.given}, not {wanted}"
        yield from _judge_errors(consumer.errors, victims if is_planted else [])
        return
    rounds = 1  # of batches, one from each worker
    if episode.stage == "idle":
        rounds = 0 if episode.persistent else 2
    wanted = list(range(rounds * episode.workers))
    if consumer.given != wanted:
        yield f"given {consumer.given}, not {wanted}"
    yield from _judge_death(episode, consumer.errors, victims)


def _lost_to_exceptions(episode: Episode, raisers: int) -> set[int]:
    """The batches that do not come: those that were armed. A generator that has raised has ended,
    so in the iterable dataset what that worker would have fetched later does not come either.
    """
    lost = set(armed(episode, raisers))
    if episode.kind == "iterable" and episode.stage == "fetching":
        for first in list(lost):
            lost.update(range(first, BATCHES, episode.workers))
    return lost


def _judge_errors(errors: list[Exception], raisers: list[int]) -> Iterator[str]:
    if len(errors) != len(raisers):
        yield f"errors {errors}, not {len(raisers)} of them"
    for error, pid in zip(errors, raisers, strict=False):
        cause = error.__cause__
        if not isinstance(error, PlantedError) or "planted while" not in str(error):
            yield f"{type(error).__name__} in the place of the planted error: {error}"
        if not isinstance(cause, WorkerTraceback) or cause.pid != pid:
            yield f"no traceback of worker {pid}: {cause!r}"


def _judge_death(episode: Episode, errors: list[Exception], victims: list[int]) -> Iterator[str]:
    if len(errors) != 1 or not isinstance(errors[0], WorkerDied):
        yield f"errors {errors}, not one WorkerDied"
        return
    error = errors[0]
    name = episode.fault if episode.fault in _SIGNALS else None
    code = -signal.Signals[name] if name else 7
    if error.pid not in victims or error.pid != dict(enumerate(victims)).get(error.worker_id):
        yield f"worker {error.worker_id} (pid {error.pid}) is named, dead are {victims}"
    if (error.signal, error.exitcode) != (name, code):
        yield f"signal {error.signal}, exit code {error.exitcode}, not {name}, {code}"
    batch = None if episode.stage == "idle" else episode.workers + error.worker_id
    if error.batch != batch:
        yield f"batch {error.batch} is named, not {batch}"


def _hit_program(episode: Episode, gate: Gate) -> Outcome:
    program = Program(episode, gate.hook)
    outcome = Outcome(bound=2.0)
    try:
        pids = program.worker_pids
        if len(pids) != episode.workers:
            return Outcome(wrong=[f"the program has workers {pids}: {program.written()}"])
        _at_the_stage(episode, gate, pids)
        hit = _hit_program_to_end if _ends_the_program(episode) else _hit_program_to_go_on
        hit(episode, gate, program, outcome)
        names.remove_orphans()  # as the next who uses them does
        outcome.wrong += _names_of([program.pid, *pids], episode)
    finally:
        program.close()
    return outcome


def _ends_the_program(episode: Episode) -> bool:
    return episode.fault != "SIGSTOP, SIGCONT"


def _hit_program_to_end(episode: Episode, gate: Gate, program: Program, outcome: Outcome) -> None:
    """Its workers must be gone soon. Those that wait at the gate stay there, as if stuck."""
    orders = {"exception": "raise", "interpreter exit": "exit", "os._exit": "_exit"}
    ends_itself = episode.fault in ("exception", "interpreter exit")
    outcome.bound = 5.0 if ends_itself else 2.0  # that of `close`
    if not ends_itself and episode.stage not in ("idle", "sending"):
        program.order("go on")  # it waits for the batch when it is hit
        settle(program.pid)
    with gone_when(program.worker_pids) as gone:
        began = time.monotonic()
        if episode.fault in _SIGNALS:
            _send_to(episode, program, signal.Signals[episode.fault])
        else:
            program.order(orders[episode.fault])
        if not gone(_LIMIT_SECONDS):
            outcome.wrong.append("workers live on")
        outcome.seconds = time.monotonic() - began
    outcome.wrong += _judge_end(episode, program)


def _judge_end(episode: Episode, program: Program) -> Iterator[str]:
    codes = {"os._exit": 7, "exception": 1, "interpreter exit": 0}
    code = codes.get(episode.fault)
    if code is None:
        code = -signal.Signals[episode.fault]
    if (found := program.exit_code()) != code:
        yield f"exit code {found}, not {code}"
    written = program.written()
    if episode.fault == "exception":
        if written.count("Traceback") != 1 or "PlantedError: planted in the loop" not in written:
            yield f"not one traceback: {written}"
    elif written:
        yield f"it wrote {written}"


def _hit_program_to_go_on(episode: Episode, gate: Gate, program: Program, outcome: Outcome) -> None:
    if episode.stage not in ("idle", "sending"):
        program.order("go on")
        settle(program.pid)

    def send(_: int, number: int) -> None:
        _send_to(episode, program, signal.Signals(number))

    _stop_for_a_while([program.pid], send, gate).join()
    program.order("go on")
    began = time.monotonic()
    given, wrong, outcome.close_seconds = program.answer()
    outcome.seconds, outcome.bound = time.monotonic() - began, _LIMIT_SECONDS
    outcome.wrong += wrong
    if given != list(range(BATCHES)):
        outcome.wrong.append(f"given {given}")
    if (code := program.exit_code()) != 0 or program.written():
        outcome.wrong.append(f"exit code {code}: {program.written()}")


def _send_to(episode: Episode, program: Program, number: signal.Signals) -> None:
    if episode.victim == "main process":
        os.kill(program.pid, number)
        return
    os.killpg(program.pid, number)
    if episode.start_method == "forkserver":  # which is shared, so its group is another one
        for pid in program.worker_pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


@contextmanager
def gone_when(pids: list[int]) -> Iterator[Callable[[float], bool]]:
    """A function that waits until all these processes have ended, and says whether they have."""
    descriptors = [os.pidfd_open(pid) for pid in pids]

    def wait(limit: float) -> bool:
        deadline = time.monotonic() + limit
        left = descriptors
        while left and time.monotonic() < deadline:
            ended = select.select(left, [], [], deadline - time.monotonic())[0]
            left = [descriptor for descriptor in left if descriptor not in ended]
        return not left

    try:
        yield wait
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _names_of(pids: list[int], episode: Episode) -> list[str]:
    """The names in shared memory that these processes own or made."""
    if episode.strategy != "file_system":
        return []
    mine = {str(pid) for pid in pids}
    return [f"name {name}" for name in os.listdir(names.directory()) if mine & set(name.split("-"))]
