"""Run notebooks from top to bottom and store them so that a diff shows what changed.

python -m scripts.execute_notebooks [NOTEBOOK ...]      (default: all in notebooks/)
"""

import argparse
import asyncio
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
CELL_TIMEOUT = 120  # seconds, as for nbval in pyproject.toml

KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
WIDGET = "application/vnd.jupyter.widget-view+json"
CELL_METADATA = ("tags", "jupyter", "slideshow")  # what an author sets on purpose


def all_notebooks() -> list[Path]:
    """Return the paths of the course's notebooks, in their order."""
    return sorted(NOTEBOOKS.glob("*.ipynb"))


def execute(path: Path) -> NotebookNode:
    """Run a notebook in a new kernel, in its own folder, and return it with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT,
        kernel_name=KERNEL["name"],
        coalesce_streams=True,
        record_timing=False,
        resources={"metadata": {"path": str(path.parent)}},
    )
    return asyncio.run(client.async_execute())  # closes its event loop, unlike execute()


def normalise(notebook: NotebookNode) -> NotebookNode:
    """Drop what differs between machines and editors: widgets, versions, view settings.

    Of a widget without a kernel JupyterLab says only "model not found"; what else the output has
    (a figure, HTML) it shows if there is no widget.
    """
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    )
    for cell in notebook.cells:
        kept = {key: cell.metadata[key] for key in CELL_METADATA if key in cell.metadata}
        cell.metadata = nbformat.from_dict(kept)
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(WIDGET, None)
    return notebook


def to_text(notebook: NotebookNode) -> str:
    """Return the text that is stored in the repository."""
    return nbformat.writes(notebook).rstrip("\n") + "\n"


def main() -> None:
    """Execute the notebooks that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path, default=all_notebooks())
    for path in parser.parse_args().notebooks:
        start = time.perf_counter()
        path.write_text(to_text(normalise(execute(path))), encoding="utf-8")
        print(f"{path.name}: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
