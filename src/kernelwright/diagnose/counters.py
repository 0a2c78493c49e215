"""One check for every counter with a healthy range (knowledge/metrics.yaml)."""

from __future__ import annotations

from ..model.base import Abstained
from ..model.profile import Finding, Kernel, Profile
from ..roofline.knowledge import Metric, Rule, metrics
from .common import NO_COUNTERS, NO_TIMELINE, Outcome, all_kernels, bounded, call_share_pct


def check_metric(name: str, profile: Profile, rule: Rule) -> Outcome:
    """Finding when kernels that hold time are outside the metric's healthy range.

    Gain: their share of the call x how far the metric falls short of healthy (value / limit); where the healthy value is 0,
    the whole share. Abstains when no kernel carries the metric.
    """
    metric = metrics()[name]
    known = [(kernel, value) for kernel in all_kernels(profile) if (value := _value(kernel, metric)) is not None]
    if not known:
        return Abstained(name=name, reason=NO_COUNTERS)
    sick = [(kernel.duration_ns, value) for kernel, value in known if not _healthy(value, metric)]
    duration = sum(weight for weight, _ in sick)
    if duration == 0:
        return None
    share = call_share_pct(profile, duration)
    if share is None:
        return Abstained(name=name, reason=NO_TIMELINE)
    mean = sum(weight * value for weight, value in sick) / duration
    short = 1 - mean / metric.healthy_above if metric.healthy_above else 1.0
    limit = f"> {metric.healthy_above:g}" if metric.healthy_above is not None else f"at most {metric.healthy_at_most:g}"
    return Finding(
        rule=name, name=metric.action,
        detail=rule.detail.format(share=share, label=metric.label, value=mean, unit=metric.unit, healthy=f"{limit}{metric.unit}"),
        estimated_gain_pct=bounded(share * short), trigger=f"{metric.label}={mean:.3g}{metric.unit}", evidence="counters", hint=metric.hint)


def _value(kernel: Kernel, metric: Metric) -> float | None:
    return next((kernel.metrics.raw[name] for name in metric.names if name in kernel.metrics.raw), None)


def _healthy(value: float, metric: Metric) -> bool:
    if metric.healthy_above is not None:
        return value > metric.healthy_above
    return metric.healthy_at_most is None or value <= metric.healthy_at_most
