"""Without a timeline: issuing one call takes the host as long as the call itself."""

from __future__ import annotations

from ...model.base import Abstained
from ...model.profile import Finding, Profile
from ...roofline.knowledge import Rule
from ..common import Outcome, best_of, bounded

NAME = "host_bound"


def check(profile: Profile, rule: Rule) -> Outcome:
    """Decided from host and device times of the same calls; with a timeline, launch_gaps measures it directly.

    The gain is at most the distance to the roof, since device time itself was not measured.
    """
    if profile.capture_metadata.device != "cuda" or profile.timeline is not None:
        return None
    if profile.host_timing is None or profile.timing is None or profile.timing.median_ns <= 0:
        return Abstained(name=NAME, reason="no host times in this capture")
    host, call = profile.host_timing.median_ns, profile.timing.median_ns
    share = 100.0 * host / call
    if share < rule.thresholds["share_pct"]:
        return None
    best = best_of(profile.work.compute_pct, profile.work.bandwidth_pct) if profile.work is not None else None
    if best is None:
        return Abstained(name=NAME, reason=f"the host needs {share:.0f}% of the call to issue it, but no roof bounds the gain")
    return Finding(
        rule=NAME, name=rule.name, detail=rule.detail.format(host_us=host / 1e3, call_us=call / 1e3),
        estimated_gain_pct=bounded(100.0 - best[0]), trigger=f"host_share={share:.0f}%", evidence="events", hint=rule.hint)
