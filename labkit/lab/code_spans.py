"""Plain text as HTML, its code marked, as Markdown does it.

So a sentence is written once, and reads well in a terminal and in a notebook. After it: reports,
quizzes, tables, panels and pictures.
"""

from __future__ import annotations

import re
from html import escape

__all__ = ["with_code"]


def with_code(text: str) -> str:
    """HTML of a plain text in which `this` is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
