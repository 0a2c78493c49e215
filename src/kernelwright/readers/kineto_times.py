"""Kineto's times as written (decimal microseconds) -> int64 nanoseconds, exactly. No time passes through a float."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import msgspec
import numpy as np

from ..model.table import Int64

MAX_US = Decimal(4 * 10**15)
"""Half of int64's range in microseconds, so that a start plus a duration still fits in ns."""
MAX_NS = int(MAX_US) * 1000
_PLAIN = b"0123456789.- "
_MAX_CHARACTERS = 40
_DOT, _BLANK = ord("."), ord(" ")

Text = bytes | msgspec.Raw


def are_plain(texts: Sequence[Text]) -> bool:
    """True when each JSON value is a number without an exponent, or absent (empty)."""
    return not b" ".join(texts).translate(None, _PLAIN)


def nanoseconds(texts: Sequence[Text]) -> Int64:
    """Decimal microseconds, each a valid JSON number, in ns; shape (n,). Beyond three decimals rounded half to even.

    Raises ValueError for what is no plain number (absent, an exponent, a string), and where one is too large: |us| >= MAX_US.
    """
    joined = b" ".join(texts) + b" "
    if joined.translate(None, _PLAIN):
        raise ValueError("a time is not a plain number")
    if not texts:
        return np.zeros(0, dtype=np.int64)
    characters = np.frombuffer(joined, dtype=np.uint8)
    stops = np.flatnonzero(characters == _BLANK)
    if joined.count(b".") == len(texts) and (characters[stops - 4] == _DOT).all():
        # As Kineto writes them, with three decimals: without the dots they are nanoseconds.
        result = np.fromstring(joined.translate(None, b"."), dtype=np.int64, sep=" ")
    else:
        result = np.array([_one(bytes(text)) for text in texts], dtype=object)
    if result.size != len(texts) or (result >= MAX_NS).any() or (result <= -MAX_NS).any():
        raise ValueError("a time is beyond int64 nanoseconds")
    return result.astype(np.int64, copy=False)


def _one(text: bytes) -> int:
    if not 0 < len(text) <= _MAX_CHARACTERS:
        raise ValueError("a time is absent or has too many digits")
    whole, _, part = text.partition(b".")
    if len(part) <= 3:
        return int(whole + part.ljust(3, b"0"))
    return rounded_ns(Decimal(text.decode()))


def rounded_ns(time_us: Decimal) -> int:
    """Microseconds in ns, rounded half to even."""
    return int((time_us * 1000).to_integral_value())
