"""Shortest edit script between two sequences of symbols (E. Myers, An O(ND) difference algorithm, 1986), vectorised over diagonals."""

from __future__ import annotations

import numpy as np

from .intervals import Int64

MOST_EDITS = 1_000
"""Work is about (length + edits) * edits; beyond this many edits two sequences count as too different."""
_NONE = -(1 << 60)


def align(a: Int64, b: Int64, *, most_edits: int = MOST_EDITS) -> tuple[Int64, Int64] | None:
    """Places (in a, in b) of the symbols that both share, in order: as many as any order-preserving matching can have.

    a, b: shapes (n,), (m,). None when more than most_edits symbols would be left over.
    """
    shorter = min(a.size, b.size)
    head = _agreeing(a[:shorter], b[:shorter])
    tail = _agreeing(a[head:][::-1][:shorter - head], b[head:][::-1][:shorter - head])
    inner = _middle(a[head:a.size - tail], b[head:b.size - tail], most_edits)
    if inner is None:
        return None
    first, last = np.arange(head), np.arange(tail)
    return (np.concatenate((first, inner[0] + head, last + a.size - tail)).astype(np.int64),
            np.concatenate((first, inner[1] + head, last + b.size - tail)).astype(np.int64))


def _agreeing(a: Int64, b: Int64) -> int:
    """Length of the common prefix of two sequences of one length."""
    different = np.flatnonzero(a != b)
    return int(different[0]) if different.size else int(a.size)


def _middle(a: Int64, b: Int64, most_edits: int) -> tuple[Int64, Int64] | None:
    """As align(). reach[d][k]: furthest place in a, on diagonal k (place in a - place in b), that d edits come to."""
    n, m = a.size, b.size
    if n == 0 or m == 0:
        return (np.zeros(0, dtype=np.int64),) * 2 if n + m <= most_edits else None
    reach: list[Int64] = []
    for edits in range(min(most_edits, n + m) + 1):
        diagonals = np.arange(-edits, edits + 1, 2)
        start = _begin(reach[-1], diagonals, n, m) if reach else np.zeros(1, dtype=np.int64)
        reach.append(_slide(a, b, start, diagonals))
        if abs(n - m) <= edits and (n - m - edits) % 2 == 0 and reach[-1][(n - m + edits) // 2] == n:
            return _trace_back(reach, n, m)
    return None


def _begin(before: Int64, diagonals: Int64, n: int, m: int) -> Int64:
    """Furthest places after one edit more: a symbol of a left out (from the diagonal below) or one of b (from the one above)."""
    edge = np.array([_NONE], dtype=np.int64)
    right, down = np.concatenate((edge, before + 1)), np.concatenate((before, edge))
    right[(right > n) | (right < 0)] = _NONE
    down[(down - diagonals > m) | (down < 0)] = _NONE
    return np.maximum(right, down).astype(np.int64)


def _slide(a: Int64, b: Int64, start: Int64, diagonals: Int64) -> Int64:
    """Furthest places along equal symbols; looked at in blocks that double in length while all is equal."""
    reached: Int64 = start.copy()
    sliding = np.flatnonzero(start >= 0)
    width = 1
    while sliding.size:
        place = reached[sliding][:, None] + np.arange(width)
        other = place - diagonals[sliding][:, None]
        inside = (place < a.size) & (other < b.size)
        same = inside & (a[np.minimum(place, a.size - 1)] == b[np.minimum(other, b.size - 1)])
        ends = ~same.all(axis=1)
        reached[sliding] += np.where(ends, np.argmin(same, axis=1), width)
        sliding = sliding[~ends]
        width = min(width * 2, max(1, (1 << 22) // max(sliding.size, 1)))
    return reached


def _trace_back(reach: list[Int64], n: int, m: int) -> tuple[Int64, Int64]:
    blocks: list[tuple[int, int, int]] = []
    place, diagonal = n, n - m
    for edits in range(len(reach) - 1, 0, -1):
        at = (diagonal + edits) // 2
        before = reach[edits - 1]
        down = int(before[at]) if at < edits else _NONE
        down = down if down >= 0 and down - diagonal <= m else _NONE
        right = int(before[at - 1]) + 1 if at > 0 else _NONE
        right = right if 0 <= right <= n else _NONE
        begun = max(right, down)
        blocks.append((begun, begun - diagonal, place - begun))
        place, diagonal = (begun, diagonal + 1) if down >= right else (begun - 1, diagonal - 1)
    blocks.append((0, 0, place))
    blocks.reverse()
    matched = [(np.arange(first, first + length), np.arange(second, second + length)) for first, second, length in blocks if length]
    if not matched:
        return (np.zeros(0, dtype=np.int64),) * 2
    first, second = (np.concatenate(column).astype(np.int64) for column in zip(*matched, strict=True))
    return first, second
