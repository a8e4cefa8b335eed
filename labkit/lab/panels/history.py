"""The runs of a panel side by side: a row each, with what was predicted and how far off that was.

Before it: `model`. After it: `view`, which shows the table as HTML.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from labkit.lab.explain.wording import number
from labkit.lab.predictions import Prediction

if TYPE_CHECKING:
    from labkit.lab.panels.entry import Entry
    from labkit.lab.panels.model import Panel

__all__ = ["html_table", "in_every_run", "prediction_words", "rows", "text_table"]


def rows(panel: Panel) -> list[list[str]]:
    """The table's cells, the first row being its heading; nothing before the first run."""
    if not panel.history:
        return []
    labels = list(dict.fromkeys(label for e in panel.history for label in e.result.labels))
    differing = _differing(panel)
    found = [["run", "what differed", "measured", "n", *labels, "predicted", "how far off"]]
    for count, entry in enumerate(panel.history, 1):
        settings = ", ".join(_setting_words(panel, entry, name) for name in differing)
        found.append(
            [
                str(count),
                settings or "nothing",
                entry.result.quantity,
                str(min(len(values) for values in entry.result.repeats.values())),
                *[_median_words(entry, label) for label in labels],
                prediction_words(entry.prediction) or "nothing",
                entry.verdict or "–",
            ]
        )
    return found


def in_every_run(panel: Panel) -> str:
    """The settings that are the same in all runs, in words."""
    differing, first = _differing(panel), panel.history[0]
    same = [name for name in first.settings if name not in differing]
    return ", ".join(_setting_words(panel, first, name) for name in same)


def _differing(panel: Panel) -> list[str]:
    """The arguments that are not the same in all runs."""
    names = dict.fromkeys(name for entry in panel.history for name in entry.settings)
    return [
        name
        for name in names
        if len({repr(entry.settings.get(name)) for entry in panel.history}) > 1
    ]


def _setting_words(panel: Panel, entry: Entry, name: str) -> str:
    value: Any = entry.settings.get(name)
    for control in panel.controls:
        if control.argument == name:
            return f"{control.label}: {control.words(value)}"
    return f"{name}: {value!r}" if name in entry.settings else f"{name}: not given"


def _median_words(entry: Entry, label: str) -> str:
    if label not in entry.result.repeats:
        return "–"
    return f"{number(entry.result.median(label))} {entry.result.unit}"


def prediction_words(prediction: Prediction | None) -> str:
    """What was expected, in a few words; "" if nothing was."""
    if prediction is None:
        return ""
    if prediction.factor is None:
        return f"{prediction.fastest} least"
    return f"{prediction.fastest} least, the greatest {prediction.factor:g} times that"


def text_table(panel: Panel) -> str:
    """The runs as text, a block of lines each."""
    heading, *runs = rows(panel)
    lines = [f"in every run: {in_every_run(panel)}"]
    for count, *cells in runs:
        lines.append(f"run {count}")
        lines += [f"  {name}: {cell}" for name, cell in zip(heading[1:], cells, strict=True)]
    return "\n".join(lines)


def html_table(panel: Panel) -> str:
    """The runs as an HTML table; "" before the first."""
    if not panel.history:
        return ""
    heading, *runs = rows(panel)
    style = 'style="text-align: left; padding: 2px 12px 2px 0"'
    head = "".join(f'<th scope="col" {style}>{escape(h)}</th>' for h in heading)
    body = "".join(
        "<tr>"
        + f'<th scope="row">{escape(run[0])}</th>'
        + "".join(f"<td {style}>{escape(cell)}</td>" for cell in run[1:])
        + "</tr>"
        for run in runs
    )
    return (
        '<div style="overflow-x: auto"><table><caption style="text-align: left">All runs: medians '
        f"of n repeats. The same in all: {escape(in_every_run(panel)) or 'nothing'}.</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
