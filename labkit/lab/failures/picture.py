"""After how long each failure was told, both loaders, drawn.

Before it: `outcome`. After it: `plots.bars`, which draws the times, and `plots.pictures`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from labkit.lab.explain.wording import number
from labkit.lab.failures.outcome import Beside, Outcome
from labkit.lab.plots import bars
from labkit.lab.plots.pictures import Picture

__all__ = ["alt", "sentence", "show"]

_KINDS = {"PyTorch": bars.HATCHED, "labkit": bars.PLAIN}


def show(*pairs: Beside) -> Picture:
    """The picture, with a sentence under it, for a notebook cell to end in."""
    return Picture(
        draw=partial(
            bars.draw,
            "After how long it was told",
            {pair.failure: [_bar(outcome) for outcome in pair.outcomes] for pair in pairs},
            _KINDS,
            "s since the failure",
        ),
        alt=alt(pairs),
        title="Figure: after how long each failure was told",
        sentence=sentence(pairs),
    )


def alt(pairs: Sequence[Beside]) -> str:
    """Each bar in words, and then the sentence."""
    parts = ["Bars over the seconds from each failure until it was told, by loader."]
    for pair in pairs:
        sides = ", ".join(f"{outcome.package} {_words(outcome)}" for outcome in pair.outcomes)
        parts.append(f"{pair.failure[:1].upper()}{pair.failure[1:]}: {sides}.")
    return " ".join([*parts, sentence(pairs)])


def sentence(pairs: Sequence[Beside]) -> str:
    """How many each loader had not told when it was given up, and who told the others first."""
    pytorch = sum(not pair.pytorch.is_over for pair in pairs) or "none"
    labkit = sum(not pair.labkit.is_over for pair in pairs) or "none"
    both = [pair for pair in pairs if pair.pytorch.is_over and pair.labkit.is_over]
    first = sum(pair.labkit.seconds < pair.pytorch.seconds for pair in both)
    return (
        f"One run each, on this machine. PyTorch had not told {pytorch} of {len(pairs)} when it "
        f"was given up, labkit {labkit}. Of the {len(both)} that both told, labkit was first with "
        f"{first or 'none'}."
    )


def _words(outcome: Outcome) -> str:
    seconds = f"{number(outcome.seconds)} s"
    return f"after {seconds}" if outcome.is_over else f"given up after {seconds}"


def _bar(outcome: Outcome) -> bars.Bar:
    words = number(outcome.seconds) if outcome.is_over else "→ given up"
    return bars.Bar(outcome.seconds, words)
