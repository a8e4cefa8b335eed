"""A bench run as text: times and ratios, figures against their bars, resources, notes.

Before it: `results`, whose numbers it only formats.
"""

from __future__ import annotations

from collections.abc import Sequence

from labkit.lab.bench.results import Figure, Measured, Run, Spread, checks_of, figures

__all__ = ["table"]

_NAMES = {"torch": "PyTorch", "labkit": "labkit", "stack": "torch.stack", "step": "step alone"}


def table(run: Run) -> str:
    """The whole report."""
    found = figures(run.workloads)
    parts = [_machine(run)]
    if run.interrupted:
        parts.append("Interrupted: this is what was measured until then.")
    parts.append(_times(run.workloads))
    for name in dict.fromkeys(figure.name for figure in found):
        parts.append(_figures(name, [figure for figure in found if figure.name == name]))
    parts += [_checks(run.workloads), _resources(run.workloads)]
    parts += [_listed("Left out", run.notes), _listed("Failed", run.failures), _notes(run)]
    return "\n\n".join(part for part in parts if part)


def _machine(run: Run) -> str:
    m = run.machine
    shared = m["sharing_strategy"]
    return "\n".join(
        [
            f"{m['date']}: {m['cpu']}, {m['cores']} cores, {m['memory_bytes'] / 1e9:.0f} GB, "
            f"{m['system']} {m['kernel']}, load at the start {m['load_average']}",
            f"Python {m['python']}, torch {m['torch']}, numpy {m['numpy']}, labkit {m['labkit']}; "
            f"start method {m['start_method']}; sharing: labkit {shared['labkit']}, PyTorch "
            f"{shared['torch']}",
            *([f"Device: {m['device']}"] if m.get("device") else []),
        ]
    )


def _times(workloads: Sequence[Measured]) -> str:
    sides = list(dict.fromkeys(side for measured in workloads for side in measured.seconds))
    sides.sort(key=lambda side: [*_NAMES, side].index(side))
    rows = []
    for measured in workloads:
        series = [measured.seconds.get(side, []) for side in sides]
        if any(series):
            times = [f"{Spread.of(s).median * 1e6:,.0f}" if s else "–" for s in series]
            repeats = str(max(map(len, series)))
            rows.append([measured.name, *times, repeats, measured.what])
    head = ["µs a batch, median", *[_NAMES.get(side, side) for side in sides], "repeats", "a batch"]
    return _aligned([head, *rows]) if rows else "Nothing was measured."


def _figures(name: str, found: Sequence[Figure]) -> str:
    rows = [[name, "median", "min to max", "wanted", ""]]
    for figure in found:
        spread = figure.spread
        wanted = str(figure.wanted) if figure.wanted is not None else "–"
        rows.append(
            [
                figure.workload,
                _number(spread.median),
                f"{_number(spread.low)} to {_number(spread.high)}",
                wanted,
                figure.verdict,
            ]
        )
    return _aligned(rows)


def _number(value: float) -> str:
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _checks(workloads: Sequence[Measured]) -> str:
    checks = checks_of(workloads)
    return "\n".join(f"{c.name}: {c.found}, wanted {c.wanted}: {c.verdict}" for c in checks)


_RESOURCES = (
    "", "", "memory MB", "of it added", "shared MB", "faults a batch", "fds", "message B",
)  # fmt: skip


def _resources(workloads: Sequence[Measured]) -> str:
    rows = []
    for measured in workloads:
        for side, found in measured.resources.items():
            added = None
            if found.memory_bytes is not None and found.memory_before_bytes is not None:
                added = found.memory_bytes - found.memory_before_bytes
            rows.append(
                [
                    measured.name,
                    _NAMES.get(side, side),
                    *[_megabytes(n) for n in (found.memory_bytes, added, found.shared_bytes)],
                    *[_count(n) for n in (found.minor_faults_a_batch, found.fds)],
                    _count(found.message_bytes),
                ]
            )
    return _aligned([list(_RESOURCES), *rows]) if rows else ""


def _megabytes(nbytes: float | None) -> str:
    return "–" if nbytes is None else f"{nbytes / 1e6:,.1f}"


def _count(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value == int(value) or value >= 10 else f"{value:.2f}"


def _listed(title: str, entries: dict[str, str]) -> str:
    lines = [f"  {name}: {text}" for name, text in entries.items()]
    return "\n".join([f"{title}:", *lines]) if lines else ""


def _notes(run: Run) -> str:
    cores = run.machine["cores"]
    which = "1 core, which is" if cores == 1 else f"{cores} cores, which are"
    return f"""\
How to read this:
  A ratio is taken of two repeats that stand next to each other in time; then the median of these.
  Times are those of a batch in steady state: a fresh loader each repeat, its start and its first
  batches not counted; for start-up, the time to the first batch. The loop does nothing with a
  batch, unless a step is named. Defaults on all sides, but SPDL is asked to keep the order, and to
  a device PyTorch's loader brings its batches with pin_memory=True and non_blocking=True.
  There are {which} shared by the loop, the workers and all else that runs here. A busy
  machine is slower, and not evenly so: look at the spread, and measure again before you conclude.
  Memory is PSS of this process and its workers at the peak, and shared memory that is held open.
  The message leaves out what PyTorch sends over further connections (descriptors). fds are the
  main process's, above those that it had without the loader.
{_SIMULATED if run.machine.get("simulated") else ""}\
  It took {run.wall_s:,.0f} s."""


_SIMULATED = """\
  The device is simulated, in slow motion, with small batches and steps: that shows that all works,
  and nothing of a real one's speed. PyTorch's side pins in the loop there, since its pin thread
  knows no simulated device.
"""


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns side by side: words to the left, numbers to the right; a rule below the first row."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    right = [all(cell[:1].isdigit() or cell in "–" for cell in column[1:]) for column in columns]
    lines = [
        "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])
