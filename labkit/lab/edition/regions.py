"""A stub with its solution put in, between the marks `### BEGIN SOLUTION` and `### END SOLUTION`.

A stub is its solution with lines left out (a test holds that), so what is missing can be found line
by line. Before it: the notebook's stub and its file of solutions. After it: `nbgrader`, whose tool
takes the marked lines out again for the learners.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence

__all__ = ["BEGIN", "END", "bound_names", "solved"]

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"


def solved(stub: str, solutions: str, known: Iterable[str]) -> str:
    """The stub's text with marked lines.

    Args:
        stub: the cell: functions and classes of which lines were left out, perhaps after imports.
        solutions: the file that has them whole.
        known: names that the notebook's earlier cells bind. What the solution imports besides is
            imported inside its region, so that the learner's edition does not give it away.

    Raises:
        ValueError: the stub is not its solution with lines left out.
    """
    whole = {node.name: node for node in ast.parse(solutions).body if isinstance(node, _DEFINES)}
    definitions = [node for node in ast.parse(stub).body if isinstance(node, _DEFINES)]
    imports = _imports(solutions, {*known, *bound_names(stub)})
    lines, text, done = stub.splitlines(), [], 0
    for node in definitions:
        if node.name not in whole:
            raise ValueError(f"the solutions do not define {node.name}")
        text += lines[done : node.lineno - 1]
        theirs = solutions.splitlines()[whole[node.name].lineno - 1 : whole[node.name].end_lineno]
        text += _merged(lines[node.lineno - 1 : node.end_lineno], theirs, imports)
        done = node.end_lineno or 0
    return "\n".join([*text, *lines[done:]])


_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def bound_names(source: str) -> set[str]:
    """What a cell's top level imports, defines or assigns."""
    names: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, _DEFINES):
            names.add(node.name)
        for part in ast.walk(node):
            if isinstance(part, (ast.Import, ast.ImportFrom)):
                names |= {(name.asname or name.name).partition(".")[0] for name in part.names}
            elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                names.add(part.id)
    return names


def _imports(solutions: str, known: set[str]) -> dict[str, str]:
    """The import statements of the solutions that bind a name which is not known, by that name."""
    found = {}
    for node in ast.parse(solutions).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for name in node.names:
                bound = (name.asname or name.name).partition(".")[0]
                alone = ast.Import([name])
                if isinstance(node, ast.ImportFrom):
                    alone = ast.ImportFrom(node.module, [name], node.level)  # type: ignore[assignment]
                if bound not in known:
                    found[bound] = ast.unparse(alone)
    return found


def _merged(stub: Sequence[str], whole: Sequence[str], imports: dict[str, str]) -> list[str]:
    """The solution's lines, those that the stub lacks between marks."""
    text: list[str] = []
    missing: list[str] = []
    rest = [line for line in stub if line.strip()]
    for line in whole:
        if rest and line.rstrip() == rest[0].rstrip():
            text += [*_region(missing, imports), rest.pop(0)]
            missing = []
        elif line.strip() or missing:
            missing.append(line)
        else:
            text.append(line)
    if rest:
        raise ValueError(f"this line of a stub is not in its solution: {rest[0]!r}")
    return [*text, *_region(missing, imports)]


def _region(missing: list[str], imports: dict[str, str]) -> list[str]:
    """Marked lines, with the imports that they need first; empty lines at the end stay outside."""
    lines = list(missing)
    after = []
    while lines and not lines[-1].strip():
        after.append(lines.pop())
    if not lines:
        return after
    indent = re.match(r"\s*", lines[0])[0]  # type: ignore[index]
    names = set(re.findall(r"[A-Za-z_]\w*", "\n".join(lines)))
    needed = [statement for name, statement in imports.items() if name in names]
    if lines[0].lstrip().startswith("def "):  # a method's names are not looked for in its class
        inside = [f"{indent}    {statement}" for statement in needed]
        return [indent + BEGIN, lines[0], *inside, *lines[1:], indent + END, *after]
    return [indent + BEGIN, *(indent + line for line in needed), *lines, indent + END, *after]
