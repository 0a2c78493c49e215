"""How an amount is written in words, in findings and documents alike. None (and anything not finite) is "n/a"."""

from __future__ import annotations

import math

NA = "n/a"
"""How a figure that was not measured is written. Never 0, never a guess."""


def usable(value: float | None) -> float | None:
    """The value when it is a finite number, else None."""
    return value if value is not None and math.isfinite(value) else None


def fixed(number: float, decimals: int) -> str:
    """Fixed decimals; what rounds to zero has no minus sign."""
    return f"{round(number, decimals) + 0.0:.{decimals}f}"


def amount(value: float | None) -> str:
    """A count; one decimal only where it is not whole (a mean over steps)."""
    number = usable(value)
    if number is None:
        return NA
    return fixed(number, 0 if abs(number - round(number)) < 0.05 else 1)


def si(value: float | None, unit: str) -> str:
    """A large amount with a decimal prefix: 1.23 GFLOP, 456.00 MB."""
    number = usable(value)
    if number is None:
        return NA
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= factor:
            return f"{number / factor:.2f} {prefix}{unit}"
    return f"{amount(number)} {unit}"
