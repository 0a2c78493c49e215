"""Waves per SM: too few blocks to fill the GPU."""

from __future__ import annotations

from ...model.base import Abstained
from ...model.profile import Profile
from ...roofline.knowledge import Rule
from ..common import Outcome
from ..counters import Launch, Symptom, check_launches, healthy, missing, room

NAME = "waves"


def check(profile: Profile, rule: Rule) -> Outcome:
    """Gain: the part of the block slots that stays empty, where no pipe and no DRAM is busy.

    Exactly one wave is a persistent kernel, which loses nothing.
    """
    limit = healthy(rule)

    def measure(row: Launch) -> Symptom | Abstained | None:
        waves = row.get("waves_per_sm")
        if waves is None:
            return missing(row, "waves_per_sm")
        if limit.holds(waves) or waves == limit.above:
            return None
        words = {"blocks": f"{row.get('blocks') or 0:.0f}", "sms": f"{row.get('sm_count') or 0:.0f}"}
        return Symptom(waves, (1.0 - waves) * room(row), words=words)

    return check_launches(profile, rule, NAME, measure, trigger="waves_per_sm={value:.3g}")
