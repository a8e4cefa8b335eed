"""`python -m labkit advise module:dataset`: what to change about a dataset's loader.

Before it: the package. The module is imported in a process of its own, with the current folder in
Python's path.
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from labkit.lab import MissingPackage, need
from labkit.lab.advising import SECONDS, Advice, NoAdvice, find_out
from labkit.lab.advising.named import load, made
from labkit.lab.advising.subject import Subject, subject_of

__all__ = ["main"]

_INTERRUPTED = 130  # 128 + SIGINT, as shells have it
_EXAMPLE = """\
examples:
  python -m labkit advise train.py:dataset
  python -m labkit advise my.package.data:make_dataset --batch-size 64 --step-seconds 0.12
  python -m labkit advise train.py:loader --html report.html"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns the exit code: 0; 1 if there is no advice; 2 if a package is missing or
    a file cannot be written; 130 after Ctrl-C.
    """
    parsed = _parse(arguments)
    so_far: list[Advice] = []
    try:
        with _bar() as progress:
            advice = find_out(
                functools.partial(
                    _subject, parsed.object, parsed.collate, parsed.batch_size, os.getcwd()
                ),
                forks=True,
                step_seconds=parsed.step_seconds,
                seconds=parsed.seconds,
                memory_bytes=_bytes(parsed.memory_mb),
                device=parsed.device,
                progress=progress,
                so_far=so_far.append,
            )
    except MissingPackage as error:
        print(error, file=sys.stderr)
        return 2
    except NoAdvice as error:
        print(f"No advice: {error}", file=sys.stderr)
        return _cut_short(so_far, "It came to an early end.", parsed.html, 1)
    except KeyboardInterrupt:
        if not so_far:
            print("Interrupted before anything was found.", file=sys.stderr)
        return _cut_short(so_far, "Interrupted.", parsed.html, _INTERRUPTED)
    return _told(advice, parsed.html, 0)


def _bytes(megabytes: float | None) -> int | None:
    if megabytes is not None and not math.isfinite(megabytes):
        raise NoAdvice(f"--memory-mb is a number above 0, but got {megabytes!r}")
    return None if megabytes is None else int(megabytes * 1e6)


def _cut_short(so_far: list[Advice], why: str, html: Path | None, code: int) -> int:
    """Tell what was found until then."""
    if not so_far:
        return code
    so_far[-1].findings.stopped = why
    return _told(so_far[-1], html, code)


def _told(advice: Advice, html: Path | None, code: int) -> int:
    print(advice.as_text())
    if html is not None:
        try:
            advice.save(html)
        except (OSError, MissingPackage) as error:
            print(f"The report could not be written: {error}", file=sys.stderr)
            return 2
        print(f"\nThe report with figures is in {html}.")
    return code


def _subject(name: str, collate: str | None, batch_size: int | None, folder: str) -> Subject:
    """In the process that loads."""
    os.chdir(folder)
    collate_fn = None if collate is None else load(collate, "function")
    return subject_of(made(load(name), name), collate_fn, batch_size)


@contextmanager
def _bar() -> Iterator[Any]:
    tqdm = need("tqdm").tqdm
    tqdm.monitor_interval = 0  # no thread in a process that may fork
    tqdm.set_lock(threading.RLock())  # and no semaphore that stays with the process
    form = "{percentage:3.0f}%|{bar:24}| {elapsed} {desc}"
    with tqdm(total=1000, file=sys.stderr, bar_format=form, leave=False) as bar:

        def progress(part: float, text: str) -> None:
            bar.set_description_str(text, refresh=False)
            bar.n = max(bar.n, round(1000 * part))
            bar.refresh()

        yield progress


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m labkit advise",
        description="Say which layer holds the loading of your dataset back, and which of a "
        "loader's arguments to change. What it advises it has measured on this machine before. "
        "Ctrl-C ends it and tells what was found until then.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "object",
        metavar="module:dataset",
        help="a dataset, a DataLoader, or a function without arguments that returns one: "
        "module:name, or file.py:name",
    )
    parser.add_argument(
        "--collate", metavar="module:function", help="makes a batch of a list of samples"
    )
    parser.add_argument(
        "--batch-size", type=int, metavar="N", help="of a bare dataset; default: 32"
    )
    parser.add_argument(
        "--step-seconds",
        type=float,
        default=0.0,
        metavar="S",
        help="that your training step takes for a batch; default: 0, only loading is looked at",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        metavar="S",
        help=f"for all of it, about; default: {SECONDS:g}",
    )
    parser.add_argument(
        "--memory-mb",
        type=float,
        metavar="MB",
        help="that all batches alive at once may take; default: a quarter of what is available",
    )
    parser.add_argument(
        "--device",
        help='where batches are wanted: "cuda", "cpu", "simulated"; default: the accelerator, if '
        "there is one",
    )
    parser.add_argument(
        "--html", type=Path, metavar="report.html", help="also write a report with figures"
    )
    return parser.parse_args(arguments)
