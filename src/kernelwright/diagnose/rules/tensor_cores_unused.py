"""float32 matrix products on the float32 pipes of a device whose tensor cores could do them."""

from __future__ import annotations

import re

from ...model.base import Abstained
from ...model.profile import Finding, Operator, Profile
from ...roofline.counters import known
from ...roofline.knowledge import Rule, datasheet
from ..common import NO_TIMELINE, Outcome, bounded, call_share_pct, heaviest_source, matching, time_of

NAME = "tensor_cores_unused"
PRODUCTS = ("tensor_flops_tf32", "tensor_flops_bf16", "tensor_flops_fp16")
"""Operations that a float32 product on tensor cores can consist of."""


def check(profile: Profile, rule: Rule) -> Outcome:
    """Gain: share of the time x (1 - float32 peak / TF32 peak), both from the datasheet.

    Counted tensor operations tell what ran where; without counters the kernels' names do.
    """
    if profile.capture_metadata.device != "cuda":
        return None
    if profile.timeline is None:
        return Abstained(name=NAME, reason=NO_TIMELINE)
    products = [operator for operator in matching(profile.operators, rule.patterns["operators"])
                if operator.dtype == "float32" and not _on_tensor_cores(operator, rule)]
    share = call_share_pct(profile, time_of(products))
    if share is None or share < rule.thresholds["share_pct"]:
        return None
    peaks = sheet.compute_tflops if (sheet := datasheet(profile.capture_metadata.device_name)) else {}
    if "tf32" not in peaks or "float32" not in peaks:
        return Abstained(name=NAME, reason=f"no TF32 and float32 peaks are known for {profile.capture_metadata.device_name}")
    ratio = peaks["tf32"] / peaks["float32"]
    if ratio < rule.thresholds["ratio"]:
        return None
    names = {operator.stage or operator.operator_name for operator in products}
    return Finding(
        rule=NAME, name=rule.name, detail=rule.detail.format(share=share, ratio=ratio), where=heaviest_source(products),
        stage=next(iter(names)) if len(names) == 1 else None, estimated_gain_pct=bounded(share * (1 - 1 / ratio)),
        trigger=f"float32_product_share={share:.0f}%", hint=rule.hint,
        evidence="counters" if all(_counted(operator) is not None for operator in products) else "timeline")


def _on_tensor_cores(operator: Operator, rule: Rule) -> bool:
    counted = _counted(operator)
    if counted is not None:
        return counted
    return any(re.search(rule.patterns["tensor_kernels"], kernel.kernel_name) for kernel in operator.kernels)


def _counted(operator: Operator) -> bool | None:
    """Whether its kernels did operations on tensor cores; None where a kernel's counters do not tell."""
    distinct = {kernel.metrics.measured_kernel_id or kernel.kernel_id: kernel for kernel in operator.kernels if kernel.category == "kernel"}
    counts = [known(role, kernel.metrics.raw) for kernel in distinct.values() for role in PRODUCTS]
    return None if not counts or None in counts else any(counts)
