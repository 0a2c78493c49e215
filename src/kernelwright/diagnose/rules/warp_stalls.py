"""What most warps of a kernel wait for, where that keeps it from its roof."""

from __future__ import annotations

from ...model.base import Abstained
from ...model.profile import Profile
from ...roofline.knowledge import Rule
from ..common import Outcome
from ..counters import Launch, Symptom, check_launches, missing, room

NAME = "warp_stalls"
REASONS = ("long_scoreboard", "short_scoreboard", "barrier", "math_pipe_throttle", "mio_throttle", "lg_throttle", "wait", "gmma",
           "tex_throttle", "no_instruction", "branch_resolving", "dispatch_stall", "drain", "imc_miss", "membar", "sleeping", "misc")
"""Stalls that are a reason; being issued, and waiting for another warp's issue, are none."""


def check(profile: Profile, rule: Rule) -> Outcome:
    """Gain: share of the warps' time in the commonest stall x the part of the time that no pipe and no DRAM use.

    Silent where the schedulers issue often enough anyway, or no one reason stands out.
    """
    def measure(row: Launch) -> Symptom | Abstained | None:
        issue = row.get("issue_pct")
        shares = [(share, reason) for reason in REASONS if (share := row.get(f"stall_{reason}_pct")) is not None]
        if issue is None or not shares:
            return missing(row, "issue_pct", "stall_long_scoreboard_pct")
        share, reason = max(shares)
        if issue >= rule.thresholds["issue_pct"] or share < rule.thresholds["stall_pct"]:
            return None
        words = {"reason": rule.texts[f"{reason}_words"], "issue": f"{issue:.0f}"}
        return Symptom(share, share / 100 * room(row), reason, words)

    return check_launches(profile, rule, NAME, measure, trigger="top_stall={value:.0f}%")
