"""The HTML of a panel: a run's figure with its sentences and numbers, a recording, a progress bar.

Before it: `entry`, `beside`. After it: `view`, which puts it into widgets.
"""

from __future__ import annotations

from html import escape

from labkit.lab.code_spans import with_code
from labkit.lab.explain.wording import number
from labkit.lab.panels.beside import Beside
from labkit.lab.panels.entry import Entry
from labkit.lab.plots import alt_text, figure, themed
from labkit.lab.results import Result

__all__ = ["progress_bar", "recorded_html", "run_html", "text_block"]


def text_block(html: str) -> str:
    """With its lines as close as a text's; ipywidgets sets them as far apart as buttons."""
    return f'<div style="line-height: 1.4">{html}</div>'


def progress_bar(done: int, total: int, text: str) -> str:
    """How far a run is, drawn and in words."""
    said = f"{done} of {total}: {escape(text)}"
    return (
        f'<label>{said}<br><progress max="{total}" value="{done}" style="width: 330px">{said}'
        "</progress></label>"
    )


def run_html(entry: Entry) -> str:
    """Figure, sentences, and the figure's numbers as a table; with what was recorded."""
    shown = entry.result, entry.prediction
    picture = themed(
        lambda dark: figure(*shown, dark, entry.recorded), alt_text(*shown, entry.recorded)
    )
    words = entry.beside.words if entry.beside is not None else ""
    tables = _numbers(entry.result, "The numbers")
    if entry.recorded is not None:
        tables += _numbers(entry.recorded, "The numbers recorded")
    return _figure(picture, entry.sentence, entry.verdict, words) + tables


def recorded_html(beside: Beside) -> str:
    """What was recorded, alone; or the words that say that nothing was."""
    result = beside.result
    if result is None:
        return f"<p>{with_code(beside.words)}</p>"
    picture = themed(lambda dark: figure(result, None, dark), alt_text(result))
    heading = "<strong>Recorded on another machine</strong>"
    return heading + _figure(picture, beside.words) + _numbers(result, "The numbers recorded")


def _figure(picture: str, *sentences: str) -> str:
    said = "".join(f"<p>{with_code(text)}</p>" for text in sentences if text)
    return f'<figure style="margin: 0">{picture}<figcaption>{said}</figcaption></figure>'


def _numbers(result: Result, summary: str) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(label)}</th><td>{number(result.median(label))}</td>'
        f"<td>{', '.join(map(number, values))}</td></tr>"
        for label, values in result.repeats.items()
    )
    return (
        f"<details><summary>{summary}</summary><table><thead><tr><th scope='col'>setting</th>"
        f"<th scope='col'>median, {escape(result.unit)}</th><th scope='col'>every repeat</th></tr>"
        f"</thead><tbody>{rows}</tbody></table></details>"
    )
