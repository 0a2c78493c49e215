"""Periods against a slow, obvious implementation, and iterations found in recordings made by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.timeline.periods import ENOUGH, Period, Words, period_of
from property_examples import examples

PIECES = st.lists(st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=6), st.integers(1, 5)), max_size=6)
"""(word, how often)."""


def brute(symbols: list[int]) -> Period | None:
    found = []
    for period in range(1, len(symbols) // 3 + 1):
        for first in range(len(symbols)):
            covered = period
            while first + covered < len(symbols) and symbols[first + covered] == symbols[first + covered - period]:
                covered += 1
            if covered >= 3 * period and first + covered <= len(symbols):
                found.append((-covered, period, first))
    if not found:
        return None
    for k in range(len(symbols).bit_length() + 1):
        enough = [one for one in found if one[1] <= 1 << k and -one[0] >= ENOUGH * len(symbols)]
        if enough:
            found = [one for one in found if one[1] <= 1 << k]
            break
    covered, period, first = min(found)
    return Period(period, first, -covered)


@given(PIECES)
@examples(80)
def test_the_period_is_that_of_the_longest_stretch(pieces: list[tuple[list[int], int]]) -> None:
    symbols = [symbol for word, count in pieces for symbol in word * count]
    array = np.array(symbols, dtype=np.int64)
    assert period_of(Words(array), array) == brute(symbols)


@given(PIECES, st.data())
@examples(50)
def test_places_of_a_word(pieces: list[tuple[list[int], int]], data: st.DataObject) -> None:
    symbols = [symbol for word, count in pieces for symbol in word * count] or [0]
    first = data.draw(st.integers(0, len(symbols) - 1))
    length = data.draw(st.integers(1, len(symbols) - first))
    places = Words(np.array(symbols, dtype=np.int64)).places_of(first, length).tolist()
    assert places == [place for place in range(len(symbols) - length + 1) if symbols[place:place + length] == symbols[first:first + length]]


def test_layers_inside_a_step_are_not_the_step() -> None:
    step = [7, 8] + [1, 2, 3] * 12 + [9]
    array = np.array([5, 5, 6] + step * 4 + [3], dtype=np.int64)
    assert period_of(Words(array), array) == Period(len(step), 3, 4 * len(step))
