"""How far two exported leaves are apart, in blocks that stay in a core's cache."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .tensors import Leaf

BLOCK = 1 << 15
"""Elements that are compared at a time: 256 KiB in float64."""

SQUARABLE = (1e-100, 1e100)
"""Sums of squares of values whose largest lies between need no scaling: nothing overflows, and what underflows would not be seen."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Errors:
    """Distance of one leaf from the oracle."""

    norm: float
    """||x - oracle|| / ||oracle|| (absolute where the oracle is zero); the share of differing elements for integers."""
    largest: float
    """max |x - oracle|."""
    worst_index: int
    """Where that is, in the exported values."""


def errors_of(leaf: Leaf, oracle: Leaf, reference: Leaf) -> Errors:
    """Distance of `leaf` from `oracle`, over the places where the reference (and the oracle) is finite."""
    if not leaf.floating:
        differs = leaf.values != oracle.values
        share = float(differs.mean()) if differs.size else 0.0
        return Errors(share, float(differs.any()) if differs.size else 0.0, int(differs.argmax()) if differs.size else 0)
    if not leaf.values.size:
        return Errors(0.0, 0.0, 0)
    distances, scales, largest, worst = [], [], 0.0, 0
    for block in blocks(leaf.values.size):
        usable = np.isfinite(reference.values[block]) & np.isfinite(oracle.values[block])
        wanted = wide(oracle.values[block])
        with np.errstate(invalid="ignore", over="ignore"):
            difference = np.abs(wide(leaf.values[block]) - wanted)
            size = np.abs(wanted)
        if not usable.all():
            difference, size = np.where(usable, difference, 0.0), np.where(usable, size, 0.0)
        place = int(difference.argmax())  # of a NaN, where there is one
        if not math.isfinite(difference[place]):
            return Errors(math.inf, math.inf, block.start + int(np.argmax(~np.isfinite(difference))))
        if difference[place] > largest:
            largest, worst = float(difference[place]), block.start + place
        distances.append(_norm(difference))
        scales.append(_norm(size))
    distance, scale = _norm(np.asarray(distances)), _norm(np.asarray(scales))
    return Errors(distance / scale if scale > 0 else distance, largest, worst)


def blocks(size: int) -> Iterator[slice]:
    """Parts that stay in a core's cache with a few temporaries: arrays of 100 MB cost several times as much, most of it page faults."""
    return (slice(start, start + BLOCK) for start in range(0, size, BLOCK))


def same_values(one: Sequence[Leaf], two: Sequence[Leaf]) -> bool:
    """Bit for bit (NaN equal to NaN)."""
    return len(one) == len(two) and all(
        a.dtype == b.dtype and a.shape == b.shape and _same_bits(a.values, b.values) for a, b in zip(one, two, strict=True))


def _same_bits(one: npt.NDArray[Any], two: npt.NDArray[Any]) -> bool:
    return one.dtype == two.dtype and one.size == two.size and all(
        one[block].tobytes() == two[block].tobytes() for block in blocks(one.size))


def wide(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same in float64, or complex128."""
    found: npt.NDArray[Any] = values.astype(np.complex128 if np.iscomplexobj(values) else np.float64, copy=False)
    return found


def largest_finite(values: npt.NDArray[Any]) -> float:
    """The largest of the finite values' sizes; 0 where there are none."""
    largest = 0.0
    for block in blocks(values.size):
        sizes = np.abs(wide(values[block]))
        most = float(sizes.max())
        largest = max(largest, most if math.isfinite(most) else float(sizes.max(initial=0.0, where=np.isfinite(values[block]))))
    return largest


def _norm(values: Floats) -> float:
    """2-norm without overflow."""
    largest = float(values.max(initial=0.0))
    if not largest > 0 or not math.isfinite(largest):
        return largest
    if SQUARABLE[0] < largest < SQUARABLE[1]:
        return math.sqrt(float(np.sum(values * values)))  # not np.dot, whose threads wait for each other on busy cores
    scaled = values / largest
    return largest * math.sqrt(float(np.sum(scaled * scaled)))
