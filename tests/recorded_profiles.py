"""Profiles of recorded runs: a Kineto trace of two steps and an ncu report of one, of the same program on an H200 (tests/data/ncu)."""

from __future__ import annotations

from pathlib import Path

from pydantic import TypeAdapter

from kernelwright.attribute import attribute
from kernelwright.attribute.counters import attach_counters
from kernelwright.attribute.signatures import plan_counters
from kernelwright.diagnose import diagnose
from kernelwright.model.capture import OpRecord, ProbeResult
from kernelwright.model.profile import Bottleneck, CaptureMetadata, ClockReading, Profile
from kernelwright.readers.kineto import read_kineto
from kernelwright.readers.ncu import read_ncu
from kernelwright.roofline import roof, stages, with_product_work, with_roofline
from kernelwright.timeline import summarize
from ncu_reports import DATA, recorded

CAPTURES = {"conv": "conv_block", "gpt2": "gpt2-inductor"}
"""Recording -> the capture whose peaks, operator counts and environment go with it (same machine, same example)."""


def recorded_profile(name: str, folder: Path) -> Profile:
    """The diagnosed profile; every launch of the first step has its own counters. folder: for unpacked files."""
    capture = DATA / "captures" / "h200" / CAPTURES[name]
    result = ProbeResult.model_validate_json((capture / "result.json").read_bytes())
    assert result.environment is not None and result.facts is not None
    ops = TypeAdapter(list[OpRecord]).validate_json((capture / result.ops_file).read_bytes()) if result.ops_file else []
    trace = read_kineto(DATA / "ncu" / f"{name}.json.gz")
    attributed = attribute(trace, ops=ops)
    operators, loose, counters = attach_counters(with_product_work(attributed.operators), attributed.unattributed,
                                                 plan_counters(trace, share=1.0), read_ncu(recorded(name, folder)))
    attributed_ns = sum(operator.aggregated.total_duration_ns for operator in operators)
    line = summarize(trace, attributed_ns=attributed_ns, unattributed_ns=sum(kernel.duration_ns for kernel in loose))
    ceiling = roof(result.peaks, result.environment, result.facts, ops=ops)
    meta = CaptureMetadata(
        model_name=name, mode="annotation", torch_version=result.environment.torch_version, device_name=result.environment.device_name,
        compile_mode="inductor" if name == "gpt2" else "eager", device="cuda", dtype="float32", l2_bytes=result.environment.l2_bytes,
        compute_capability=result.environment.compute_capability, capture_timestamp_utc="2026-01-02T03:04:05+00:00",
        clocks=ClockReading(requested="none", locked=False))
    return diagnose(with_roofline(Profile(
        capture_metadata=meta, roofline=ceiling, timeline=line.model_copy(update={"activity": attributed.activity}), operators=operators,
        unattributed_kernels=loose, counters=counters, stages=stages(operators, loose, ceiling, line.steps), inputs=result.facts.inputs,
        bottleneck=Bottleneck(kind=None, root_cause=""), evidence={"duration": "timeline", "counters": "counters"})))
