"""Is the simulation right? Settings that this machine can run, predicted, then measured.

    python -m labkit.lab.simulate validate --out VALIDATION.md

Before it: `labkit.lab.simulate`. After it: its `VALIDATION.md`, which is one run of this.
"""

from __future__ import annotations

from labkit.lab.simulate.validation.table import markdown
from labkit.lab.simulate.validation.validating import Row, Validation, validate
from labkit.lab.simulate.validation.workloads import WORKLOADS, Case, Workload, draw

__all__ = ["WORKLOADS", "Case", "Row", "Validation", "Workload", "draw", "markdown", "validate"]
