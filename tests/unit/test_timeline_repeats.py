"""Maximal repeats and alignment against slow, obvious implementations."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.timeline.alignment import align
from kernelwright.timeline.repeats import LONGEST, maximal_repeats
from property_examples import examples

TEXT = st.lists(st.tuples(st.integers(0, 2), st.sampled_from((0, 0, 0, 0, 0, 0, 1)), st.integers(0, 5), st.integers(0, 3)), max_size=40)
"""(symbol, begins a segment, weight, joint)."""
Listed = list[tuple[int, int, list[int]]]


def brute(symbols: list[int], segments: list[int], weights: list[int], joints: list[int]) -> Listed:
    """(weight, length, places) of all words that the docstring describes, by looking at each."""
    size = len(symbols)
    found = []
    for length in range(2, min(size, LONGEST) + 1):
        words: dict[tuple[int, ...], list[int]] = {}
        for place in range(size - length + 1):
            if segments[place] == segments[place + length - 1]:
                words.setdefault(tuple(symbols[place:place + length]), []).append(place)
        for word, places in words.items():
            def beside(place: int, inner: int) -> object:
                whole = 0 <= place < size and segments[place] == segments[inner]
                return symbols[place] if whole else ("end", place)
            after = {beside(place + length, place) for place in places}
            before = {beside(place - 1, place) for place in places}
            periodic = any(word[period:] == word[:-period] for period in range(1, length // 2 + 1))
            if len(places) < 2 or len(after) < 2 or len(before) < 2 or (periodic and length > 2):
                continue
            taken: list[int] = []
            for place in places:
                if not taken or place >= taken[-1] + length:
                    taken.append(place)
            if len(taken) >= 2:
                weight = sum(sum(weights[p:p + length]) + sum(joints[p:p + length - 1]) for p in taken)
                found.append((weight, length, taken))
    return sorted(found, key=lambda one: (-one[0], -one[1], one[2][0]))


def listed(symbols: list[int], segments: list[int], weights: list[int], joints: list[int], most: int) -> Listed:
    columns = [np.array(column, dtype=np.int64) for column in (symbols, segments, weights, joints)]
    return [(one.weight, one.length, one.places.tolist()) for one in maximal_repeats(*columns, most=most)]


@given(TEXT, st.integers(1, 60))
@examples(60)
def test_repeats_are_those_of_the_definition(rows: list[tuple[int, int, int, int]], most: int) -> None:
    symbols = [row[0] for row in rows]
    segments = np.cumsum([row[1] for row in rows]).tolist()
    weights, joints = [row[2] for row in rows], [row[3] for row in rows]
    expected = brute(symbols, segments, weights, joints)
    assert listed(symbols, segments, weights, joints, 10_000) == expected
    assert listed(symbols, segments, weights, joints, most) == expected[:most]


def test_a_word_longer_than_the_longest_is_not_cut_down() -> None:
    word = list(range(LONGEST + 1))
    assert listed([*word, 500, *word, 501], [0] * (2 * LONGEST + 4), [1] * (2 * LONGEST + 4), [0] * (2 * LONGEST + 4), 10) == []
    word = list(range(LONGEST))
    found = listed([*word, 500, *word, 501], [0] * (2 * LONGEST + 2), [1] * (2 * LONGEST + 2), [0] * (2 * LONGEST + 2), 10)
    assert [(length, places) for _, length, places in found] == [(LONGEST, [0, LONGEST + 1])]


def longest_common(a: list[int], b: list[int]) -> int:
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, one in enumerate(a):
        for j, other in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if one == other else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


@given(st.lists(st.integers(0, 3), max_size=25), st.lists(st.integers(0, 3), max_size=25), st.integers(0, 50))
@examples(80)
def test_alignment_is_as_long_as_any(a: list[int], b: list[int], most: int) -> None:
    found = align(np.array(a, dtype=np.int64), np.array(b, dtype=np.int64), most_edits=most)
    best = longest_common(a, b)
    if len(a) + len(b) - 2 * best > most:
        assert found is None
        return
    assert found is not None
    first, second = found[0].tolist(), found[1].tolist()
    assert len(first) == len(second) == best
    assert [a[place] for place in first] == [b[place] for place in second]
    assert first == sorted(set(first)) and second == sorted(set(second))


def test_long_sequences_with_few_differences() -> None:
    a = np.arange(200_000, dtype=np.int64) % 977
    b = np.delete(a, [5, 60_000, 150_000])
    b[100_000] = -1
    found = align(a, b)
    assert found is not None and found[0].size == a.size - 4
    assert (a[found[0]] == b[found[1]]).all()
