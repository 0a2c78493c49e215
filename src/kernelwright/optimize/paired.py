"""Durations of the original and of the kept candidate as the judge timed them: in pairs, so that they agree with its verdict.

Two profiles taken minutes apart differ by the machine's drift, which can exceed what a candidate gains.
"""

from __future__ import annotations

from ..diagnose import diagnose
from ..model.base import Figure
from ..model.measurement import PAIRED, Measurement
from ..model.profile import Profile
from ..model.verdict import Comparison

NOTE = ("Duration and the rates over it are the judge's: timed in pairs with the other version of this call. "
        "The timeline and what is read from it are this profile's own.")

NOTABLE_SPREAD = 1.5
"""The original's medians within one run may differ by this factor before that is a warning (locked clocks, quiet machine: 1.05)."""
FAR_WORDS = "Here the two durations differ {factor:.1f}-fold: shares of a stage rest on the profile's, those of the call on the judge's."


def paired(comparison: Comparison) -> tuple[Measurement, Measurement]:
    """(original, candidate) of a judgement. The interval of the pair stands on the candidate's side: the original's median over the
    ends of the speed-up's interval; a candidate's median outside it, and an original's own interval that reaches it, give way."""
    old, new = comparison.reference, comparison.candidate
    low, high = old.median_ns / comparison.interval[1], old.median_ns / comparison.interval[0]
    new = new.model_copy(update={"ci95_low_ns": low, "ci95_high_ns": high, "median_ns": min(max(new.median_ns, low), high)})
    if old.ci95_low_ns <= high and low <= old.ci95_high_ns and not low <= old.median_ns <= high:
        old = old.model_copy(update={"ci95_low_ns": old.median_ns, "ci95_high_ns": old.median_ns})
    return _named(old), _named(new)


def restated(profile: Profile, timing: Measurement | None) -> Profile:
    """The profile with this timing for its own, and all that rests on it: achieved rates, shares of the roofs, bottleneck and findings.
    None: as it is."""
    if timing is None:
        return profile
    own, work, note = profile.timing, profile.work, NOTE
    factor = own.median_ns / timing.median_ns if own is not None and timing.median_ns > 0 else 1.0
    if max(factor, 1.0 / factor if factor else 1.0) >= NOTABLE_SPREAD:
        note = f"{NOTE} {FAR_WORDS.format(factor=max(factor, 1.0 / factor))}"
    if work is not None:
        work = work.model_copy(update={
            "achieved_compute": _scaled(work.achieved_compute, factor), "achieved_bandwidth": _scaled(work.achieved_bandwidth, factor),
            "compute_pct": None if work.compute_pct is None else work.compute_pct * factor,
            "bandwidth_pct": None if work.bandwidth_pct is None else work.bandwidth_pct * factor})
    return diagnose(profile.model_copy(update={"timing": timing, "work": work, "warnings": (*profile.warnings, note), "abstained": ()}))


def _named(timing: Measurement) -> Measurement:
    return timing.model_copy(update={"timer": f"{timing.timer or 'timer not recorded'}, {PAIRED}"})


def _scaled(figure: Figure | None, factor: float) -> Figure | None:
    return None if figure is None else figure.model_copy(update={"value": figure.value * factor})
