"""The period of a sequence of symbols: exact. Nothing here knows about kernels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .intervals import Int64
from .ordering import stable_order

LEAST_REPEATS = 3
ENOUGH = 0.9
_MOST_TRIED = 64
"""Candidate periods looked at for each doubling of length; real recordings have a handful."""


@dataclass(frozen=True)
class Period:
    """The stretch [first, first + covered) repeats with this period, at least LEAST_REPEATS times."""

    length: int
    first: int
    covered: int


class Words:
    """Names for the words of 2^k symbols of one sequence, made as they are needed. Words that occur once have the name -1."""

    def __init__(self, symbols: Int64) -> None:
        self.size = int(symbols.size)
        self._names: list[Int64] = []
        self._again: list[tuple[Int64, Int64]] = []
        self._add(symbols.astype(np.int64), np.arange(self.size), self.size)

    def _add(self, keys: Int64, places: Int64, size: int) -> None:
        """One level more: the words at these places have equal keys where they are equal."""
        order = stable_order(keys - int(keys.min(initial=0)))
        keys, places = keys[order], places[order]
        same = keys[1:] == keys[:-1]
        repeated = np.concatenate(([False], same)) | np.concatenate((same, [False])) if keys.size else np.zeros(0, dtype=bool)
        numbers = np.cumsum(np.concatenate(([True], ~same))) - 1 if keys.size else np.zeros(0, dtype=np.int64)
        names = np.full(size, -1, dtype=np.int64)
        names[places[repeated]] = numbers[repeated]
        self._names.append(names)
        self._again.append((places[:-1][same], places[1:][same]))

    def _up_to(self, k: int) -> None:
        while len(self._names) <= k:
            last, half = self._names[-1], 1 << (len(self._names) - 1)
            first, second = last[:-half], last[half:]
            # A word with a part that occurs once occurs once itself.
            places = np.flatnonzero((first >= 0) & (second >= 0))
            self._add(first[places] * (int(last.max(initial=0)) + 1) + second[places], places, first.size)

    def again(self, k: int) -> Int64:
        """For each word of 2^k symbols that comes again, how far ahead; in no order."""
        self._up_to(k)
        return self._again[k][1] - self._again[k][0]

    def places_of(self, first: int, length: int) -> Int64:
        """Where the word at `first` of this length occurs, in order."""
        k = length.bit_length() - 1
        self._up_to(k)
        names, rest = self._names[k], length - (1 << k)
        count = self.size - length + 1
        if names[first] < 0 or names[first + rest] < 0:
            return np.array([first], dtype=np.int64)
        return np.flatnonzero((names[:count] == names[first]) & (names[rest:rest + count] == names[first + rest]))


def period_of(words: Words, symbols: Int64) -> Period | None:
    """The period whose longest unbroken stretch is the longest; the smallest of equal ones, and its first such stretch. None without any.

    symbols: shape (n,). Periods are looked at in classes (2^(k - 1), 2^k]; the first class in which a stretch covers ENOUGH of the sequence
    is the last. A period p is seen by the words of 2^k >= p symbols: inside its stretch they come back after exactly p.
    """
    best: Period | None = None
    k = 0
    while (1 << k) < 2 * (words.size // LEAST_REPEATS) + 1 and (1 << k) <= words.size:
        distances = words.again(k)
        if not distances.size:
            break
        for period, bound in _candidates(distances, 1 << k):
            if best is not None and bound < best.covered:
                break
            found = _longest(symbols, period)
            if found.covered >= LEAST_REPEATS * period and (
                    best is None or (-found.covered, found.length) < (-best.covered, best.length)):
                best = found
        if best is not None and best.covered >= ENOUGH * words.size:
            break
        k += 1
    return best


def _candidates(distances: Int64, width: int) -> list[tuple[int, int]]:
    """(period, most that it can cover) of periods in (width / 2, width], the largest bound first."""
    periods, counts = np.unique(distances[(distances > width // 2) & (distances <= width)], return_counts=True)
    # A stretch of r equal pairs holds r - width + 1 words that come back after the period.
    bounds = counts + width - 1 + periods
    chosen = np.argsort(-bounds, kind="stable")[:_MOST_TRIED]
    return [(int(periods[index]), int(bounds[index])) for index in chosen]


def _longest(symbols: Int64, period: int) -> Period:
    different = np.flatnonzero(symbols[period:] != symbols[:-period])
    borders = np.concatenate(([-1], different, [symbols.size - period]))
    lengths = np.diff(borders) - 1
    at = int(np.argmax(lengths))
    return Period(period, int(borders[at]) + 1, int(lengths[at]) + period)
