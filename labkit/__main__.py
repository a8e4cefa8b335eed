"""The command line: `python -m labkit COMMAND`.

Each command is the `main(arguments)` of a module in `labkit.lab`, imported when it is asked for, so
that the loader itself never needs what the lab needs.
"""

from __future__ import annotations

import importlib
import sys

__all__ = ["main"]

_COMMANDS = {
    "advise": ("labkit.lab.advising.command", "say what holds your dataset's loading back"),
    "bench": ("labkit.lab.bench", "measure this loader and PyTorch's on this machine"),
    "doctor": ("labkit.lab.doctor", "say what this machine has, and what that means for loading"),
    "edition": ("labkit.lab.edition", "make a set of the notebooks for nbgrader"),
    "lab": ("labkit.lab.notebooks", "copy the notebooks of the course, or say where they are"),
    "record": ("labkit.lab.record", "measure on this machine's GPU, and keep that as JSON"),
}


def main(arguments: list[str] | None = None) -> int:
    """Run the command that the arguments name. Returns the exit code."""
    command, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if command in ("-h", "--help"):
        print(_help())
        return 0
    if command not in _COMMANDS:
        print(f"unknown command {command!r}\n\n{_help()}", file=sys.stderr)
        return 2
    exit_code: int = importlib.import_module(_COMMANDS[command][0]).main(rest)
    return exit_code


def _help() -> str:
    lines = [f"  {name:10}{about}" for name, (_, about) in _COMMANDS.items()]
    return "\n".join(
        ["usage: python -m labkit COMMAND [--help] …", "", "commands:", *lines],
    )


if __name__ == "__main__":
    sys.exit(main())
