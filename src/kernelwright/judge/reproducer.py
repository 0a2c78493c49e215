"""The smallest case that shows what is wrong with a candidate: its worst element of the first output that is off."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..model.verdict import OutputError, Reproducer
from .correctness import Expected
from .distance import errors_of
from .tensors import Leaf


def of_value(
    error: OutputError, got: Leaf, expected: Expected, index: int, *, inputs_seed: int, changed: dict[str, str], free: bool = False,
    state: bool = False,
) -> Reproducer:
    """Of an output that is outside its limit, leaf number `index` of the round."""
    oracle, reference = expected.oracle[index], expected.reference[index]
    place = _worst(got, oracle, reference)
    where = None if got.sampled else tuple(int(i) for i in np.unravel_index(place, got.shape)) if got.shape else ()
    return Reproducer(
        kind="state" if state else "value", summary=error.note.partition("; ")[0], round=error.round, distribution=error.distribution,
        changed=changed, free=free, inputs_seed=inputs_seed, path=got.path, shape=got.shape, index=where,
        expected=_number(oracle.values[place]),
        reference=_number(reference.values[place]), got=_number(got.values[place]), error=error.candidate_error, limit=error.limit,
        wrong_elements=wrong_elements(got, oracle, reference, error.limit), compared_elements=int(got.values.size))


def of_structure(
    problem: str, *, round_number: int, inputs_seed: int, kind: str = "", changed: dict[str, str] | None = None, free: bool = False
) -> Reproducer:
    """Of what is no matter of values."""
    return Reproducer(kind="structure", summary=problem, round=round_number, distribution=kind, changed=changed or {},
                      free=free, inputs_seed=inputs_seed)


def wrong_elements(got: Leaf, oracle: Leaf, reference: Leaf, limit: float) -> int:
    """Elements off by more than the limit times the larger of their own size and the output's root mean square, or not finite."""
    if not got.values.size:
        return 0
    if not got.floating:
        return int((got.values != oracle.values).sum())
    kind: Any = np.complex128 if np.iscomplexobj(got.values) else np.float64
    mine, wanted = got.values.astype(kind), oracle.values.astype(kind)
    finite = np.isfinite(reference.values) & np.isfinite(wanted)
    size = np.where(finite, np.abs(wanted), 0.0)
    rms = math.sqrt(float(np.mean(np.square(size / (size.max() or 1.0))))) * float(size.max())
    with np.errstate(invalid="ignore"):
        off = finite & ~(np.abs(mine - wanted) <= limit * np.maximum(size, rms))
    odd = ~np.isfinite(reference.values) & ~((np.isnan(mine) & np.isnan(reference.values)) | (mine == reference.values))
    return int((off | odd).sum())


def _worst(got: Leaf, oracle: Leaf, reference: Leaf) -> int:
    if got.floating and got.values.size:
        mine, wanted = got.values, reference.values
        same = (np.isfinite(mine) & np.isfinite(wanted)) | (np.isnan(mine) & np.isnan(wanted)) | (np.isinf(wanted) & (mine == wanted))
        if not same.all():
            return int((~same).argmax())
    return errors_of(got, oracle, reference).worst_index


def _number(value: Any) -> float | str:
    """JSON has neither complex numbers nor NaN."""
    if np.isrealobj(value) and np.isfinite(value):
        return float(value)
    return str(value)
