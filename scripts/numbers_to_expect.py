"""Write `notebooks/NUMBERS.md`: what to expect of the figures, and of a server for a class.

python -m scripts.numbers_to_expect

Everything on that page comes from here: medians from the notebooks' stored outputs, each with its
machine; predictions for other numbers of cores from `labkit.lab.simulate`; recordings from
`labkit/lab/recorded/`; memory and processor time from `scripts/learner_needs.json`, which
`scripts.learner_needs` wrote. `make notebooks` runs it.
"""

import html
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat

from labkit.lab.explain.wording import machine_words, number
from labkit.lab.recorded import FOLDER as RECORDED
from labkit.lab.simulate import predict
from labkit.lab.simulate.images import images
from scripts.execute_notebooks import NOTEBOOKS, all_notebooks
from scripts.learner_needs import NEEDS, SERVER

PAGE = NOTEBOOKS / "NUMBERS.md"
HEAD = """\
# Numbers to expect

This page is written by `python -m scripts.numbers_to_expect`, out of what notebooks and commands
have measured; nothing on it is typed. Your machine will give others. What should agree is the order
of the settings, where the notebook does not say that it depends on the machine.
"""
DOTS = re.compile(r"(?P<question>.+?) Dot plot of (?P<quantity>.+?)(?: in (?P<unit>[^,]+))?, ")
ROW = re.compile(r"(?<=\. )([^.]+?(?:\.\w[^.]*?)*): median (\S+(?: [^,]+)?),")
CORES, WORKERS = (1, 2, 8), (0, 1, 2, 8)


CLASS = """\
## For a class on one server

Each notebook from top to bottom with {limits}{cut}, on {machine}. JupyterLab's server by itself
took {server}.

| notebook | most memory | processor time | time |
|---|---|---|---|
{rows}

- **Memory:** a limit of {limit} a learner holds the largest notebook with one kernel, and the
  server ({most} together); as a guarantee {guarantee}, what the notebook in the middle takes. Ask
  learners to shut kernels down that they have done with.
- **Processor:** a notebook keeps a core busy while its cells run, and hardly any while people read.
  With a limit of 2 cores a learner two workers can work side by side. Where all press Run together,
  count a core for each of them, or figures take longer and intervals become wide."""


@dataclass(frozen=True)
class Figure:
    """What a stored figure of a comparison says: each setting with its median."""

    notebook: str
    question: str
    rows: tuple[tuple[str, str], ...]
    machine: str


def figures() -> list[Figure]:
    """The comparisons in all stored notebooks, each once, in the order in which they are shown."""
    read_ones = [read(path.stem, alt) for path in all_notebooks() for alt in alt_texts(path)]
    return list(dict.fromkeys(figure for figure in read_ones if figure is not None))


def alt_texts(path: Path) -> Iterator[str]:
    """Of the figures in a notebook's outputs."""
    for cell in nbformat.read(path, as_version=4).cells:
        for output in cell.get("outputs", []):
            shown = re.search(r'<img alt="([^"]*)"', output.get("data", {}).get("text/html", ""))
            if shown:
                yield html.unescape(shown[1])


def read(notebook: str, alt: str) -> Figure | None:
    """What an alt text says, if it is that of a comparison."""
    begun = DOTS.match(alt)
    machine = re.search(r"((?:Measured here|Simulated) on .+)$", alt)
    if not begun or not machine:
        return None
    rows = tuple((label, median) for label, median in ROW.findall(alt[begun.end() :]))
    return Figure(notebook, begun["question"], rows, machine[1].rstrip("."))


def measured_section() -> str:
    """A table for each machine that the stored figures are from."""
    by_machine: dict[str, list[Figure]] = {}
    for figure in figures():
        by_machine.setdefault(figure.machine, []).append(figure)
    parts = ["## On the machine where the notebooks were stored"]
    for machine, its in by_machine.items():
        rows = [
            f"| {one.notebook[:2]} | {one.question} | "
            + "; ".join(f"{label}: {median}" for label, median in one.rows)
            + " |"
            for one in its
        ]
        parts.append(f"**{machine}.**")
        parts.append("| notebook | question | medians |\n|---|---|---|\n" + "\n".join(rows))
    return "\n\n".join(parts)


def predicted_section() -> str:
    """The lab's images on 1, 2 and 8 cores, as the simulation has it."""
    costs = images()
    heading = "| cores | " + " | ".join(f"workers: {n}" for n in WORKERS) + " |"
    rows = []
    for cores in CORES:
        rates = [
            predict(costs, cores=cores, num_workers=n, step_seconds=0.005).samples_per_second
            for n in WORKERS
        ]
        rows.append(f"| {cores} | " + " | ".join(number(rate) for rate in rates) + " |")
    table = "\n".join([heading, "|---" * (1 + len(WORKERS)) + "|", *rows])
    return (
        "## On 1, 2 and 8 cores\n\n"
        "Predicted, not measured: samples a second of the lab's images with a step of 5 ms a "
        f"batch of {costs.batch_size}, simulated (`labkit.lab.simulate`) with costs recorded on "
        f"{machine_words(costs.machine)}.\n\n{table}\n\n"
        "What else is said in the [teaching notes](TEACHING.md) of 1 and 8 cores is reasoned where "
        "it says so."
    )


def recorded_section() -> str:
    """What the package has of a GPU."""
    folders = sorted(index.parent.name for index in RECORDED.glob("*/index.json"))
    said = (
        "Recordings: " + ", ".join(f"`labkit/lab/recorded/{name}`" for name in folders) + ". The "
        "panels of notebooks 08 and 09 show them beside what they measure."
        if folders
        else "There is no recording of a GPU yet, so there are no numbers to expect of one: "
        "notebooks 08 and 09 run on the simulated device, and say so. "
        "`python -m labkit record --out FOLDER` makes one."
    )
    return f"## On a recorded GPU\n\n{said}"


def needs_section() -> str:
    """What a learner takes of a server, and what follows for a class."""
    kept = json.loads(NEEDS.read_text())
    needs, server = dict(kept["needs"]), kept["needs"][SERVER]
    del needs[SERVER]
    rows = [
        f"| {name[:2]} | {need['peak_bytes'] / 1e6:,.0f} MB | {need['cpu_seconds']:,.0f} s | "
        f"{need['seconds']:,.0f} s |"
        for name, need in needs.items()
    ]
    most = max(need["peak_bytes"] for need in needs.values()) + server["peak_bytes"]
    usual = sorted(need["peak_bytes"] for need in needs.values())[len(needs) // 2]
    limit, guarantee = rounded_up(most, 2**29), rounded_up(usual + server["peak_bytes"], 2**28)
    short = kept["measure_seconds"]
    return CLASS.format(
        limits=kept["limits"],
        cut=f", measurements cut short to {short} s each" if short else ", measured in full",
        machine=machine_words(kept["machine"]),
        server=f"{server['peak_bytes'] / 1e6:,.0f} MB",
        rows="\n".join(rows),
        most=f"{most / 1e6:,.0f} MB",
        limit=limit,
        guarantee=guarantee,
    )


def rounded_up(size: float, step: int) -> str:
    """In GiB, up to the next step."""
    return f"{math.ceil(size / step) * step / 2**30:g} GiB"


def page() -> str:
    """All of it."""
    sections = [HEAD.rstrip(), measured_section(), predicted_section(), recorded_section()]
    return "\n\n".join([*sections, needs_section()]) + "\n"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
