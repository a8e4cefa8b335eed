"""One loader, simulated: its workers, their feeders, and the main process.

As in `labkit.multiprocess`: tasks go to the workers in turn, at most prefetch_factor × num_workers
are under way, results are put in order, and for each batch that is given one more task is handed
out. The main process reads what has come while it waits: what it waits for first, else the oldest.

Left out: the interpreter's lock, which a worker and its feeder thread share; the start of the
workers; a message that fills its channel; the epoch's end, for the simulation ends before it; and
without workers, that fresh memory costs more for large batches than for small ones.

Before it: `shared_cores`, `settings`, `drawn`. After it: `consumer`, which is given the batches;
`predicting`, which runs some of these.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from labkit.lab.simulate.consumer import Consumer
from labkit.lab.simulate.drawn import Drawn
from labkit.lab.simulate.settings import Settings
from labkit.lab.simulate.shared_cores import SharedCores

__all__ = ["COPIED_BY_COLLATE", "Noted", "Pipeline"]

COPIED_BY_COLLATE = 2
"""A collate reads each byte of the batch, and writes it."""

Noted = tuple[str, str, float, float, int, int]
"""A span: lane, layer, start, end, batch, worker (−1: none)."""


class _Lane:
    """A thread: what waits for it, and since when it waits for that itself (None: it works)."""

    __slots__ = ("idle_since", "name", "number", "tasks")

    def __init__(self, name: str, number: int) -> None:
        self.name = f"{name} {number}"
        self.number = number
        self.tasks: deque[int] = deque()
        self.idle_since: float | None = 0.0


class Pipeline:
    """A loader.

    Args:
        machine: whose cores it shares.
        settings: of the loader.
        drawn: what each batch costs.
        noted: where spans are written; None for nowhere.

    Attributes:
        sent: batches handed out.
        given: batches given to the consumer, in order.
        taken_at: when each of those was.
        consumer: who gets them.
    """

    def __init__(
        self, machine: SharedCores, settings: Settings, drawn: Drawn, noted: list[Noted] | None
    ) -> None:
        self.sent = 0
        self.given = 0
        self.taken_at: list[float] = []
        self._machine = machine
        self._settings = settings
        self._drawn = drawn
        self._noted = noted
        self._workers = [_Lane("worker", i) for i in range(settings.num_workers)]
        self._feeders = [_Lane("feeder", i) for i in range(settings.num_workers)]
        self._loop = "Preloader" if settings.preloader else "main"  # the thread that iterates
        self._inbox: dict[int, None] = {}  # batches that have come and are not read yet, by arrival
        self._ready: set[int] = set()  # the reorder buffer
        self._waiting_since: float | None = None
        go_on = self._ask if settings.num_workers else self._load_here
        self.consumer = Consumer(machine, settings, drawn.batch_bytes, self._note, go_on)

    def start(self) -> None:
        """Begin to iterate."""
        if self._settings.num_workers == 0:
            self._load_here()
        else:
            self._fill()

    # The main process: hand out, wait, read, take

    def _fill(self) -> None:
        if self.sent < self._settings.max_depth:
            self._hand_out(self._fill)
        else:
            self._ask()

    def _hand_out(self, then: Callable[[], None]) -> None:
        batch, start = self.sent, self._machine.now
        self.sent += 1

        def handed() -> None:
            self._note(self._loop, "dispatch", start, batch)
            worker = self._workers[batch % len(self._workers)]
            worker.tasks.append(batch)
            self._wake(worker, self._fetch)
            then()

        self._work("dispatch", batch, handed)

    def _ask(self) -> None:
        """The next batch, please."""
        batch = self.given
        if batch in self._ready:
            self._ready.remove(batch)
            self._take(batch)
            self._hand_out(lambda: self.consumer.take(batch))
        elif self._inbox:
            self._read(batch if batch in self._inbox else next(iter(self._inbox)))
        else:
            self._waiting_since = self._machine.now

    def _read(self, batch: int) -> None:
        del self._inbox[batch]
        start = self._machine.now

        def read() -> None:
            self._note(self._loop, "rebuild", start, batch)
            self._ready.add(batch)
            self._ask()

        self._work("rebuild", batch, read)

    def _arrive(self, batch: int) -> None:
        self._inbox[batch] = None
        if self._waiting_since is not None:
            self._note(self._loop, "wait", self._waiting_since, -1)
            self._waiting_since = None
            self._ask()

    def _take(self, batch: int) -> None:
        self.given += 1
        self.taken_at.append(self._machine.now)
        self._note(self._loop, "take", self._machine.now, batch)

    def _load_here(self) -> None:
        """Without workers: fetch and collate, then give."""
        batch, start = self.sent, self._machine.now
        self.sent += 1

        def loaded() -> None:
            self._note(self._loop, "fetch", start, batch)
            self._take(batch)
            self.consumer.take(batch)

        self._work("here", batch, loaded, COPIED_BY_COLLATE * self._drawn.batch_bytes)

    # A worker, and its feeder

    def _wake(self, lane: _Lane, work: Callable[[_Lane], None]) -> None:
        if lane.idle_since is not None:
            if lane.idle_since < self._machine.now:
                self._note(lane.name, "wait", lane.idle_since, -1, lane.number)
            lane.idle_since = None
            work(lane)

    def _fetch(self, worker: _Lane) -> None:
        if not worker.tasks:
            worker.idle_since = self._machine.now
            return
        batch = worker.tasks.popleft()

        def collated() -> None:
            feeder = self._feeders[worker.number]
            feeder.tasks.append(batch)
            self._wake(feeder, self._feed)
            self._fetch(worker)

        self._fetch_and_collate(worker.name, batch, worker.number, collated)

    def _fetch_and_collate(
        self, lane: str, batch: int, worker: int, then: Callable[[], None]
    ) -> None:
        start = self._machine.now

        def fetched() -> None:
            self._note(lane, "fetch", start, batch, worker)
            begins = self._machine.now

            def collated() -> None:
                self._note(lane, "collate", begins, batch, worker)
                then()

            nbytes = COPIED_BY_COLLATE * self._drawn.batch_bytes
            self._work("collate", batch, collated, nbytes)

        self._work("fetch", batch, fetched)

    def _feed(self, feeder: _Lane) -> None:
        if not feeder.tasks:
            feeder.idle_since = self._machine.now
            return
        batch, start = feeder.tasks.popleft(), self._machine.now

        def sent() -> None:
            self._note(feeder.name, "send", start, batch, feeder.number)
            self._arrive(batch)
            self._feed(feeder)

        self._work("feeder", batch, sent)

    # What it costs, and what is noted

    def _work(self, layer: str, batch: int, then: Callable[[], None], nbytes: float = 0.0) -> None:
        place = batch % len(self._drawn)
        cpu, wait = self._drawn.cpu[layer][place], self._drawn.wait[layer][place]
        if wait > 0:
            self._machine.after(wait, lambda: self._machine.work(cpu, then, nbytes))
        else:
            self._machine.work(cpu, then, nbytes)

    def _note(self, lane: str, layer: str, start: float, batch: int, worker: int = -1) -> None:
        if self._noted is not None:
            self._noted.append((lane, layer, start, self._machine.now, batch, worker))
