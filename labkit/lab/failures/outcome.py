"""What came of a failure on one side, and both sides beside each other as a notebook shows them.

Before it: `stage`. After it: notebook 11; `picture`, which draws the times.
"""

from __future__ import annotations

import linecache
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from labkit.lab.code_spans import with_code
from labkit.lab.table import Table

__all__ = ["Beside", "Left", "Outcome", "verdicts"]

_WAYS_OUT = re.compile(
    r"\b(try|pass|raise the|increase|change the|please|set|use|look (at|for)|to see why|leave|"
    r"ways? out|write \w+=|open or make|make|convert|return|if (that|it) is)\b",
    re.IGNORECASE,
)
_LAST_LINES = 4
_WIDTH, _IN = 80, "    "


@dataclass(frozen=True)
class Left:
    """What a main process still has when all is closed; if it is dead, what it left."""

    processes: int
    names: int  #: in /dev/shm
    descriptors: int

    @property
    def words(self) -> str:
        parts = [
            f"{count} {name if count == 1 else names}"
            for count, name, names in (
                (self.processes, "process", "processes"),
                (self.names, "name in /dev/shm", "names in /dev/shm"),
                (self.descriptors, "descriptor", "descriptors"),
            )
            if count
        ]
        return ", ".join(parts) or "nothing"


@dataclass(frozen=True)
class Outcome:
    """One side of a failure.

    Attributes:
        package: "PyTorch" or "labkit".
        failure: its name.
        seconds: from the failure until something was raised, or its workers were gone if it was
            the main process that failed; if neither came, until it was given up.
        is_over: whether one of them came.
        error: the name of the exception's class; "" without one.
        message: what it says.
        workers: their process ids.
        batches: that came before.
        printed: to stdout and stderr, by the main process and its workers.
        stack: where its first worker stands in the end, if it lives.
        exit_codes: of the workers when something was raised; None for one that lived.
        megabytes: its worker's private memory batch by batch, on top of the first look at it.
        closing_s: seconds from the exception until the loader was gone; None: not while it was
            watched.
        left: what was there then; None if that was never so.
    """

    package: str
    failure: str
    seconds: float
    is_over: bool
    error: str
    message: str
    workers: tuple[int, ...]
    batches: int
    printed: str
    stack: str
    exit_codes: tuple[int | None, ...]
    megabytes: tuple[float, ...]
    closing_s: float | None
    left: Left | None

    @property
    def ended(self) -> str:
        """What ended it, in words that are the same on every machine."""
        if not self.is_over:
            return "its worker lives on" if self.failure == "dead parent" else "waits on"
        return self.error or ("its worker ends" if self.failure == "dead parent" else "no error")

    @property
    def names_worker(self) -> bool:
        """Whether the message has the process id of a worker."""
        return any(re.search(rf"\b{pid}\b", self.message) for pid in self.workers)

    @property
    def names_batch(self) -> bool:
        """Whether the message says which samples were asked for."""
        return "indices" in self.message

    @property
    def names_way_out(self) -> bool:
        """Whether the message says what to do."""
        return bool(_WAYS_OUT.search(self.message))

    @property
    def tracebacks(self) -> int:
        """How many were printed."""
        return self.printed.count("Traceback (most recent call last)")

    @property
    def left_words(self) -> str:
        """What stayed behind."""
        return "not known" if self.left is None else self.left.words

    @property
    def when(self) -> str:
        """After how long it ended."""
        return f"after {self.seconds:.2f} s" if self.is_over else f"not after {self.seconds:.1f} s"

    @property
    def says(self) -> str:
        """The message, without pages of stack."""
        text, _, stack = self.message.partition("\nThe worker is here:\n")
        text = " ".join(text.split())
        return "\n".join(
            [text, "The worker is here:", *_innermost(stack), "…"] if stack else [text]
        )

    @property
    def last_printed(self) -> str:
        """The last line that was printed by somebody who did not come to raise anything."""
        lines = [] if self.error else self.printed.split("\n")
        return next((line for line in reversed(lines) if line.strip()), "")

    @property
    def stands_at(self) -> str:
        """The innermost line of its worker that is the loader's or the user's; "" if it is gone."""
        for file, line, function in re.findall(r'File "(.+)", line (\d+) in (.+)', self.stack):
            if re.search(r"/labkit/|/torch/utils/data/", file):
                return f"`{linecache.getline(file, int(line)).strip()}`, in {function}"
        return ""


def _innermost(stack: str) -> list[str]:
    """The first lines of the main thread's stack, which stands last; paths cut to files."""
    threads = re.split(r"\n\n", stack.strip())
    lines = [line.strip() for line in threads[-1].splitlines()[1:]]
    return [re.sub(r'File ".*/', 'File "…/', line) for line in lines[:_LAST_LINES]]


_HEADING = (
    *("failure", "loader", "what came", "names the worker", "names the batch"),
    *("names a way out", "stayed behind"),
)


def verdicts(*pairs: Beside) -> Table:
    """What came of some failures, in words that are the same on every machine."""
    rows = []
    for pair in pairs:
        for outcome in pair.outcomes:
            said = [outcome.names_worker, outcome.names_batch, outcome.names_way_out]
            words = ["yes" if yes else "no" if outcome.error else "–" for yes in said]
            rows.append((pair.failure, outcome.package, outcome.ended, *words, outcome.left_words))
    return Table(_HEADING, rows)


@dataclass(frozen=True, repr=False)
class Beside:
    """A failure with both loaders, for a notebook's cell to end in.

    Attributes:
        failure: its name.
        outcomes: PyTorch's and labkit's.
        settings: in words, what it was tried under.
    """

    failure: str
    outcomes: Sequence[Outcome]
    settings: str

    @property
    def pytorch(self) -> Outcome:
        """PyTorch's side."""
        return self.outcomes[0]

    @property
    def labkit(self) -> Outcome:
        """labkit's side."""
        return self.outcomes[1]

    def __repr__(self) -> str:
        parts = [f"{self.failure} ({self.settings})"]
        for outcome in self.outcomes:
            parts += [f"\n{outcome.package}: {outcome.ended}"]
            for line in (*outcome.says.splitlines(), outcome.last_printed):
                parts += textwrap.wrap(line, _WIDTH, initial_indent=_IN, subsequent_indent=_IN)
            parts += [f"    stayed behind: {outcome.left_words}"]
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        rows = [("what came", [f"{o.ended}, {o.when}" for o in self.outcomes], False)]
        rows.append(("batches before", [str(o.batches) for o in self.outcomes], False))
        rows.append(("what it says", [o.says for o in self.outcomes], True))
        if any(o.last_printed for o in self.outcomes):
            rows.append(("last line printed", [o.last_printed for o in self.outcomes], True))
        if any(o.stands_at for o in self.outcomes):
            rows.append(
                (
                    "seen from outside: its worker stands at",
                    [o.stands_at for o in self.outcomes],
                    True,
                )
            )
        rows.append(("stayed behind", [o.left_words for o in self.outcomes], False))
        names = [outcome.package for outcome in self.outcomes]
        heads = "".join(f'<th scope="col" style="{_CELL}">{name}</th>' for name in names)
        body = "\n".join(_row(*row) for row in rows)
        caption = (
            f"<caption style='text-align: left'>{escape(repr(self).splitlines()[0])}</caption>"
        )
        return (
            f'<table style="border-collapse: collapse; table-layout: fixed; width: 100%">{caption}'
            f'<colgroup><col style="width: 14%"><col style="width: 43%"><col style="width: 43%">'
            f"</colgroup>\n<thead><tr><td></td>{heads}</tr></thead>\n<tbody>\n{body}\n</tbody>\n"
            "</table>"
        )


_CELL = (
    "text-align: left; vertical-align: top; white-space: normal; color: inherit; "
    "padding: 0.3em 0.6em; border-bottom: 1px solid rgba(128, 128, 128, 0.5)"
)


def _row(name: str, texts: Sequence[str], is_output: bool) -> str:
    cells = []
    for text in texts:
        shown = with_code(text or "nothing")
        if is_output and text:
            style = "white-space: pre-wrap; word-break: normal; overflow-wrap: anywhere; "
            style += "color: inherit; background: none; padding: 0"
            shown = f'<pre style="{style}">{shown}</pre>'
        cells.append(f'<td style="{_CELL}">{shown}</td>')
    return f'<tr><th scope="row" style="{_CELL}">{name}</th>{"".join(cells)}</tr>'
