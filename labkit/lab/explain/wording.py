"""Numbers, machines and the median's interval in the words that figures and alt texts use.

Before it: `results`. After it: `plots`, which draws and says the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from labkit.lab.results import Origin, Result

__all__ = [
    "Interval",
    "amount",
    "duration",
    "ends",
    "is_time",
    "machine_words",
    "median_interval",
    "number",
    "origin_words",
    "settings_words",
]

_TIME_UNITS = {"s", "ms", "µs", "μs", "us", "ns", "min"}
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float) -> str:
    """At least three digits that count: 0.0382, 3.82, 38.2, 3,824, 3.82×10⁹."""
    if value == 0:
        return "0"
    digits, _, exponent = f"{value:.2e}".partition("e")
    power = int(exponent)
    if -5 < power < 6:
        return f"{value:,.{max(0, 2 - power)}f}"
    return f"{digits}×10{str(power).translate(_SUPERSCRIPTS)}"


def is_time(result: Result) -> bool:
    """Whether the quantity is a time, of which the least is the fastest."""
    return result.unit.partition(" ")[0] in _TIME_UNITS


def ends(result: Result) -> tuple[str, str]:
    """What the settings with the least and with the most are called."""
    return ("fastest", "slowest") if is_time(result) else ("lowest", "highest")


def amount(result: Result) -> str:
    """The quantity with its unit: "time a batch in ms"; a count has its unit in its name."""
    named = result.unit in result.quantity or result.unit == "B"
    return result.quantity if named else f"{result.quantity} in {result.unit}"


def duration(seconds: float) -> str:
    """Seconds with a unit that suits them: 26.5 s, 140 ms, 35.0 µs."""
    if seconds >= 1 or seconds == 0:
        return f"{number(seconds)} s"
    return f"{number(seconds * 1e3)} ms" if seconds >= 1e-3 else f"{number(seconds * 1e6)} µs"


@dataclass(frozen=True)
class Interval:
    """Where the median of all possible repeats lies, with probability `coverage`."""

    low: float
    high: float
    coverage: float


def median_interval(values: Sequence[float], coverage: float = 0.95) -> Interval:
    """The narrowest pair of order statistics that holds the median with this probability, or more.

    It supposes only that the repeats are independent. Five repeats or fewer do not reach 95%: then
    it is the smallest and the largest, and its coverage is less than what was asked for.

    Source: the sign test turned round, W. R. Thompson, Annals of Mathematical Statistics 7 (1936).
    """
    ordered = sorted(values)
    n = len(ordered)
    outside, left_out = 2 / 2**n, 0  # the probability that the median lies beyond them
    while left_out + 1 < n / 2:
        more = outside + 2 * math.comb(n, left_out + 1) / 2**n
        if 1 - more < coverage:
            break
        outside, left_out = more, left_out + 1
    return Interval(ordered[left_out], ordered[n - 1 - left_out], max(0.0, 1 - outside))


def origin_words(result: Result) -> str:
    """Where and when the result comes from."""
    words: dict[Origin, str] = {
        "live": "Measured here",
        "recorded": "Recorded on another machine",
        "simulated": "Simulated",
    }
    date = str(result.machine.get("date", "")).partition("T")[0]
    return words[result.origin] + (f" on {date}" if date else "")


def machine_words(machine: dict[str, Any]) -> str:
    """The machine and its versions, as far as they are known."""
    parts = [str(machine[key]) for key in ("device", "cpu") if machine.get(key)]
    if "cores" in machine:
        parts.append(f"{machine['cores']} core" + ("s" if machine["cores"] != 1 else ""))
    if "memory_bytes" in machine:
        parts.append(f"{machine['memory_bytes'] / 1e9:.0f} GB")
    named = {"system": "{}", "python": "Python {}", "torch": "torch {}", "labkit": "labkit {}"}
    parts += [text.format(machine[key]) for key, text in named.items() if machine.get(key)]
    return ", ".join(parts) or "machine not noted"


def settings_words(result: Result) -> str:
    """What differs between the settings, and what they share."""
    names = dict.fromkeys(name for values in result.settings.values() for name in values)
    differ = f"Settings differ in {', '.join(names)}. " if names else ""
    same = ", ".join(f"{name}={value!r}" for name, value in result.common.items())
    return differ + (f"All: {same}." if same else "")
