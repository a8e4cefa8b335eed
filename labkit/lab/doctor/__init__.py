"""`python -m labkit doctor`: what this machine has, what that means for loading, what to change.

Before it: `system`, `loading` and `accelerator`, which word the numbers of `limits` and `link`.
After it: the learner, and `experiments`, which asks `sizes` how large it may be.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from labkit.lab import MissingPackage
from labkit.lab.doctor import accelerator, loading, system
from labkit.lab.doctor.findings import Finding, Findings
from labkit.lab.doctor.limits import read_limits
from labkit.lab.doctor.sizing import Sizes, sizes_for

__all__ = ["Finding", "Findings", "Sizes", "examine", "main", "sizes"]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns the exit code: 0, or 2 if a package is missing."""
    parser = argparse.ArgumentParser(
        prog="python -m labkit doctor",
        description="Say what this machine has (cores, memory, shared memory, open files, start "
        "methods, sharing strategies, accelerator), what that means for loading data, and what to "
        "change.",
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parsed = parser.parse_args(arguments)
    try:
        findings = examine()
    except MissingPackage as error:
        print(error, file=sys.stderr)
        return 2
    found = sizes(findings)
    if parsed.json:
        print(json.dumps({**findings.to_dict(), "sizes": found.to_dict()}, indent=1))
    else:
        print(f"{findings}\n{found}")
    return 0


def sizes(findings: Findings | None = None) -> Sizes:
    """How large the lab's experiments are on this machine; `sizes_for` has the rules.

    Args:
        findings: what `examine` found; None to read the limits now, which takes milliseconds.
    """
    return sizes_for(read_limits() if findings is None else findings.limits)


def examine(root: Path = Path("/")) -> Findings:
    """Look at this machine; takes half a second, or some seconds where there is an accelerator.

    Args:
        root: where `/proc`, `/sys` and `/dev` are looked for.

    Raises:
        MissingPackage: psutil is not installed.
    """
    limits = read_limits(root)
    device, problem = accelerator.device_or_problem()
    findings = (
        system.cores(limits),
        system.memory(limits),
        system.shared_memory(limits),
        system.open_files(limits),
        loading.start_methods(),
        loading.sharing_strategies(),
        loading.torch_threads(limits),
        accelerator.device(device, problem),
        accelerator.link(device),
        system.load(),
    )
    return Findings(findings, limits)
