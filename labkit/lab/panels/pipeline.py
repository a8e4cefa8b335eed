"""The panel of notebook 10: a pipeline with all its toggles, beside one as people first write it.

Before it: `labkit.lab.experiments.pipeline`, which it runs; `model`. After it: the package.
"""

from __future__ import annotations

import functools

from labkit.lab import need
from labkit.lab.experiments.comparisons import COMPARISONS
from labkit.lab.experiments.pipeline import LIMIT, QUANTITIES, WAS, YOURS, tuned
from labkit.lab.experiments.setting import LOADERS
from labkit.lab.image_samples import COLLATES, DECODINGS, PIXELS
from labkit.lab.panels.model import Control, Panel
from labkit.lab.pipeline import COPIES

__all__ = ["pipeline"]


def pipeline(folder: str | None = None) -> Panel:
    """What each setting of a real pipeline brings, until the device is busy.

    Args:
        folder: of images (`labkit.lab.image_folder.make`); None for one that is made here.
    """
    counts = {str(n): n for n in (0, 1, 2, 4)}
    methods = COMPARISONS["start_method"].options()
    strategies = {"the loader's default": None}
    strategies |= {name: name for name in COMPARISONS["sharing_strategy"].options()}
    return Panel(
        "Tune a pipeline",
        functools.partial(tuned, folder=folder),
        labels=[WAS, YOURS, LIMIT],
        controls=[
            _of("quantity", "Measure", QUANTITIES),
            _of("decoding", "Decoding", DECODINGS),
            _of("pixels", "A sample's pixels", PIXELS),
            Control("workers", "Workers", counts, 0),
            _of("start_method", "Start method", methods),
            Control("persistent_workers", "Persistent workers", {"no": False, "yes": True}, False),
            Control("prefetch_factor", "Prefetch factor", {str(n): n for n in (1, 2, 4)}, 2),
            _of("collate", "Collate", list(COLLATES)),
            Control("sharing_strategy", "Sharing strategy", strategies, None),
            _of("copies", "Copies to the device", list(COPIES)),
            _of("loader", "Loader", list(LOADERS)),
            Control("step_ms", "Step", {f"{n:g} ms": n for n in (2.0, 5.0, 20.0)}, 5.0),
        ],
        widgets=lambda shown: need("labkit.lab.panels.view", "ipywidgets").show(shown),
    )


def _of(argument: str, label: str, names: list[str] | tuple[str, ...]) -> Control:
    return Control(argument, label, {name: name for name in names}, names[0])
