"""Waves per SM: too few blocks to fill the GPU."""

from __future__ import annotations

from math import ceil

from ...model.base import Abstained
from ...model.profile import Profile
from ...roofline.knowledge import Rule
from ..common import Outcome
from ..counters import Launch, Symptom, check_launches, healthy, missing, room

NAME = "waves"


def check(profile: Profile, rule: Rule) -> Outcome:
    """Gain: the part of the SMs' time without a block, where no pipe and no DRAM is busy.

    b blocks an SM on average take as long as the next whole number of them: 1 - b / ceil(b) is lost (1 - b below one). Exactly one
    wave is a persistent kernel, which loses nothing.
    """
    limit = healthy(rule)

    def measure(row: Launch) -> Symptom | Abstained | None:
        waves = row.get("waves_per_sm")
        if waves is None:
            return missing(row, "waves_per_sm")
        if limit.holds(waves) or waves == limit.above:
            return None
        blocks, sms = row.get("blocks"), row.get("sm_count")
        if blocks is None or not sms:
            return missing(row, "blocks", "sm_count")
        lost = 1.0 - blocks / sms / max(1, ceil(blocks / sms))
        return Symptom(waves, lost * room(row), words={"blocks": f"{blocks:.0f}", "sms": f"{sms:.0f}"})

    return check_launches(profile, rule, NAME, measure, trigger="waves_per_sm={value:.3g}")
