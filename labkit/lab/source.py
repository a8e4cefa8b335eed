"""Show the source of what runs, as it stands in the package now: `show(labkit.worker.worker_loop)`.

Before it: the notebooks, each of which is the home of some of the package's functions. The colours
are JupyterLab's own and follow its theme; elsewhere, bold and italic type have to do.
"""

from __future__ import annotations

import inspect
import sysconfig
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import labkit
from labkit.lab import need

__all__ = ["Source", "show"]

# Pygments' names for kinds of token, of which each stands for those that begin with it; a later one
# wins. JupyterLab's name for the colour; and a style that is there without JupyterLab, too.
_STYLES = (
    ("k", "keyword", "font-weight: bold"),
    ("n", "variable", ""),
    ("nb", "builtin", ""),
    ("nf", "def", "font-weight: bold"),
    ("nc", "def", "font-weight: bold"),
    ("nd", "meta", ""),
    ("s", "string", ""),
    ("sd", "string", "font-style: italic"),
    ("m", "number", ""),
    ("o", "operator", ""),
    ("ow", "operator", "font-weight: bold"),
    ("c", "comment", "font-style: italic"),
)
# Jupyter gives what is in a `pre` of an output the page's font, and no border.
_FRAME = (
    "pre.labkit-source {white-space: pre !important; overflow: auto; padding: 0.5em; "
    "font-family: var(--jp-code-font-family, monospace); "
    "border: 1px solid var(--jp-border-color1, currentColor)}\n"
)


def show(thing: Any) -> Source:
    """The source of a function, class, method or module.

    Raises:
        TypeError: it has none in Python, or it is an instance; says what to give instead.
    """
    if isinstance(thing, property):
        thing = thing.fget
    thing = inspect.unwrap(thing) if callable(thing) else thing
    try:
        lines, first = inspect.getsourcelines(thing)
        file = inspect.getsourcefile(thing) or ""
    except (TypeError, OSError) as error:
        raise TypeError(
            f"there is no Python source of {thing!r}: give `show` a function, a class, a method or "
            "a module that is written in Python."
        ) from error
    name = getattr(thing, "__qualname__", getattr(thing, "__name__", type(thing).__name__))
    return Source(name, "".join(lines), file, max(1, first))


@dataclass(frozen=True, repr=False)
class Source:
    """A piece of a program. A notebook shows it when it is a cell's last value.

    Attributes:
        name: of the function or class.
        code: its text.
        file: where it stands.
        line: its first line there, from 1.
    """

    name: str
    code: str
    file: str
    line: int

    @property
    def where(self) -> str:
        """File and line; the file as it is called in its package, in Python or in the checkout."""
        names = ("purelib", "platlib", "stdlib")  # the last one may hold the others
        installed = [Path(sysconfig.get_path(name)).resolve() for name in names]
        file = Path(self.file)
        for folder in (*installed, Path(labkit.__file__).resolve().parents[1]):
            if file.resolve().is_relative_to(folder):
                file = file.resolve().relative_to(folder)
                break
        return f"{file.as_posix()}, line {self.line}"

    def as_text(self) -> str:
        """The code, as it stands in the file."""
        return self.code

    __repr__ = as_text

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": self.as_text(), "text/html": self._html()}

    def _html(self) -> str:
        formatter = need("pygments.formatters", "Pygments").HtmlFormatter(nowrap=True)
        lexer = need("pygments.lexers", "Pygments").PythonLexer(stripnl=False)
        marked = need("pygments", "Pygments").highlight(self.code, lexer, formatter)
        return (
            f"<style>{_style()}</style>"
            f'<figure aria-label="Source of {escape(self.name)}" style="margin: 0">'
            f"<figcaption><code>{escape(self.name)}</code> in {escape(self.where)}</figcaption>"
            f'<pre class="labkit-source" tabindex="0">{marked}</pre></figure>'
        )


def _style() -> str:
    return _FRAME + "".join(
        f".labkit-source span[class^={kind}] "
        f"{{color: var(--jp-mirror-editor-{colour}-color, inherit); {style}}}\n"
        for kind, colour, style in _STYLES
    )
