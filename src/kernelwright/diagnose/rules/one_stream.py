"""Pinned copies between kernels of one stream, which could run beside them."""

from __future__ import annotations

from ...model.base import Abstained
from ...model.profile import Finding, Profile
from ...roofline.knowledge import Rule
from ..activity import recorded, share_of_call_pct
from ..common import Outcome, bounded

NAME = "one_stream"


def check(profile: Profile, rule: Rule) -> Outcome:
    """The gain is the stream's time less what an ideal schedule with copy engines of their own takes (timeline/schedule.py)."""
    known = recorded(NAME, profile)
    if isinstance(known, Abstained):
        return known
    timeline, activity = known
    overlap = activity.overlap
    if overlap is None:
        # Kernels on several streams are the change that this rule asks for; on one, only copies are known to be independent.
        reason = "no pinned copy shares a stream with kernels, and a timeline does not say which kernels depend on each other"
        return Abstained(name=NAME, reason=reason)
    saved = overlap.serial_ns - overlap.overlapped_ns
    gain = share_of_call_pct(profile, saved)
    if gain < rule.thresholds["gain_pct"]:
        return None
    return Finding(
        rule=NAME, name=rule.name, where=overlap.where, estimated_gain_pct=bounded(gain), evidence="timeline", hint=rule.hint,
        detail=rule.detail.format(copies=overlap.copies / timeline.steps, copy_us=overlap.copy_ns / timeline.steps / 1e3,
                                  saved_us=saved / timeline.steps / 1e3, streams=activity.streams),
        trigger=f"overlappable_copy_share={gain:.0f}%")
