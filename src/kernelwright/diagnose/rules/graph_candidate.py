"""A stretch of launches that is the same in every step and that one CUDA graph could replace (mode nsys)."""

from __future__ import annotations

from ...model.profile import Finding, Profile
from ...roofline.knowledge import Rule
from ..common import Outcome
from ..idle import call_share_of_idle_pct, recorded_steps

NAME = "graph_candidate"


def check(profile: Profile, rule: Rule) -> Outcome:
    """The gain is the idle time inside the stretches that waited for a launch call (timeline/graph_candidates.py)."""
    if profile.structure is None or not profile.structure.graph_candidates:
        return None
    rows = profile.structure.graph_candidates
    share = call_share_of_idle_pct(profile, sum(row.gain_ns for row in rows) * recorded_steps(profile))
    if share < rule.thresholds["gain_pct"]:
        return None
    largest = rows[0]
    more = rule.texts["more"].format(count=len(rows) - 1) if len(rows) > 1 else ""
    return Finding(
        rule=NAME, name=rule.name, where=largest.first_where, estimated_gain_pct=share, evidence="timeline", hint=rule.hint,
        detail=rule.detail.format(launches=largest.launches, first=largest.first_where or largest.first_kernel[:60],
                                  last=largest.last_where or largest.last_kernel[:60], gain_us=largest.gain_ns / 1e3,
                                  idle_us=largest.idle_ns / 1e3, more=more),
        trigger=f"graph_launches={sum(row.launches for row in rows)}")
