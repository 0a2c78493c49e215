"""Maximal repeats of a sequence of symbols: exact, n log n. Nothing here knows about kernels."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .intervals import Int64
from .ordering import dense, stable_order

Weigh = Callable[[Int64, int], Int64]
"""(places, length) -> weight of the occurrence at each place."""
LONGEST = 64
"""Longest repeat that is listed."""
SHORTEST = 2


@dataclass(frozen=True)
class Repeat:
    """One word that occurs more than once."""

    length: int
    places: Int64
    """Where its occurrences start, in order, none overlapping another (of overlapping ones the first counts); shape (count,)."""
    weight: int
    """Sum of the occurrences' weights."""


def maximal_repeats(symbols: Int64, segments: Int64, weights: Int64, joints: Int64, *, most: int) -> list[Repeat]:
    """The heaviest words of SHORTEST to LONGEST symbols that repeat, and that no longer word explains.

    symbols, segments, weights, joints: shape (n,). A word lies in one segment (rows with equal numbers that follow each other). An
    occurrence's weight is the sum of its symbols' weights, plus joints[i] for each symbol i but its last (what lies between i and
    i + 1); all >= 0.
    Listed is a word that (1) occurs at least twice without overlap, (2) is maximal: some two occurrences are followed by different symbols
    or a segment's end, and some two are preceded by different ones, and (3) does not consist of a shorter word repeated (its period is
    more than half its length), but for pairs of one symbol. At most `most`, the heaviest first; of equal ones the longer, then the earlier.
    """
    if symbols.size < 2 * SHORTEST:
        return []
    text, home = _with_separators(symbols, segments)
    ranks = _ranks(text)
    order = stable_order(ranks[-1])
    common = _common_prefixes(ranks, order)
    total = np.concatenate(([0], np.cumsum(weights))).astype(np.int64)
    between = np.concatenate(([0], np.cumsum(joints))).astype(np.int64)

    def weigh(places: Int64, length: int) -> Int64:
        return (total[places + length] - total[places] + between[places + length - 1] - between[places]).astype(np.int64)

    return _heaviest(_Groups(text, home, order, common), weigh, most)


class _Groups:
    """Suffixes in order; the occurrences of a word are a stretch of them."""

    def __init__(self, text: Int64, home: Int64, order: Int64, common: Int64) -> None:
        self.text, self.home, self.order, self.common = text, home, order, common
        before = text[np.maximum(order - 1, 0)]
        # How many neighbours up to here are preceded by different symbols.
        self.differs = np.concatenate(([0], np.cumsum(before[1:] != before[:-1]))).astype(np.int64)

    def of_length(self, length: int) -> tuple[Int64, Int64]:
        """(first, last) places in order of each word of this length that is maximal and occurs twice or more."""
        seeds = np.flatnonzero(self.common == length)
        if not seeds.size:
            return seeds, seeds
        borders = np.concatenate(([-1], np.flatnonzero(self.common < length), [self.common.size]))
        group = np.unique(np.searchsorted(borders, seeds) - 1)
        first, last = borders[group] + 1, borders[group + 1]
        kept = self.differs[last] > self.differs[first]
        return first[kept].astype(np.int64), last[kept].astype(np.int64)


def _heaviest(groups: _Groups, weigh: Weigh, most: int) -> list[Repeat]:
    lengths, firsts, lasts, bounds = _candidates(groups, weigh)
    found: list[Repeat] = []
    heaviest: list[int] = []
    for index in np.argsort(-bounds, kind="stable").tolist():
        # A bound is never less than the weight that counts, so no later word can come among the heaviest.
        if len(heaviest) == most and bounds[index] < heaviest[0]:
            break
        length = int(lengths[index])
        places = _apart(np.sort(groups.home[groups.order[firsts[index]:lasts[index] + 1]]), length)
        if places.size >= 2:
            found.append(Repeat(length, places, int(weigh(places, length).sum())))
            heapq.heappush(heaviest, found[-1].weight)
            if len(heaviest) > most:
                heapq.heappop(heaviest)
    return sorted(found, key=lambda one: (-one.weight, -one.length, int(one.places[0])))[:most]


def _candidates(groups: _Groups, weigh: Weigh) -> tuple[Int64, Int64, Int64, Int64]:
    """Of each word with (2) and (3): length, first and last place in the suffix order, weight with overlapping occurrences counted too."""
    none = np.zeros(0, dtype=np.int64)
    rows: list[tuple[Int64, Int64, Int64, Int64]] = [(none, none, none, none)]
    places = np.maximum(groups.home[groups.order], 0)
    size = int(groups.home.max()) + 1
    for length in range(SHORTEST, LONGEST + 1):
        first, last = groups.of_length(length)
        aperiodic = _aperiodic(groups.text, groups.order[first], length)
        first, last = first[aperiodic], last[aperiodic]
        if first.size:
            inside = places + length <= size
            sums = np.concatenate(([0], np.cumsum(np.where(inside, weigh(np.where(inside, places, 0), length), 0))))
            rows.append((np.full(first.size, length, dtype=np.int64), first, last, sums[last + 1] - sums[first]))
    lengths, firsts, lasts, bounds = (np.concatenate(column).astype(np.int64) for column in zip(*rows, strict=True))
    return lengths, firsts, lasts, bounds


def _apart(places: Int64, length: int) -> Int64:
    """Occurrences that do not overlap: from left to right, each that begins after the last one taken ended.

    Of a word whose period is at least half its length, an occurrence can overlap the next but not the one after it: so in a chain of
    overlapping ones every other one is taken.
    """
    chained = np.concatenate(([False], np.diff(places) < length))
    index = np.arange(places.size)
    head = np.maximum.accumulate(np.where(chained, 0, index))
    taken: Int64 = places[(index - head) % 2 == 0]
    return taken


def _aperiodic(text: Int64, places: Int64, length: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Which of the words at these places have no period up to half their length; pairs count as such."""
    kept = np.ones(places.size, dtype=bool)
    if length == SHORTEST:
        return kept
    for low in range(0, places.size, 4096):
        words = text[places[low:low + 4096, None] + np.arange(length)]
        for period in range(1, length // 2 + 1):
            kept[low:low + 4096] &= (words[:, period:] != words[:, :-period]).any(axis=1)
    return kept


def _with_separators(symbols: Int64, segments: Int64) -> tuple[Int64, Int64]:
    """(text with a symbol of its own before, between and after segments; each place's row in symbols, -1 for separators)."""
    starts = np.flatnonzero(np.concatenate(([True], segments[1:] != segments[:-1])))
    number = np.cumsum(np.concatenate(([True], segments[1:] != segments[:-1])))
    text = np.zeros(symbols.size + starts.size + 1, dtype=np.int64)
    home = np.full(text.size, -1, dtype=np.int64)
    at = np.arange(symbols.size) + number
    text[at] = dense(symbols - int(symbols.min()))
    home[at] = np.arange(symbols.size)
    gaps = np.flatnonzero(home < 0)
    text[gaps] = int(text.max(initial=0)) + 1 + np.arange(gaps.size)
    return text, home


def _ranks(text: Int64) -> list[Int64]:
    """ranks[k][i]: order of the word of 2^k symbols at i among all such words; up to LONGEST symbols. Words past the end are cut there."""
    ranks = [text]
    width = 1
    while width < LONGEST:
        last = ranks[-1]
        after = np.full(text.size, -1, dtype=np.int64)
        after[:-width or None] = last[width:] if width < text.size else -1
        ranks.append(dense(last * (int(last.max()) + 2) + after + 1))
        width *= 2
    return ranks


def _common_prefixes(ranks: list[Int64], order: Int64) -> Int64:
    """Length of the common prefix of neighbours in the suffix order, at most 2 * LONGEST - 1; shape (n - 1,)."""
    size = ranks[0].size
    a, b = order[:-1].copy(), order[1:].copy()
    length = np.zeros(size - 1, dtype=np.int64)
    for level in range(len(ranks) - 1, -1, -1):
        inside = (a < size) & (b < size)
        # Separators are all different, so equal words never reach past the end.
        same = inside & (ranks[level][np.minimum(a, size - 1)] == ranks[level][np.minimum(b, size - 1)])
        a, b, length = a + (same << level), b + (same << level), length + (same << level)
    return length
