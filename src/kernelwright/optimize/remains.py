"""How far a call is from what the device allows, before and after, and where the rest is.

The bound of a call is the larger of two least times: its counted FLOPs over a pipe's peak, and inputs, parameters and outputs once over
the bandwidth of DRAM (Williams, Waterman & Patterson 2009, Roofline). Nothing that computes the same FLOPs on that pipe can be faster.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..model.base import Figure
from ..model.profile import Profile, Stage
from ..report.figures import headline, in_unit
from ..report.numbers import percent, two, us
from ..report.roofline import ceiling_name
from ..roofline.ceilings import value_of
from .ending import NA, Ending
from .paired import paired

MOST_PLACES = 8
"""Rows of "what is left where"."""


@dataclass(frozen=True)
class Bound:
    """One least time of a call."""

    name: str
    peak: Figure
    least_ns: float


@dataclass(frozen=True)
class Place:
    """Where a call's time goes: a stage, or the device waiting."""

    name: str
    time_ns: float
    roof_ns: float | None
    """Its time at its nearest roof; None where that is not known."""
    roof: str


def bounds(profile: Profile) -> list[Bound]:
    """Least times of one call of the workload on every pipe that its arithmetic could use, and of its DRAM traffic; [] where its work or
    the device's roofs are not known."""
    work, roof = profile.work, profile.roofline
    if work is None or roof is None:
        return []
    flops = work.flops.value if work.flops is not None else 0.0
    moved = work.min_bytes.value if work.min_bytes is not None else 0.0
    found = []
    for ceiling in roof.ceilings:
        peak = value_of(ceiling)
        amount, scale = (flops, 1e3) if ceiling.kind == "compute" else (moved if ceiling.name == "dram" else 0.0, 1.0)
        if amount > 0 and peak.value > 0:
            found.append(Bound(ceiling_name(ceiling), peak, amount / (peak.value * scale)))
    return found


def in_use_ns(profile: Profile) -> float | None:
    """The bound at the arithmetic in use: what the work takes at the peaks that the profile's own shares are taken of."""
    work, roof = profile.work, profile.roofline
    if work is None or roof is None:
        return None
    pairs = [(work.flops, in_unit(roof.peak_compute or roof.datasheet_compute, "TFLOP/s"), 1e3),
             (work.min_bytes, in_unit(roof.peak_bandwidth or roof.datasheet_bandwidth, "GB/s"), 1.0)]
    least = [amount.value / (peak * scale) for amount, peak, scale in pairs if amount is not None and amount.value > 0 and peak]
    return max(least, default=None)


def durations(end: Ending) -> tuple[float | None, float | None]:
    """(before, after) of one call, ns: the judge's paired ones where something was kept."""
    comparison = end.kept.verdict.comparison if end.kept else None
    if comparison is None:
        return headline(end.baseline).duration_ns, None
    before, after = paired(comparison)
    return before.median_ns, after.median_ns


def bound_rows(end: Ending) -> list[dict[str, str]]:
    """The table of bounds: each with the share of it that the original and what was kept reach. Roofs of both profiles' arithmetic."""
    before, after = durations(end)
    profiles = [_same_work(profile, end) for profile in (end.after, end.baseline) if profile is not None]
    found = {bound.name: bound for profile in profiles for bound in bounds(profile)}
    return [{
        "name": bound.name, "peak": f"{two(bound.peak.value)} {bound.peak.unit} ({bound.peak.evidence})", "least": us(bound.least_ns),
        "before": _share(bound.least_ns, before), "after": _share(bound.least_ns, after),
    } for bound in sorted(found.values(), key=lambda bound: bound.least_ns)]


def reached(end: Ending) -> dict[str, str] | None:
    """Share of the bound at the arithmetic in use, before and after, and the most that is possible there ("" where the original is beyond
    it already: it uses another pipe); None where it is not known.

    What was kept may use the pipes that the original uses, although its profile may not tell (the work of one CUDA graph has no operators):
    so the bound after is never longer.
    """
    before, after = durations(end)
    old_ns = in_use_ns(end.baseline)
    new_ns = in_use_ns(_same_work(end.after, end)) if end.after is not None else None
    if old_ns is None or before is None:
        return None
    ending = end.after if new_ns is not None and new_ns < old_ns else end.baseline
    new_ns = min(new_ns, old_ns) if new_ns is not None else None
    return {
        "before": _share(old_ns, before), "after": _share(new_ns, after), "least": us(old_ns), "least_after": us(new_ns),
        "dtype": end.baseline.roofline.dtype if end.baseline.roofline else NA,
        "dtype_after": ending.roofline.dtype if end.after is not None and ending is not None and ending.roofline else NA,
        "most": _times(before / old_ns) if 0 < old_ns < before else "",
    }


def places(profile: Profile) -> list[Place]:
    """One call's time by stage, the heaviest first, the device's waiting last."""
    found = [_place(stage) for stage in profile.stages]
    found.sort(key=lambda place: -place.time_ns)
    duration, idle = headline(profile).duration_ns, headline(profile).idle_pct
    if duration is not None and idle and profile.capture_metadata.device != "cpu":  # a CPU's stages hold what is outside operators
        found.append(Place("the device waits", duration * idle / 100, 0.0, "launches and gaps"))
    return found


def left(profile: Profile) -> list[dict[str, str]]:
    """What is left above the roofs, the largest first; stages whose roof is not known stand with n/a, by their time."""
    rows = sorted(places(profile), key=lambda place: -_above(place))
    duration = sum(place.time_ns for place in rows)
    table = [{
        "name": place.name, "time": us(place.time_ns), "share": _share(place.time_ns, duration),
        "of_roof": NA if place.roof_ns is None or not place.roof_ns else f"{_share(place.roof_ns, place.time_ns)} ({place.roof})",
        "left": NA if place.roof_ns is None else us(max(0.0, place.time_ns - place.roof_ns)),
    } for place in rows[:MOST_PLACES]]
    rest = rows[MOST_PLACES:]
    if rest:
        total = sum(place.time_ns for place in rest)
        known = [max(0.0, place.time_ns - place.roof_ns) for place in rest if place.roof_ns is not None]
        table.append({"name": f"{len(rest)} more", "time": us(total), "share": _share(total, duration), "of_roof": NA,
                      "left": us(sum(known)) if len(known) == len(rest) else NA})
    return table


def _above(place: Place) -> float:
    return place.time_ns - (place.roof_ns or 0.0)


def _place(stage: Stage) -> Place:
    time_ns = stage.call_ns if stage.call_ns is not None else stage.duration_ns
    roof_ns = time_ns * min(stage.roof_pct, 100.0) / 100 if stage.roof_pct is not None else None
    return Place(stage.name, time_ns, roof_ns, stage.binding_roof or NA)


def _same_work(profile: Profile, end: Ending) -> Profile:
    """The work is the original's on both sides: compiled code can't be counted, and must do the same."""
    return profile.model_copy(update={"work": end.baseline.work})


def _times(factor: float) -> str:
    return f"{factor:.2f}x" if factor < 100 else f"{factor:,.0f}x"


def _share(part: float | None, whole: float | None) -> str:
    if part is None or not whole:
        return NA
    share = 100 * part / whole
    return percent(share) if share >= 1 else f"{two(share)}%"
