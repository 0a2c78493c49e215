"""How far a call is from what the device allows, before and after, and where the rest is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..model.profile import Profile, Stage
from ..model.roofline import Ceiling
from ..report.figures import headline
from ..report.numbers import percent, two, us
from ..report.roofline import ceiling_name
from ..roofline.ceilings import value_of
from .ending import NA, Ending
from .paired import paired
from .passes import CATALOGUE
from .passes.bounds import Bound, bound_of, in_use, work_of

MOST_PLACES = 8
"""Rows of "what is left where"."""


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
    flops, moved = work_of(profile)
    found = []
    for ceiling in profile.roofline.ceilings if profile.roofline is not None else ():
        peak = value_of(ceiling)
        amount, scale = (flops, 1e3) if ceiling.kind == "compute" else (moved if ceiling.name == "dram" else 0.0, 1.0)
        if amount > 0 and peak.value > 0:
            found.append(Bound(ceiling_name(ceiling), peak, amount / (peak.value * scale)))
    return found


def of_passes(profile: Profile, passes: Iterable[str]) -> dict[str, Bound | None]:
    """Pass -> the least time of the workload's products in the arithmetic that it brings along, of those that do; None where that pipe's
    peak is not known. Error-compensated products are several narrow ones for one."""
    flops, _ = work_of(profile)
    found: dict[str, Bound | None] = {}
    for name in passes:
        products = CATALOGUE[name].products if name in CATALOGUE else None
        if products is not None:
            ceiling = _narrow_ceiling(profile, products.dtype)
            words = f"{ceiling_name(ceiling)}{f', {products.times} products for one' if products.times > 1 else ''}" if ceiling else ""
            found[name] = bound_of(words, value_of(ceiling), "TFLOP/s", products.times * flops, 1e3) if ceiling else None
    return found


def _narrow_ceiling(profile: Profile, dtype: str) -> Ceiling | None:
    roof = profile.roofline
    known = (*roof.ceilings, *roof.other_pipes) if roof is not None else ()
    return next((ceiling for ceiling in known if ceiling.name in (f"tensor:{dtype}", f"matmul:{dtype}")), None)


def durations(end: Ending) -> tuple[float | None, float | None]:
    """(before, after) of one call, ns: the judge's paired ones where something was kept."""
    comparison = end.kept.verdict.comparison if end.kept else None
    if comparison is None:
        return headline(end.baseline).duration_ns, None
    before, after = paired(comparison)
    return before.median_ns, after.median_ns


def bound_rows(end: Ending) -> list[dict[str, str]]:
    """The table of bounds: each with the share of it that the original and what was kept reach. Roofs of the original's arithmetic and of
    what the kept passes brought along."""
    before, after = durations(end)
    brought = of_passes(end.baseline, end.kept.row.passes if end.kept else ()).values()
    found = {bound.name: bound for bound in (*bounds(end.baseline), *brought) if bound is not None}
    return [{
        "name": bound.name, "peak": f"{two(bound.peak.value)} {bound.peak.unit} ({bound.peak.evidence})", "least": us(bound.least_ns),
        "before": _share(bound.least_ns, before), "after": _share(bound.least_ns, after),
    } for bound in sorted(found.values(), key=lambda bound: bound.least_ns)]


def reached(end: Ending) -> dict[str, str] | None:
    """Share of the bound, before and after, each with the ceiling that sets it, and the most that is possible at the arithmetic of the
    original ("" where the original is beyond it already: it uses another pipe); None where it is not known."""
    before, after = durations(end)
    old = max((bound for bound in in_use(end.baseline) if bound is not None), key=_least_ns, default=None)
    if old is None or before is None:
        return None
    new, at_most = bound_after(end)
    return {
        "before": _share(old.least_ns, before), "least": us(old.least_ns), "ceiling": old.name,
        "dtype": end.baseline.roofline.dtype if end.baseline.roofline else NA,
        "after": NA if new is None else f"{'at most ' if at_most else ''}{_share(new.least_ns, after)}",
        "least_after": us(new.least_ns if new is not None else None), "ceiling_after": new.name if new is not None else NA,
        "most": _times(before / old.least_ns) if 0 < old.least_ns < before else "",
    }


def beyond_roofs_pct(end: Ending) -> float | None:
    """The largest share, in percent, of its bound by arithmetic that the original or what was kept reaches by its paired duration; None:
    not known. What lies in a cache is not bound by DRAM."""
    (old, dram), (new, _) = in_use(end.baseline), bound_after(end)
    pairs = zip((old, None if new == dram else new), durations(end), strict=True)
    return max((100 * bound.least_ns / took_ns for bound, took_ns in pairs if bound is not None and took_ns), default=None)


def bound_after(end: Ending) -> tuple[Bound | None, bool]:
    """(the bound of what was kept, whether it may be shorter than that). Its work is the original's, since compiled code can't be counted;
    its products may run on the fastest pipe that its passes or the original use, whatever its profile tells (that of a CUDA graph has no
    operators). Weights in 16 bits are fewer bytes than those counted, how many fewer is not known: where the counted ones set the bound,
    it is one at most. None: nothing was kept, or a pipe's peak is not known."""
    if end.kept is None:
        return None, False
    products, dram = in_use(end.baseline)
    brought = of_passes(end.baseline, end.kept.row.passes)
    if products is not None:
        if None in brought.values():
            return None, False
        products = min((products, *(bound for bound in brought.values() if bound is not None)), key=_least_ns)
    new = max((bound for bound in (products, dram) if bound is not None), key=_least_ns, default=None)
    return new, new is dram and any(CATALOGUE[name].narrows_weights for name in brought)


def as_kept(end: Ending) -> Profile | None:
    """The profile of what was kept, its stages held against the pipe that its passes brought along: their analytic share of compute is of
    the arithmetic that the flags tell. None: there is none."""
    after = end.after
    brought = of_passes(end.baseline, end.kept.row.passes) if after is not None and end.kept is not None else {}
    if after is None or not brought:
        return after
    known = [bound for bound in brought.values() if bound is not None]
    flags, _ = in_use(after.model_copy(update={"work": end.baseline.work}))
    slower = min(known, key=_least_ns).least_ns / flags.least_ns if flags is not None and len(known) == len(brought) else None
    return after.model_copy(update={"stages": tuple(_at_pipe(stage, slower) for stage in after.stages)})


def _at_pipe(stage: Stage, slower: float | None) -> Stage:
    """A stage with its share of the compute roof times `slower`, where that is below 1; None: how high the roof is is not known."""
    if stage.roof_evidence == "counters" or stage.compute_pct is None or (slower is not None and slower >= 1):
        return stage
    if slower is None:
        return stage.model_copy(update={"roof_pct": None, "binding_roof": None})
    shares = {"compute": slower * stage.compute_pct, "memory": stage.bandwidth_pct or 0.0}
    nearest = max(shares, key=lambda name: shares[name])
    return stage.model_copy(update={"roof_pct": shares[nearest], "binding_roof": nearest})


def _least_ns(bound: Bound) -> float:
    return bound.least_ns


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


def _times(factor: float) -> str:
    return f"{factor:.2f}x" if factor < 100 else f"{factor:,.0f}x"


def _share(part: float | None, whole: float | None) -> str:
    if part is None or not whole:
        return NA
    share = 100 * part / whole
    return percent(share) if share >= 1 else f"{two(share)}%"
