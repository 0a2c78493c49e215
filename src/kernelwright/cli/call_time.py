"""The time of one whole call, which the contract's form has no place for."""

from __future__ import annotations

from typing import Any

from ..model.profile import Profile
from ..report.figures import duration_warning
from ..report.numbers import us


def call_line(profile: Profile) -> str:
    """The time of one whole call with its noise, which the contract's form has no place for (stages need not add up to it)."""
    what = "one step" if profile.script is not None else "one call"
    timing = profile.timing
    if timing is None:
        return f"{what}: n/a (not timed as a whole)"
    between = timing.interval_ns
    interval = f"95% {us(between[0])} to {us(between[1])} us" if between else "no interval: too few samples"
    warning = duration_warning(profile)
    count = f"{timing.samples} sample{'' if timing.samples == 1 else 's'}"
    return (f"{what}: {us(timing.median_ns)} us median ({interval}), {count}, {timing.timer or 'timer not recorded'}"
            + (f"; {warning}" if warning else ""))


def call_data(profile: Profile) -> dict[str, Any]:
    """The same for --json, in us: `duration_us`, `duration_interval_us` (95%) and `duration_warning`, each None where there is none."""
    timing = profile.timing
    if timing is None:
        return {"duration_us": None, "duration_interval_us": None, "duration_warning": None}
    between = timing.interval_ns
    return {"duration_us": timing.median_ns / 1000, "duration_interval_us": [end / 1000 for end in between] if between else None,
            "duration_warning": duration_warning(profile)}
