"""One kernel, or one attention that is written out as several, holds most of the device's time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ...model.base import Abstained
from ...model.profile import Finding, Operator, Profile
from ...roofline.knowledge import Rule
from ...roofline.peaks import binding_peaks
from ...roofline.use import Counting, binding, shares
from ..activity import NO_GPU, kind_of, share_of_call_pct
from ..attention import product_flops, unfused_attention
from ..common import NO_TIMELINE, Outcome, bounded, heaviest_source, is_cpu_timeline, page, time_of

NAME = "kernel_bottleneck"


def check(profile: Profile, rule: Rule) -> Outcome:
    """Gain: share of the call x (1 - least time that its FLOPs and bytes need at the peaks / its time)."""
    timeline = profile.timeline
    if timeline is None:
        return Abstained(name=NAME, reason=NO_TIMELINE)
    if is_cpu_timeline(profile):
        return Abstained(name=NAME, reason=NO_GPU)
    if timeline.measured_ns <= 0:
        return None
    attention = unfused_attention(profile.operators)
    if 100.0 * time_of(attention) / timeline.measured_ns >= rule.thresholds["share_pct"]:
        return _attention(profile, rule, attention, timeline.measured_ns)
    return _kernel(profile, rule, timeline.measured_ns)


def _attention(profile: Profile, rule: Rule, operators: Sequence[Operator], measured_ns: int) -> Outcome:
    duration = time_of(operators)
    share = 100.0 * duration / measured_ns
    peak = binding_peaks(profile.roofline)[0] if profile.roofline is not None else None
    least = product_flops(operators) / peak.value * 1e-3 if peak is not None and peak.value > 0 else None  # FLOP / (TFLOP/s) in ns
    if least is None:
        return Abstained(name=NAME, reason=f"attention written out takes {share:.0f}% of the device's time, but no peak bounds the gain")
    fallback = any("_scaled_dot_product_attention_math" in parent for operator in operators for parent in operator.parents)
    return Finding(
        rule=NAME, name=rule.texts["attention_name"], where=heaviest_source(operators),
        detail=rule.texts["attention_detail"].format(share=share, kernels=sum(len(operator.kernels) for operator in operators)
                                                     / (profile.timeline.steps if profile.timeline else 1)),
        estimated_gain_pct=bounded(share_of_call_pct(profile, duration) * (1 - min(least / duration, 1.0))),
        trigger=f"unfused_attention_share={share:.0f}%", evidence="timeline",
        hint=rule.texts["attention_fallback" if fallback else "attention"], playbook=page(rule, "fused_attention"))


def _kernel(profile: Profile, rule: Rule, measured_ns: int) -> Outcome:
    times: dict[str, int] = defaultdict(int)
    for operator in profile.operators:
        for kernel in operator.kernels:
            if kernel.category == "kernel":
                times[kernel.kernel_name] += kernel.duration_ns
    if not times:
        return None
    name = max(times, key=lambda each: (times[each], each))
    share = 100.0 * times[name] / measured_ns
    of_call = share_of_call_pct(profile, times[name])
    if share < rule.thresholds["share_pct"] or of_call < rule.thresholds["call_share_pct"]:
        return None
    holders = [operator for operator in profile.operators if any(kernel.kernel_name == name for kernel in operator.kernels)]
    best = _counted_share(profile, holders, name)
    best = _roof_share(profile, holders) if best is None else best
    if best is None:
        return Abstained(name=NAME, reason=f"{name[:60]} takes {share:.0f}% of the device's time, but neither its FLOPs nor its bytes "
                                           "are known against a peak")
    if best >= rule.thresholds["best_pct"]:
        return None
    operator_names = sorted({operator.operator_name for operator in holders})
    stages = {operator.stage or operator.operator_name for operator in holders}
    kind = kind_of(rule, f"{operator_names[0]} {name}", "other")
    return Finding(
        rule=NAME, name=rule.name.format(operator=operator_names[0]), where=heaviest_source(holders),
        stage=next(iter(stages)) if len(stages) == 1 else None,
        detail=rule.detail.format(kernel=name[:80], operator=", ".join(operator_names[:3]), share=share, best=best),
        estimated_gain_pct=bounded(of_call * (1 - best / 100)), trigger=f"kernel_share={share:.0f}%", evidence="timeline",
        hint=rule.texts[kind], playbook=page(rule, kind))


def _counted_share(profile: Profile, operators: Sequence[Operator], name: str) -> float | None:
    """Share of the binding roof by counters, %; None without them."""
    kernels = [kernel for operator in operators for kernel in operator.kernels if kernel.kernel_name == name]
    use = Counting.for_profile(profile).use(kernels)
    nearest = binding(shares(use, profile.roofline)) if use.covered and profile.roofline is not None else None
    return nearest[0] if nearest is not None else None


def _roof_share(profile: Profile, operators: Sequence[Operator]) -> float | None:
    """Least time that the operators' FLOPs and bytes need at the peaks, in % of their time, at most 100."""
    compute, bandwidth = binding_peaks(profile.roofline) if profile.roofline is not None else (None, None)
    least, known = 0.0, False
    for operator in operators:
        bounds = [amount / peak.value * scale for amount, peak, scale in
                  ((operator.flops, compute, 1e-3), (operator.min_bytes, bandwidth, 1.0))
                  if amount is not None and peak is not None and peak.value > 0]
        known = known or bool(bounds)
        least += max(bounds, default=0.0)
    duration = time_of(operators)
    return min(100.0 * least / duration, 100.0) if known and duration > 0 else None
