"""Advice as HTML: its sentences; and a page that stands alone, with figures for light and dark and
every number.

Before it: `wording`, `findings`. After it: `advice`, and a browser.
"""

from __future__ import annotations

import base64
from html import escape
from typing import TYPE_CHECKING, Any

from labkit.lab.advising.findings import Findings
from labkit.lab.advising.wording import sections
from labkit.lab.explain.wording import machine_words, number
from labkit.lab.plots.pictures import css_width, png
from labkit.lab.results import Result

if TYPE_CHECKING:
    from labkit.lab.advising.advice import Advice

__all__ = ["page", "sections_html"]

_STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1a1a1a; --line: #8c8c8c; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #111111; --ink: #f2f2f2; }
}
body { background: var(--paper); color: var(--ink); font: 16px/1.5 sans-serif;
  max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }
pre { border: 1px solid var(--line); padding: 0.6rem; white-space: pre-wrap; }
figure { margin: 1.5rem 0; } img { max-width: 100%; height: auto; }
table { border-collapse: collapse; } th, td { border-bottom: 1px solid var(--line);
  padding: 0.2rem 0.8rem 0.2rem 0; text-align: left; vertical-align: top; }
"""


def page(advice: Advice) -> str:
    """The page."""
    findings = advice.findings
    title = escape(f"Advice for loading {findings.name}")
    figures = "".join(_figure(picture) for picture in advice.pictures())
    numbers = "".join(_numbers(result) for result in advice.results.values())
    machine, date = machine_words(findings.machine), str(findings.machine.get("date", ""))
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head>\n<body><main>"
        f"<h1>{title}</h1><p>{escape(machine)}. Measured {escape(date)}.</p>"
        f"{sections_html(findings, 2)}<h2>Figures</h2>{figures}"
        f"<h2>The numbers</h2>{numbers}</main></body></html>\n"
    )


def sections_html(findings: Findings, level: int = 4) -> str:
    """The sentences under their headings, as HTML."""
    found = []
    if findings.stopped:
        found.append(f"<p><strong>{escape(findings.stopped)} This is what was found.</strong></p>")
    for heading, sentences in sections(findings):
        found.append(f"<h{level}>{escape(heading)}</h{level}>")
        if heading == "Write":
            code = escape("\n".join(sentences))
            found.append(f'<pre style="white-space: pre-wrap"><code>{code}</code></pre>')
        else:
            items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
            found.append(f"<ul>{items}</ul>")
    return "".join(found)


def _figure(picture: Any) -> str:
    light, dark = picture.draw(False), picture.draw(True)
    said = f"<figcaption>{escape(picture.sentence)}</figcaption>" if picture.sentence else ""
    return (
        f'<figure><picture><source media="(prefers-color-scheme: dark)" srcset="{_data(dark)}">'
        f'<img alt="{escape(picture.alt)}" width="{css_width(light)}" src="{_data(light)}">'
        f"</picture>{said}</figure>\n"
    )


def _data(figure: Any) -> str:
    return f"data:image/png;base64,{base64.b64encode(png(figure)).decode()}"


def _numbers(result: Result) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(label)}</th><td>{number(result.median(label))}</td>'
        f"<td>{', '.join(map(number, values))}</td></tr>"
        for label, values in result.repeats.items()
    )
    return (
        f"<details><summary>{escape(result.question)}</summary><table><thead><tr>"
        f'<th scope="col">setting</th><th scope="col">median, {escape(result.unit)}</th>'
        f'<th scope="col">every repeat</th></tr></thead><tbody>{rows}</tbody></table></details>'
    )
