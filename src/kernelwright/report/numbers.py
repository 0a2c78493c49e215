"""How numbers are written, everywhere alike. None (and anything not finite) is "n/a"."""

from __future__ import annotations

import math

from ..model.amounts import amount as amount
from ..model.amounts import fixed
from ..model.amounts import si as si
from ..model.amounts import usable as usable
from ..model.base import Figure
from .text import NA

_DECIMALS_MOST = 9
WITHIN_ROUNDING_PCT = 0.05
"""A change smaller than this prints as 0.0%."""


def two(value: float | None) -> str:
    """Two decimals; two significant digits below 0.1, so that a small figure never reads as zero."""
    number = usable(value)
    if number is None:
        return NA
    decimals = 2
    if 0 < abs(number) < 0.1:
        decimals = min(_DECIMALS_MOST, 1 - math.floor(math.log10(abs(number))))
    return fixed(number, decimals)


def x_xx(value: float | None) -> str:
    """Always two decimals, as the development log's form has it; the log's .jsonl file keeps the full figure. What is above zero and
    would read 0.00 is "<0.01"."""
    number = usable(value)
    if number is None:
        return NA
    text = fixed(number, 2)
    return "<0.01" if number > 0 and text == "0.00" else text


def us(value_ns: float | None) -> str:
    """Nanoseconds as microseconds."""
    return two(None if value_ns is None else value_ns / 1000)


def pct(value: float | None) -> str:
    """A percentage with one decimal, without its sign (the heading has it)."""
    number = usable(value)
    return NA if number is None else fixed(number, 1)


def percent(value: float | None) -> str:
    """A percentage with one decimal and its sign."""
    number = usable(value)
    return NA if number is None else f"{fixed(number, 1)}%"


def whole_pct(value: float | None) -> str:
    """A whole percentage with its sign, as the development log has it."""
    number = usable(value)
    return NA if number is None else f"{fixed(number, 0)}%"


def gain(estimate_pct: float | None) -> str:
    """An estimated gain with its sign, held to 0..100."""
    number = usable(estimate_pct)
    return percent(None if number is None else min(max(number, 0.0), 100.0))


def figure(value: Figure | None) -> str:
    """A Figure with its unit; amounts of work take a decimal prefix."""
    if value is None or usable(value.value) is None:
        return NA
    if value.unit in ("FLOP", "FLOPs"):
        return si(value.value, "FLOP")
    if value.unit in ("B", "bytes"):
        return si(value.value, "B")
    return percent(value.value) if value.unit == "%" else f"{two(value.value)} {value.unit}"


def change_pct(previous: float | None, current: float | None) -> float | None:
    """100 * (current / previous - 1); None where either is missing or previous is 0."""
    old, new = usable(previous), usable(current)
    return None if old is None or new is None or old == 0 else 100 * (new / old - 1)


def signed(change: float | None, unit: str = "%") -> str:
    """+3.1% or -0.4%; a change that rounds away is "+0.0%"."""
    number = usable(change)
    if number is None:
        return NA
    return f"+0.0{unit}" if abs(number) < WITHIN_ROUNDING_PCT else f"{number:+.1f}{unit}"


def faster_or_slower(change: float | None) -> str:
    """A change of duration in words: -10 is "10.0% faster" (it takes 10% less time), +10 "10.0% slower"."""
    number = usable(change)
    if number is None:
        return NA
    return f"{abs(number):.1f}% {'slower' if number >= WITHIN_ROUNDING_PCT else 'faster'}"


def quantity(value: float | None, unit: str) -> str:
    """A counter with its unit: times in us, bytes with a prefix, large counts with commas."""
    number = usable(value)
    if number is None:
        return NA
    if unit == "%":
        return percent(number)
    if unit == "ns":
        return f"{two(number / 1000)} us"
    if unit in ("byte", "byte/block") and abs(number) >= 1000:
        return si(number, "B")
    if unit in ("hz", "Hz", "byte/s"):
        return si(number, "Hz" if unit != "byte/s" else "B/s")
    text = f"{number:,.0f}" if abs(number) >= 1000 or number == int(number) else f"{number:.4g}"
    return f"{text} {unit}".strip()
