"""Workloads on which a comparison of outputs sees little: an input or a weight that the output hardly depends on, a constant output."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.verdict import OutputError
from .correctness import ILL_CONDITIONED
from .replies import Surveyed

MAX_NAMES = 6
_SUFFIX = "a candidate that ignores it would pass"


def warnings_of(survey: Surveyed, errors: Sequence[OutputError]) -> tuple[str, ...]:
    """What a candidate could leave out without leaving its limits (the widest one of the generator's own rounds)."""
    limits = [error.limit for error in errors if error.reference_error <= ILL_CONDITIONED]
    if not survey.applicable or not limits:
        return ()
    limit = max(limits)
    unseen = [item for item in survey.dependence if item.change <= limit]
    found = []
    if any(item.what == "all inputs" for item in unseen):
        found.append("degenerate problem: the output hardly depends on the inputs at all: a candidate that returns a constant would pass")
    else:
        found += _named("input", [item.name for item in unseen if item.what == "input"])
    found += _named("weight", [item.name for item in unseen if item.what == "weight"])
    if survey.spread is not None and survey.spread <= limit:
        found.append(f"degenerate problem: the output is nearly one constant (it varies by {survey.spread:.2g} of its size)")
    return tuple(found)


def _named(what: str, names: Sequence[str]) -> list[str]:
    words = [f"degenerate problem: the output does not depend on {what} {name or 'x'}: {_SUFFIX}" for name in names[:MAX_NAMES]]
    return [*words, f"degenerate problem: nor on {len(names) - MAX_NAMES} more"] if len(names) > MAX_NAMES else words
