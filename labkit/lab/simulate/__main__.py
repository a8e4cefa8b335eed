"""The simulation's commands: `python -m labkit.lab.simulate validate`, and `… fit`.

`validate` takes under six minutes, and ends with exit code 1 where the predictions are too far off.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from labkit.lab.simulate.images import FILE, measure_images
from labkit.lab.simulate.validation import markdown, validate

__all__ = ["main"]

_TABLE = Path(__file__).with_name("VALIDATION.md")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Returns the exit code."""
    parsed = _parse(arguments)
    warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than cores
    if parsed.command == "fit":
        costs = measure_images(parsed.seconds)
        parsed.out.write_text(costs.to_json())
        print(f"wrote {parsed.out}")
        return 0
    found = validate(parsed.seed, parsed.settings, parsed.repeats, parsed.seconds, tell=_tell)
    found.command = f"python -m labkit.lab.simulate validate --seed {parsed.seed}"
    parsed.out.write_text(markdown(found))
    print(f"{found.verdict}\nwrote {parsed.out}")
    return 0 if found.holds else 1


def _tell(text: str) -> None:
    print(text, file=sys.stderr)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m labkit.lab.simulate")
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("validate", help="predict settings, measure them, write a table")
    check.add_argument("--seed", type=int, default=0, help="of the draw; default: 0")
    check.add_argument("--settings", type=int, default=10, help="how many; default: 10")
    check.add_argument("--repeats", type=int, default=5, help="of each setting; default: 5")
    check.add_argument("--seconds", type=float, default=1.0, help="a repeat; default: 1")
    check.add_argument("--out", type=Path, default=_TABLE, help=f"default: {_TABLE.name}")
    fit = commands.add_parser("fit", help="measure the costs that the panel starts with")
    fit.add_argument("--seconds", type=float, default=9.0, help="in all; default: 9")
    fit.add_argument("--out", type=Path, default=FILE, help=f"default: {FILE.name}")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
