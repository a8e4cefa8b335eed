"""Findings as an investigation leaves them, without one."""

from labkit.lab.advising.findings import Findings, Probe, Trial
from labkit.lab.advising.setting import Setting
from labkit.lab.results import Result
from tests.lab.advising.test_layers import traced

YOURS = Setting()
TWO = Setting(num_workers=2)
FOUR = Setting(num_workers=4)


def result(repeats: int = 8, **medians: float) -> Result:
    """Repeats that spread by some percent around these medians, in ms."""
    found = {
        label: tuple(median * (1 + i % (3 + place) / 100) for i in range(repeats))
        for place, (label, median) in enumerate(medians.items())
    }
    return Result("How long does a batch take?", "time a batch", "ms", found)


def trial(about: str = "workers", ours: float = 5.0, repeats: int = 8, **others) -> Trial:
    compared = {"your setting": 10.0, "num_workers=2": ours}
    found = result(repeats, **compared)
    chosen = "num_workers=2" if ours < 9 and repeats > 5 else "your setting"
    settings = {"your setting": YOURS, "num_workers=2": TWO, "num_workers=4": FOUR}
    return Trial(about, found, "your setting", settings, chosen, **others)


def findings(**changes) -> Findings:
    fields = {
        "name": "Images",
        "samples": 2000,
        "is_bare": True,
        "probe": Probe(1_500_000, 32, 0.002, 0.1, 0.0, 0.0, 63, ("tensor (32, 9) float32",)),
        "traced": traced(fetch=0.01, collate=0.001),
        "trials": {"workers": trial()},
        "advised": TWO,
        "lines": {TWO: "labkit.DataLoader(dataset, num_workers=2)"},
        "limits": ["More than 2 workers were not tried: this machine has 2 cores."],
    }
    return Findings(**{**fields, **changes})
