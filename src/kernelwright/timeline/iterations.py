"""Iterations: found by repetition, summed up, and compared launch by launch."""

from __future__ import annotations

from ..model.structure import FoundIterations
from ..model.trace import Trace


def with_found_steps(trace: Trace) -> tuple[Trace, FoundIterations]:
    """The trace with steps that repetition of its launches gives (steps_from "found"), and how far to trust them.

    Times are moved so that 0 is the first found step. A trace whose steps are marked, or in which nothing repeats, comes back as it is;
    FoundIterations says which.
    """
    raise NotImplementedError
