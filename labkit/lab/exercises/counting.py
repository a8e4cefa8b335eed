"""Count how often a module is imported, in a program with a small loader.

The dataset's class stands in a module that prints when it is imported; the program has no file, as
a notebook has none. Its loader has what matters here, workers to which the dataset is sent, and
does without torch, whose import would take seconds a worker. After it: exercise 02.print_count.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
from functools import cache
from pathlib import Path

from labkit.lab.child import output_of

__all__ = ["LINE", "SQUARES", "Setting", "counted_prints"]

Setting = tuple[str, int, int]
"""(start method, workers, batches)."""

LINE = "importing squares"
SQUARES = f"""
print({LINE!r}, flush=True)

class Squares:
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return index * index
"""
_LOADER = """
import multiprocessing

def load(dataset, method, workers):
    if not workers:
        return [dataset[index] for index in range(len(dataset))]
    context = multiprocessing.get_context(method)
    tasks = [context.SimpleQueue() for _ in range(workers)]
    results = context.SimpleQueue()
    processes = [context.Process(target=work, args=(dataset, mine, results)) for mine in tasks]
    for process in processes:
        process.start()
    for index in range(len(dataset)):
        tasks[index % workers].put(index)
    batches = [results.get() for _ in range(len(dataset))]
    for mine in tasks:
        mine.put(None)
    for process in processes:
        process.join()
    return batches

def work(dataset, tasks, results):
    while (index := tasks.get()) is not None:
        results.put(dataset[index])
"""
_LOADING = "loading"  # is printed before each setting, and at the end
_PROGRAM = f"""
import sys
sys.path.insert(0, {{folder!r}})
from small_loader import load
from squares import Squares
for method, workers, batches in {{settings!r}}:
    print({_LOADING!r}, flush=True)
    load(Squares(batches), method, workers)
print({_LOADING!r}, flush=True)
"""


@cache
def counted_prints(settings: tuple[Setting, ...]) -> dict[Setting, int]:
    """How often the line appears in all, for each setting whose start method there is here.

    Counted once in the life of this process. A batch is one sample.
    """
    methods = multiprocessing.get_all_start_methods()
    possible = [setting for setting in settings if setting[0] in methods]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "squares.py").write_text(SQUARES)
        Path(folder, "small_loader.py").write_text(_LOADER)
        program = _PROGRAM.format(folder=folder, settings=possible)
        printed = output_of([sys.executable, "-c", program])
    # Not line by line: what two workers print at the same time may come in one line.
    by_main, *by_workers = [part.count(LINE) for part in printed.split(_LOADING)]
    return {s: by_main + n for s, n in zip(possible, by_workers[:-1], strict=True)}
