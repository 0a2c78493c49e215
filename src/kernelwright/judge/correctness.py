"""Is an output right? Pure comparisons of exported leaves; the limits follow the reference's own error against float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..model.verdict import OutputError
from ..model.workload import Precision
from .distance import Errors, blocks, errors_of, largest_finite, wide
from .tensors import BUFFER, Leaf
from .tf32_luck import LEAST_DRAWS, Draws, is_settled, usual

REFERENCE_FACTOR = 2.0
"""A candidate may err twice as much as the reference. Summing in another order (blocked, split-K, vectorised, fused) moves
the norm of the rounding error of a dot product by less than that for random data (Higham, Accuracy and Stability of
Numerical Algorithms, section 4.2: errors grow with the length of the longest chain, which libraries keep within a small
factor of each other); the next lower precision errs 100 times more (tf32 against float32 2.9e-4 to 1e-6)."""
EPS_FACTOR = {"float32": 8.0, "float64": 8.0, "complex64": 8.0, "complex128": 8.0}
EPS_FACTOR_NARROW = 1.0
"""Plus 8 eps of the output's dtype: a reduction and what follows it (mean, variance, rsqrt, scale) in another order moves every element
of a row together, by a few eps, however exact the reference happens to be. Measured: LayerNorm fused for the CPU 4.3 eps where the
reference had 0.8. It is 1e-6 in float32, and TF32 errs by 3e-4. One eps for narrower types: their sums are kept in float32, so one
rounding is all."""
FEW_ELEMENTS = 64
FEW_EPS_FACTOR = 16.0
"""A leaf of few elements (a loss) can be exact by luck, so twice its error means nothing: the floor is 16 eps, the rounding
of a pairwise sum over 2**16 terms. An undeclared tf32 is 500 times that."""
ELEMENT_FACTOR = 8.0
"""Gross check of single elements: the largest error may be 8 times the reference's largest plus 8 eps of the largest value
(the norm's factor 2, times 4 for the luck of a maximum).
A norm over many elements hides one wrong element when the dtype is coarse."""
NO_ORACLE_EPS_FACTOR = {"float32": 64.0, "float64": 64.0, "complex64": 64.0, "complex128": 64.0}
NO_ORACLE_EPS_FACTOR_NARROW = 4.0
"""Without a float64 run the reference's own error is not known: 64 eps (a float32 product of length 4096 errs by 9 eps against
float64; tf32 would be 2400), 4 eps for 16-bit and narrower types, whose sums are kept in float32.
"""
ILL_CONDITIONED = 1e-2
ILL_FACTOR = 10.0
"""Where the reference itself is wrong by more than 1% (and 8 eps), its digits are rounding noise (a gradient that is zero in
exact arithmetic). A round in which that holds for every output is dropped; where other outputs are well-conditioned, the candidate's
noise may be ten times as large as the reference's, no more."""
UNDECIDABLE_INTEGERS = 0.1
"""Indices of which float64 gives more than a tenth otherwise (near-ties) are no evidence either way."""
DISTRIBUTION_FACTOR = 4.0
"""On inputs of other distributions the limits are four times as wide, beside what rounding errors of the inputs do there: the precision is
judged on the generator's own inputs, and what holds for those alone errs by far more."""
LOST_PRECISION = 0.3
"""Where a declared precision itself errs by more than this on another distribution, nothing is left to compare."""
NEAR_OVERFLOW = 0.25
"""A finite value above this share of the dtype's largest may be infinite after another rounding."""
LARGEST = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38, "complex64": 3.4028234663852886e38}
NOT_TF32_EPS = 2.0
"""What the reference computes in float32 errs by so many eps, sums over weights among it (measured: 0.4 to 0.7); what it computes in TF32
by thousands, a loss of few classes by a hundred, and by less than two by luck alone."""
CLEAR_DROP = 10.0
DROP_SHARE = 0.25
"""A precision drop is only named when the error is above 10 times the limit for "equal" and at least a quarter of what the reference errs
in that precision: rounding inputs alone, or one product of several, errs by less than doing everything so."""
UNIT_ROUNDOFF: dict[str, float] = {"tf32": 2.0**-11, "bf16": 2.0**-8}
"""Half the distance from 1 to the next number: 10 and 7 stored bits (NVIDIA A100 whitepaper; bfloat16). Stands in for a yardstick
that cannot run: one product with rounded operands errs by about this much (2.9e-4 measured for tf32)."""
PRECISION_ORDER: tuple[Precision, ...] = ("equal", "tf32", "bf16")

Compared = tuple[str | None, tuple[float, float], list[str]]
"""What is wrong, the limits of the norm and of an element, and notes."""


@dataclass(frozen=True)
class Expected:
    """What one fresh input should give, all in the parent's memory."""

    reference: Sequence[Leaf]
    oracle: Sequence[Leaf]
    """The float64 run, or the reference itself."""
    oracle_is_reference: bool = False
    yardstick: Sequence[Sequence[Leaf]] = ()
    """Runs of the reference in the declared lower precision; the least accurate counts."""
    perturbed: Sequence[Sequence[Leaf]] = ()
    """On inputs of another distribution: the oracle on inputs moved by rounding errors, drawn twice: one draw may by luck leave alone
    the one element that is sensitive (two nearly equal largest logits, scaled by 1000)."""
    draws: Draws | None = None
    """More draws of the reference's own TF32 error."""

    def only(self, keep: Sequence[int]) -> Expected:
        """The same of these leaves alone, without perturbed runs."""
        return Expected([self.reference[index] for index in keep], [self.oracle[index] for index in keep], self.oracle_is_reference,
                        [[run[index] for index in keep] for run in self.yardstick],
                        draws=None if self.draws is None else self.draws.only(keep))


def structure_problem(candidate: Sequence[Leaf], reference: Sequence[Leaf]) -> str | None:
    """Why the outputs cannot be compared (leaves, dtype, shape, device, class), or None."""
    ours, theirs = [leaf.path for leaf in candidate], [leaf.path for leaf in reference]
    if ours != theirs:
        missing = [_named(path) for path in theirs if path not in ours]
        extra = [_named(path) for path in ours if path not in theirs]
        words = [f"lacks {', '.join(missing[:3])}"] if missing else []
        words += [f"has also {', '.join(extra[:3])}"] if extra else []
        how = " and ".join(words) or "has another order"
        return f"the structure of the output differs: it {how} ({len(ours)} tensors, the reference gives {len(theirs)})"
    for one, two in zip(candidate, reference, strict=True):
        for what, mine, yours in (("dtype", one.dtype, two.dtype), ("shape", list(one.shape), list(two.shape)),
                                  ("device", one.device, two.device)):
            if mine != yours:
                return f"{_named(one.path)} has {what} {mine}, the reference gives {yours}"
        if (one.sampled, one.values.size, one.values.dtype) != (two.sampled, two.values.size, two.values.dtype):
            return f"{_named(one.path)} came as {one.values.size} values of {one.values.dtype}, not {two.values.size} of {two.values.dtype}"
        if one.kind not in ("Tensor", "Parameter", two.kind):
            return f"{_named(one.path)} is a {one.kind}, a subclass that could compute its values later; a plain Tensor is needed"
    return None


def nonfinite_problem(candidate: Leaf, reference: Leaf) -> str | None:
    """NaN must stand where the reference has NaN, an infinity of the same sign where it has one, finite numbers elsewhere."""
    if not candidate.floating:
        return None
    got, wanted = candidate.values, reference.values
    if np.isfinite(got).all() and np.isfinite(wanted).all():
        return None
    same = (np.isfinite(got) & np.isfinite(wanted)) | (np.isnan(got) & np.isnan(wanted)) | (np.isinf(wanted) & (got == wanted))
    if same.all():
        return None
    place = int((~same).argmax())
    return (f"{_named(candidate.path)} is {_number(got[place])} where the reference is {_number(wanted[place])} "
            f"({int((~same).sum())} elements)")


def decidable(expected: Expected) -> bool:
    """Anything to compare by value: an element of an integer leaf, or one that is finite in the reference."""
    return any(leaf.values.size and (not leaf.floating or np.isfinite(leaf.values).any()) for leaf in expected.reference)


def comparable(runs: Sequence[Sequence[Leaf]], reference: Sequence[Leaf]) -> list[Sequence[Leaf]]:
    """The runs that have the reference's leaves and sizes; one that computes something else is no yardstick."""
    wanted = [(leaf.path, leaf.shape, leaf.values.size) for leaf in reference]
    return [run for run in runs if [(leaf.path, leaf.shape, leaf.values.size) for leaf in run] == wanted]


def is_of(precision: Precision, index: int, candidate: Sequence[Leaf], expected: Expected) -> bool:
    """Leaf `index` errs like a computation in this lower precision: far more than the limit for "equal", and as its yardstick does.

    A workload without a product that TF32 could round, or a LayerNorm that autocast keeps in float32, has no such yardstick.
    """
    oracle, _ = _finite_oracle(expected.oracle[index], expected.reference[index])
    reference = expected.reference[index]
    own = errors_of(reference, oracle, reference)
    limit, _, _ = _equal_limits(reference, oracle, own, expected.oracle_is_reference)
    runs = [errors_of(run[index], oracle, reference).norm for run in expected.yardstick]
    yardsticks = [norm for norm in runs or [UNIT_ROUNDOFF.get(precision, math.inf)] if math.isfinite(norm) and norm > CLEAR_DROP * limit]
    error = errors_of(candidate[index], oracle, reference).norm
    return bool(yardsticks) and error > CLEAR_DROP * limit and DROP_SHARE * min(yardsticks) <= error <= REFERENCE_FACTOR * max(yardsticks)


def distances(run: Sequence[Leaf], expected: Expected) -> list[tuple[float, float]]:
    """Of each leaf of another run of the reference: its error's norm, and the largest of an element."""
    found = []
    for index, (got, oracle) in enumerate(zip(run, expected.oracle, strict=True)):
        error = errors_of(got, oracle, _comparable_places(index, expected) if expected.perturbed else expected.reference[index])
        found.append((error.norm, error.largest))
    return found


def _finite_oracle(oracle: Leaf, reference: Leaf) -> tuple[Leaf, bool]:
    """The oracle, with the reference's value where only the reference is finite; whether any was taken."""
    if not reference.floating:
        return oracle, False
    only = np.isfinite(reference.values) & ~np.isfinite(oracle.values)
    if not only.any():
        return oracle, False
    return replace(oracle, values=np.where(only, reference.values, oracle.values)), True


def check_leaf(index: int, candidate: Sequence[Leaf], expected: Expected, *, round_number: int, level: Precision, steps: int = 1,
               ) -> OutputError:
    """Judge one leaf at one precision level. steps: calls whose errors add up in it."""
    got, reference = candidate[index], expected.reference[index]
    oracle, patched = _finite_oracle(expected.oracle[index], reference)
    own, theirs = errors_of(reference, oracle, reference), errors_of(got, oracle, reference)

    no_oracle = expected.oracle_is_reference or patched

    def compared(scale: Errors) -> Compared:
        limit, element_limit, notes = _equal_limits(reference, oracle, scale, no_oracle)
        if level != "equal":
            yard, yard_largest, note = _yardstick(index, expected, level, oracle, reference)
            limit, element_limit = max(limit, REFERENCE_FACTOR * yard), max(element_limit, ELEMENT_FACTOR * yard_largest)
            notes.append(note)
        limit, element_limit = steps * limit, steps * element_limit
        return _value_problem(got, oracle, own, theirs, limit, element_limit), (limit, element_limit), notes

    problem, (limit, _), notes = compared(own)
    if problem is not None and level != "bf16" and not no_oracle:
        problem, (limit, _), notes = _drawn_again(index, expected, own, theirs, compared)
    problem = nonfinite_problem(got, reference) or problem
    if got.sampled:
        notes.append(f"random sample of {got.values.size} of {math.prod(got.shape)} elements")
    return OutputError(path=got.path, round=round_number, reference_error=_finite(own.norm), candidate_error=_finite(theirs.norm),
                       limit=_finite(limit), passed=problem is None, note="; ".join([*([problem] if problem else []), *notes]))


def _drawn_again(index: int, expected: Expected, own: Errors, theirs: Errors, compared: Callable[[Errors], Compared]) -> Compared:
    """The comparison with what draws of the reference's TF32 roundings usually err by, where that is more than its own error (tf32_luck).
    Draws that are ill-conditioned are none; a candidate that is, is not wrong by luck. Nor is one whose reference errs by no more than
    float32 does: a weight that is given back, or summed, is rounded nowhere."""
    found = first = compared(own)
    norms, largest = [], []
    reference = expected.reference[index]
    if not theirs.norm <= ILL_CONDITIONED or own.norm <= NOT_TF32_EPS * reference.eps:
        return first
    for drawn in expected.draws or ():
        if not drawn[index][0] <= ILL_CONDITIONED:
            continue
        norms.append(drawn[index][0])
        largest.append(drawn[index][1])
        if len(norms) < LEAST_DRAWS:
            continue
        scale = Errors(max(own.norm, usual(norms)), max(own.largest, usual(largest)), own.worst_index)
        found = compared(scale)
        limit, element_limit = found[1]
        if is_settled(norms, theirs.norm, limit) or is_settled(largest, theirs.largest, element_limit):
            break
    if found[1] == first[1]:
        return first
    return (*found[:2], [*found[2], f"limit from {len(norms)} more draws of the reference's TF32 roundings"])


def check_round(
    candidate: Sequence[Leaf], expected: Expected, *, round_number: int, level: Precision, steps: int = 1,
) -> tuple[tuple[OutputError, ...], str | None]:
    """All leaves of one round, and the structural problem that forbids comparing them. steps: calls whose errors add up in buffers; the
    float64 run begins each call with the reference's, and shows the error of one."""
    problem = structure_problem(candidate, expected.reference)
    if problem is not None:
        return (), problem
    checked = [check_leaf(index, candidate, expected, round_number=round_number, level=level,
                          steps=steps if candidate[index].path.startswith(BUFFER) else 1) for index in range(len(candidate))]
    return tuple(checked), None


def check_elsewhere(
    index: int, candidate: Sequence[Leaf], expected: Expected, *, round_number: int, level: Precision, kind: str
) -> tuple[OutputError, bool]:
    """Judge one leaf on inputs of another distribution; whether it could be compared there at all.

    Only places count where the reference, the oracle and the perturbed oracle are finite and far from overflow. The limit follows
    the larger of the reference's own error and of what rounding errors of the inputs do; a leaf on which that is above 1% is not compared.
    """
    got, oracle = candidate[index], expected.oracle[index]
    reference = _comparable_places(index, expected)
    runs = [errors_of(run[index], oracle, reference) for run in (expected.reference, *expected.perturbed)]
    noise = Errors(max(run.norm for run in runs), max(run.largest for run in runs), 0)
    theirs = errors_of(got, oracle, reference)
    yard, yard_largest, note = (0.0, 0.0, "") if level == "equal" else _yardstick(index, expected, level, oracle, reference)
    is_compared = not ill_conditioned(reference, noise.norm) and _anything(reference) and yard <= LOST_PRECISION
    is_compared = is_compared and (got.floating or kind != "nonfinite")  # the order of NaN and equal infinities is anybody's

    def compared(scale: Errors) -> Compared:
        limit, element_limit, notes = _equal_limits(reference, oracle, scale, expected.oracle_is_reference)
        limit = DISTRIBUTION_FACTOR * max(limit, REFERENCE_FACTOR * max(yard, scale.norm))
        element_limit = DISTRIBUTION_FACTOR * max(element_limit, ELEMENT_FACTOR * max(yard_largest, scale.largest))
        notes += [note] if note else []
        return _value_problem(got, oracle, noise, theirs, limit, element_limit), (limit, element_limit), notes

    problem, (limit, _), notes = compared(noise)
    if not is_compared:
        problem, notes = None, ["not compared: ill-conditioned or not finite on these inputs"]
    elif problem is not None and level != "bf16" and not expected.oracle_is_reference:
        problem, (limit, _), notes = _drawn_again(index, expected, noise, theirs, compared)
    return OutputError(path=got.path, round=round_number, reference_error=_finite(runs[0].norm), candidate_error=_finite(theirs.norm),
                       limit=_finite(limit), passed=problem is None, note="; ".join([*([problem] if problem else []), *notes]),
                       distribution=kind), is_compared


def ill_conditioned(leaf: Leaf, own_norm: float) -> bool:
    """The reference's own error on this leaf is above 1% (8 eps of a coarser dtype; a tenth of all integers): no evidence."""
    return own_norm > (max(ILL_CONDITIONED, 8 * leaf.eps) if leaf.floating else UNDECIDABLE_INTEGERS)


def is_evidence(errors: Sequence[OutputError], reference: Sequence[Leaf]) -> bool:
    """Any leaf of the round is well-conditioned (or there is none with elements)."""
    filled = [(leaf, error) for leaf, error in zip(reference, errors, strict=False) if leaf.values.size]
    return not filled or any(not ill_conditioned(leaf, error.reference_error) for leaf, error in filled)


def finite_everywhere(leaves: Sequence[Leaf]) -> bool:
    """No NaN and no infinity in any leaf."""
    return all(bool(np.isfinite(leaf.values).all()) for leaf in leaves if leaf.floating)


def nonfinite_difference(candidate: Sequence[Leaf], reference: Sequence[Leaf]) -> tuple[int, int]:
    """Elements that are finite in the reference alone, and in the candidate alone."""
    pairs = [(np.isfinite(got.values), np.isfinite(wanted.values))
             for got, wanted in zip(candidate, reference, strict=True) if got.floating]
    return sum(int((wanted & ~got).sum()) for got, wanted in pairs), sum(int((got & ~wanted).sum()) for got, wanted in pairs)


def _anything(reference: Leaf) -> bool:
    return bool(reference.values.size) and (not reference.floating or bool(np.isfinite(reference.values).any()))


def _comparable_places(index: int, expected: Expected) -> Leaf:
    """The reference's leaf with NaN where nothing can be compared."""
    reference, oracle = expected.reference[index], expected.oracle[index]
    if not reference.floating:
        return reference
    usable, largest = np.empty(reference.values.shape, dtype=bool), LARGEST.get(reference.dtype, math.inf)
    for block in blocks(usable.size):
        usable[block] = np.isfinite(reference.values[block]) & np.isfinite(oracle.values[block])
        for run in expected.perturbed:
            usable[block] &= np.isfinite(run[index].values[block])
        with np.errstate(invalid="ignore", over="ignore"):
            usable[block] &= np.abs(wide(oracle.values[block])) <= NEAR_OVERFLOW * largest
    if usable.all():
        return reference
    return replace(reference, values=np.where(usable, reference.values, np.asarray(np.nan, dtype=reference.values.dtype)))


def _value_problem(got: Leaf, oracle: Leaf, own: Errors, theirs: Errors, limit: float, element_limit: float) -> str | None:
    if theirs.norm > limit:
        return (f"{_named(got.path)}: error {theirs.norm:.3g}, limit {limit:.3g} (the reference's own: {own.norm:.3g}); "
                f"{_example(theirs, got, oracle)}")
    if theirs.largest > element_limit:
        return (f"{_named(got.path)}: one element is off by {theirs.largest:.3g}, limit {element_limit:.3g}; "
                f"{_example(theirs, got, oracle)}")
    return None


def _equal_limits(reference: Leaf, oracle: Leaf, own: Errors, no_oracle: bool) -> tuple[float, float, list[str]]:
    if not reference.floating:
        # Another rounding may flip near-ties (argmax) as often as float64 flips the reference's.
        return REFERENCE_FACTOR * own.norm, math.inf, []
    eps, few = reference.eps, math.prod(reference.shape) < FEW_ELEMENTS
    size = largest_finite(oracle.values)
    if no_oracle:
        factor = NO_ORACLE_EPS_FACTOR.get(reference.dtype, NO_ORACLE_EPS_FACTOR_NARROW)
        return factor * eps, ELEMENT_FACTOR * factor * eps * size, []
    if ill_conditioned(reference, own.norm):
        note = f"ill-conditioned: the reference's own error is {own.norm:.2g}"
        return ILL_FACTOR * own.norm, ILL_FACTOR * ELEMENT_FACTOR * (own.largest + eps * size), [note]
    factor = FEW_EPS_FACTOR if few else EPS_FACTOR.get(reference.dtype, EPS_FACTOR_NARROW)
    limit = REFERENCE_FACTOR * own.norm + factor * eps
    return limit, ELEMENT_FACTOR * (own.largest + eps * size), []


def _yardstick(index: int, expected: Expected, level: Precision, oracle: Leaf, reference: Leaf) -> tuple[float, float, str]:
    runs = [errors_of(run[index], oracle, reference) for run in expected.yardstick]
    runs = [run for run in runs if math.isfinite(run.norm)]
    if runs:
        return max(run.norm for run in runs), max(run.largest for run in runs), f"limit from the reference run in {level}"
    roundoff = UNIT_ROUNDOFF[level] if reference.floating else 0.0
    size = largest_finite(oracle.values)
    return roundoff, roundoff * size, f"limit from {level}'s unit roundoff"


def _example(errors: Errors, got: Leaf, oracle: Leaf) -> str:
    place = errors.worst_index
    where = "sample" if got.sampled else [int(i) for i in np.unravel_index(place, got.shape)] if got.shape else []
    return f"at {where} expected {_number(oracle.values[place])}, got {_number(got.values[place])}"


def _number(value: Any) -> str:
    return f"{value:.7g}" if np.isrealobj(value) else str(value)


def _finite(value: float) -> float:
    """JSON has no infinity: the largest float stands for it."""
    return value if math.isfinite(value) else 1.7976931348623157e308


def _named(path: str) -> str:
    return f"output {path!r}" if path else "the output"
