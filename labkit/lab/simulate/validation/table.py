"""The validation as a Markdown file: every setting, predicted and measured, and the verdict.

Before it: `validating`. After it: whoever asks how far the simulation can be trusted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.lab.explain.wording import machine_words, number

if TYPE_CHECKING:
    from labkit.lab.simulate.validation.validating import Row, Validation

__all__ = ["markdown"]

_HEADING = (
    "workload",
    "workers",
    "prefetch",
    "batch",
    "step, ms",
    "predicted",
    "measured",
    "smallest to largest",
    "error",
    "reference, then : before",
    "load",
)


def markdown(validation: Validation) -> str:
    """The whole file."""
    rows = [_cells(row) for row in validation.rows]
    lines = [
        "# How far off the simulation is",
        "",
        f"Written by `{validation.command}`; nothing in here is written by hand.",
        "",
        f"**{validation.verdict}**",
        "",
        _line(_HEADING),
        _line(["---"] * len(_HEADING)),
        *map(_line, rows),
        "",
        *_explained(validation),
    ]
    return "\n".join(lines) + "\n"


def _cells(row: Row) -> list[str]:
    case = row.case
    return [
        case.workload.name,
        str(case.num_workers),
        str(case.prefetch_factor) if case.num_workers else "–",
        str(case.batch_size),
        f"{case.step_ms:g}",
        number(row.predicted),
        number(row.median),
        f"{number(min(row.measured))} to {number(max(row.measured))}",
        f"{row.error:+.0%}",
        f"{row.drift:.2f}",
        f"{row.load:.1f}",
    ]


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def _explained(validation: Validation) -> list[str]:
    machine = validation.machine
    repeats = sorted({len(row.measured) for row in validation.rows})
    return [
        f"- Machine: {machine_words(machine)}; {machine.get('date', 'no date')}.",
        f"- Settings drawn with seed {validation.seed}. All were predicted before any of them was "
        "measured. The costs are from traces with other batch sizes, which are never drawn.",
        *_left_out(validation),
        "- Predicted, measured: batches a second. Measured is the median of "
        f"{' or '.join(map(str, repeats))} repeats; the repeats of all settings took turns.",
        "- Error: predicted against measured.",
        "- Reference: one worker, right before each repeat, with the batch size of the traces; its "
        "median, against the same right after the traces. Far from 1, the machine has changed.",
        f"- Load: the system's load average while it was measured. When the costs were measured, "
        f"{validation.others:.1f} other programs wanted a core on average. The predictions reckon "
        "with none: only where both are small does the error tell of the simulation.",
        f"- It took {validation.wall_s:.0f} s.",
    ]


def _left_out(validation: Validation) -> list[str]:
    workloads = dict.fromkeys(row.case.workload for row in validation.rows)
    return [f"- Never drawn: {w.name} {w.left_out}." for w in workloads if w.left_out]
