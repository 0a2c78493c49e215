"""Calls that make the host wait for the device inside a step, so that the device then waits for the host."""

from __future__ import annotations

from ...model.activity import Synchronization
from ...model.base import Abstained
from ...model.profile import Finding, Profile
from ...roofline.knowledge import Rule
from ..activity import MOST_PLACES, idle_share_pct, kind_of, recorded
from ..common import Outcome

NAME = "synchronisation"


def check(profile: Profile, rule: Rule) -> Outcome:
    """At most the device's idle time after the waits could go; a wait that costs no idle time is no finding."""
    known = recorded(NAME, profile)
    if isinstance(known, Abstained):
        return known
    timeline, activity = known
    share = idle_share_pct(timeline, activity.synchronization_idle_ns)
    if not activity.synchronizations or share < rule.thresholds["idle_share_pct"]:
        return None
    places = sorted(_places(activity.synchronizations, rule).items(), key=lambda item: -item[1][1])
    (kind, where), _ = places[0]
    count = activity.synchronization_count / timeline.steps
    listed = [rule.texts["place"].format(label=rule.texts[f"{each}_label"], where=line or rule.texts["no_line"],
                                         count=calls / timeline.steps) for (each, line), (calls, _) in places[:MOST_PLACES]]
    return Finding(
        rule=NAME, name=rule.name.format(label=rule.texts[f"{kind}_label"]), where=where, estimated_gain_pct=share,
        detail=rule.detail.format(count=count, wait_us=activity.synchronization_wait_ns / timeline.steps / 1e3, share=share,
                                  places=", ".join(listed), more=rule.texts["more"].format(count=len(places) - MOST_PLACES)
                                  if len(places) > MOST_PLACES else ""),
        trigger=f"syncs_per_step={count:.3g}", evidence="timeline", hint=rule.texts[kind])


def _places(rows: tuple[Synchronization, ...], rule: Rule) -> dict[tuple[str, str | None], tuple[int, int]]:
    """(kind, line) -> (calls, cost): idle time first, else the wait."""
    places: dict[tuple[str, str | None], tuple[int, int]] = {}
    for row in rows:
        text = f"{' > '.join(row.operators)} | {row.copies or 'no copy'} | {row.call}"
        key = kind_of(rule, text, "other"), row.where
        calls, cost = places.get(key, (0, 0))
        places[key] = calls + row.count, cost + row.idle_ns
    return places
