"""Runs all rules on a profile and ranks what they found."""

from __future__ import annotations

from ..attribute.cpu import OUTSIDE
from ..model.base import Abstained
from ..model.profile import Finding, Profile, Stage
from ..roofline.knowledge import bottlenecks
from ..roofline.stages import is_real
from ..roofline.use import CACHED_PCT
from .bottleneck import bottleneck, classify
from .common import is_cpu_timeline, page, share_words, stage_roof
from .rules import RULES


def diagnose(draft: Profile) -> Profile:
    """The profile with bottleneck, findings (largest estimated gain first), abstentions and the stages' verdicts.

    Works on what the capture has: without a timeline the rules that need one abstain.
    """
    findings: list[Finding] = []
    abstained: list[Abstained] = []
    for name, check in RULES.items():
        rule = bottlenecks().rules[name]
        outcome = check(draft, rule)
        if isinstance(outcome, Finding):
            findings.append(outcome if outcome.playbook else outcome.model_copy(update={"playbook": page(rule)}))
        elif isinstance(outcome, Abstained):
            abstained.append(outcome)
    findings = [finding for finding in findings if not _replaced(finding, findings)]
    findings.sort(key=lambda finding: (-finding.estimated_gain_pct, finding.rule))
    return draft.model_copy(update={
        "bottleneck": bottleneck(draft), "findings": tuple(findings), "abstained": (*draft.abstained, *abstained),
        "stages": tuple(_judged(draft, stage, findings) for stage in draft.stages)})


def _replaced(finding: Finding, findings: list[Finding]) -> bool:
    better = bottlenecks().rules[finding.rule].yields_to
    return any(other.rule in better and other.stage is not None and other.stage == finding.stage for other in findings)


def _judged(profile: Profile, stage: Stage, findings: list[Finding]) -> Stage:
    if not is_real(stage):
        return stage.model_copy(update={"key_issue": _outside(profile, stage)})
    counted = stage.pipe_pct is not None and stage.dram_pct is not None
    bandwidth = None if _cached(stage) else stage.bandwidth_pct
    kind = classify(stage.pipe_pct, stage.dram_pct) if counted else classify(stage.compute_pct, bandwidth)
    return stage.model_copy(update={"bottleneck": kind, "key_issue": _key_issue(stage, findings)})


def _key_issue(stage: Stage, findings: list[Finding]) -> str | None:
    """The largest finding about this stage in a few words, else how near it is to its roof."""
    best = stage_roof(stage)
    known = {"best": share_words(best[0]), "roof": best[1]} if best is not None else {}
    for finding in findings:
        if finding.stage == stage.name and (words := bottlenecks().rules[finding.rule].key_issue):
            return words.format(**known)
    if best is not None and best[1] == "memory" and _cached(stage):
        return bottlenecks().texts["cached_issue"]
    return None if best is None else f"{best[0]:.0f}% of {best[1]} roof"


def _cached(stage: Stage) -> bool:
    """Its least bytes come faster than memory can give them, so it is not memory that it waits for."""
    return stage.bandwidth_pct is not None and stage.bandwidth_pct > CACHED_PCT


def _outside(profile: Profile, stage: Stage) -> str | None:
    """Of a CPU's time outside operators: what of it the unprofiled call has, where that is known; the row's time has the profiler's too."""
    line = profile.timeline
    if line is None or not is_cpu_timeline(profile) or stage.name != OUTSIDE or line.profiled_idle_share_pct is None:
        return stage.key_issue
    return stage.key_issue if line.idle_share_pct is None else bottlenecks().texts["outside_issue"].format(
        idle=line.idle_share_pct, profiled=line.profiled_idle_share_pct)
