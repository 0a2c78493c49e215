"""Profiles made by hand, for tests of everything that reads a Profile. Figures are plausible, not measured."""

from __future__ import annotations

from kernelwright.model.base import Abstained, Figure
from kernelwright.model.measurement import Measurement
from kernelwright.model.profile import (
    Aggregated,
    Attribution,
    Bottleneck,
    CaptureMetadata,
    ClockReading,
    Finding,
    Kernel,
    MemoryOwner,
    MemoryUse,
    Operator,
    Profile,
    Roof,
    Stage,
    TimelineSummary,
    WorkSummary,
)
from kernelwright.model.workload import TensorSpec

HOSTILE = "evil | name\n### Bottleneck: Compute-bound `x` <script>alert(1)</script> ![a](http://b) \u202e\x00\x1b[31m — est. 99% gain — "


def metadata(**changes: object) -> CaptureMetadata:
    """An H200 in annotation mode unless told otherwise."""
    values: dict[str, object] = {
        "model_name": "mla", "version": "v4", "mode": "annotation", "torch_version": "2.11.0+cu130", "compile_mode": "eager",
        "device_name": "NVIDIA H200", "device": "cuda", "capture_timestamp_utc": "2026-01-02T03:04:05+00:00",
        "python_version": "3.12.3", "kernelwright_version": "0.1.0", "dtype": "bfloat16",
        "clocks": ClockReading(requested="none", locked=False, sm_mhz_min=1965, sm_mhz_max=1980),
    }
    return CaptureMetadata.model_validate({**values, **changes})


def timing(median_us: float, spread: float = 0.01, samples: int = 101) -> Measurement:
    """Evenly spread samples around the median; spread 0.01 is +-1%."""
    low, high = median_us * (1 - spread), median_us * (1 + spread)
    return Measurement.of([1000 * (low + (high - low) * i / (samples - 1)) for i in range(samples)], timer="cuda_events")


def roofline(dtype: str = "bfloat16") -> Roof:
    """Measured peaks beside the datasheet's."""
    return Roof(
        dtype=dtype,
        peak_compute=Figure(value=780.0, unit="TFLOP/s", evidence="calibration", source=f"matmul 8192^3 {dtype}"),
        peak_bandwidth=Figure(value=4100.0, unit="GB/s", evidence="calibration", source="copy of 512 MiB, read + written"),
        datasheet_compute=Figure(value=989.0, unit="TFLOP/s", evidence="datasheet", source="NVIDIA H200 datasheet"),
        datasheet_bandwidth=Figure(value=4800.0, unit="GB/s", evidence="datasheet", source="NVIDIA H200 datasheet"),
        ridge_point=Figure(value=190.24, unit="FLOP/B", evidence="calibration", source="measured peaks"),
    )


def work(duration_us: float = 1000.0) -> WorkSummary:
    """1.2 GB and 110 GFLOP a call."""
    compute, bandwidth = 110e9 / duration_us / 1e6, 1.2e9 / duration_us / 1e3
    return WorkSummary(
        flops=Figure(value=110e9, unit="FLOP", evidence="analytic", source="torch FlopCounterMode"),
        min_bytes=Figure(value=1.2e9, unit="B", evidence="analytic", source="inputs + parameters + outputs once"),
        achieved_compute=Figure(value=compute, unit="TFLOP/s", evidence="events"),
        achieved_bandwidth=Figure(value=bandwidth, unit="GB/s", evidence="events"),
        arithmetic_intensity=Figure(value=110e9 / 1.2e9, unit="FLOP/B", evidence="analytic"),
        compute_pct=100 * compute / 780, bandwidth_pct=100 * bandwidth / 4100,
    )


def stage(name: str, duration_us: float, share_pct: float, **changes: object) -> Stage:
    """A marked stage without counters."""
    values: dict[str, object] = {
        "name": name, "marked": True, "calls": 2, "kernel_count": 3, "duration_ns": duration_us * 1000, "share_pct": share_pct,
        "bottleneck": "Memory", "key_issue": "bandwidth share 42%", "source": "mla.py:31", "compute_pct": 12.0, "bandwidth_pct": 42.0,
    }
    return Stage.model_validate({**values, **changes})


def finding(name: str, gain: float, trigger: str = "idle_share=62%", **changes: object) -> Finding:
    """A finding of the timeline."""
    values: dict[str, object] = {
        "rule": "launch_bound", "name": name, "detail": "The device waits for the host between kernels.", "estimated_gain_pct": gain,
        "trigger": trigger, "evidence": "timeline", "hint": "Capture the call in a CUDA graph.", "where": "mla.py:31",
    }
    return Finding.model_validate({**values, **changes})


def operators(names: tuple[str, ...], steps: int, kernel_ns: int, *, on_cpu: bool = False) -> tuple[Operator, ...]:
    """One call of each operator a step, one kernel each, back to back."""
    made: list[Operator] = []
    for step in range(steps):
        for place, name in enumerate(names):
            start = (step * len(names) + place) * kernel_ns
            kernel = Kernel(
                kernel_id=f"k{len(made)}", kernel_name=name if on_cpu else f"void {name.replace('::', '_')}_kernel<float, 4>(float*)",
                stream_id=None if on_cpu else 7, device_id=None if on_cpu else 0, start_ns=start, end_ns=start + kernel_ns,
                duration_ns=kernel_ns, category="cpu" if on_cpu else "kernel",
                attribution=Attribution(method="correlation", confidence="high"))
            made.append(Operator(
                operator_id=f"{name}_{step}", operator_name=name, call_index=step, step=step, stage=name.split("::")[-1],
                module="blocks.0.attn", source="mla.py:31", kernels=(kernel,),
                aggregated=Aggregated(total_duration_ns=kernel_ns, kernel_count=1, dominant_kernel_id=kernel.kernel_id)))
    return tuple(made)


def timeline(measured_ns: int, attributed_ns: int, *, on_cpu: bool = False, kernels: int = 6) -> TimelineSummary:
    """Two steps, 10% idle."""
    return TimelineSummary(
        steps=2, step_wall_ns=(measured_ns // 2, measured_ns // 2), measured_ns=measured_ns, attributed_ns=attributed_ns,
        unattributed_ns=measured_ns - attributed_ns, busy_ns=measured_ns, span_ns=int(measured_ns / 0.9), idle_share_pct=10.0,
        launches=0 if on_cpu else kernels, gap_count=4, gap_median_ns=2000.0, gap_total_ns=8000,
        cpu_bound_share_pct=None if on_cpu else 6.5, kernels_total=kernels)


def gpu_annotation(**changes: object) -> Profile:
    """Three stages without counters, on a GPU."""
    ops = operators(("aten::mm", "aten::softmax", "aten::copy_"), 2, 300_000)
    lost = ops[0].kernels[0].model_copy(update={
        "kernel_id": "lost", "kernel_name": "Memcpy DtoD", "duration_ns": 20_000,
        "attribution": Attribution(method="none", confidence="none")})
    values: dict[str, object] = {
        "capture_metadata": metadata(), "parameters": {"b": 32, "s": 16, "t": 4096, "dtype": "bfloat16"},
        "inputs": (TensorSpec(path="0", shape=(32, 16, 4096), dtype="bfloat16", device="cuda"),),
        "timing": timing(1000.0), "work": work(), "roofline": roofline(), "timeline": timeline(1_820_000, 1_800_000),
        "stages": (stage("qk", 300.0, 33.0), stage("softmax", 300.0, 33.0, bottleneck="Latency", key_issue=None),
                   stage("pv", 310.0, 34.0, bottleneck=None, key_issue=None, source=None)),
        "operators": ops, "unattributed_kernels": (lost,),
        "bottleneck": Bottleneck(kind="Memory", root_cause="Bandwidth reaches 29% of the measured peak, compute 14%. "
                                                           "No counters, so the position against measured peaks decides."),
        "findings": (finding("Fuse elementwise kernels", 21.4, "elementwise_share=33%"), finding("Capture a CUDA graph", 10.0),
                     finding("Close the distance to the bandwidth roof", 70.7, "bandwidth_pct=29.3%", evidence="events", where=None),
                     finding("Overlap copies", 3.25, "copy_share=1.1%")),
        "abstained": (Abstained(name="occupancy", reason="no counters"),),
        "evidence": {"duration": "timeline", "work": "analytic", "timing": "events"},
        "warnings": ("the second profiled step took 12% longer than the first",),
    }
    return Profile.model_validate({**values, **changes})


def with_counters(**changes: object) -> Profile:
    """The same with counters on every stage."""
    plain = gpu_annotation()
    stages = tuple(row.model_copy(update={"tc_pct": 61.25, "dram_pct": 72.5 - i, "occupancy_pct": 40.0 + i})
                   for i, row in enumerate(plain.stages))
    return plain.model_copy(update={"stages": stages, **changes})


def cpu_annotation(**changes: object) -> Profile:
    """A model without parameters, on the CPU."""
    ops = operators(("aten::addmm", "aten::relu"), 2, 450_000, on_cpu=True)
    values: dict[str, object] = {
        "capture_metadata": metadata(model_name="mlp_activations", version=None, device="cpu", device_name="Some CPU @ 2.0GHz",
                                     dtype="float32", clocks=ClockReading(requested="none", locked=False, note="no GPU")),
        "parameters": {}, "inputs": (TensorSpec(path="", shape=(32, 512), dtype="float32", device="cpu"),),
        "stages": (stage("aten::addmm", 450.0, 50.0, marked=False, bottleneck="Compute", source="mlp_activations.py:12"),
                   stage("aten::relu", 450.0, 50.0, marked=False, bandwidth_pct=None)),
        "operators": ops, "unattributed_kernels": (), "timeline": timeline(1_800_000, 1_800_000, on_cpu=True, kernels=4),
        "roofline": roofline("float32"),
    }
    return gpu_annotation(**{**values, **changes})


def event(**changes: object) -> Profile:
    """End to end only: no stages, no operators."""
    values: dict[str, object] = {"capture_metadata": metadata(mode="event"), "stages": (), "operators": (), "unattributed_kernels": (),
                                 "timeline": None, "evidence": {"timing": "events"}}
    return gpu_annotation(**{**values, **changes})


def no_peaks(**changes: object) -> Profile:
    """Neither peaks nor work, hence no bottleneck and no findings."""
    values: dict[str, object] = {"roofline": None, "work": None, "findings": (),
                                 "bottleneck": Bottleneck(kind=None, root_cause="There are neither counters nor measured peaks.")}
    return event(**{**values, **changes})


def many_stages(count: int = 500) -> Profile:
    """More stages than a contract can show, with long names."""
    stages = tuple(stage(f"stage {i:03d} " + "x" * 60, 1000.0 - i, 100 / count) for i in range(count))
    return gpu_annotation(stages=stages)


def memory(name: str = "aten::mm", *, device: str = "cuda:0") -> MemoryUse:
    """1.5 GB at the peak, a third of it allocated before."""
    owners = tuple(MemoryOwner(operator=name if place else None, module="blocks.0.attn" if place else None, source="mla.py:31",
                               source_kind="line", bytes=size, count=place + 1) for place, size in enumerate((600_000_000, 300_000_000)))
    return MemoryUse(
        device=device, complete=device != "cpu", start_bytes=550_000_000, peak_bytes=1_500_000_000, peak_ns=123_456, peak_step=0,
        end_bytes=550_000_000, before_bytes=500_000_000, owners=owners * 5 if name == "many" else owners, left_bytes=100_000_000,
        left_count=40, allocations=80, allocated_bytes=3_000_000_000, timeline=((0, 550_000_000), (123_456, 1_500_000_000)))


def with_places() -> Profile:
    """Exact lines, call stacks and memory."""
    stacks = (("train.py:40 <module>", "(3 library frames)", "mla.py:31 forward"), ("train.py:44 <module>",), ())
    base = gpu_annotation()
    placed = tuple(operator.model_copy(update={"source_kind": "line", "stack": place % 3}) for place, operator in enumerate(base.operators))
    rest = placed[-1].model_copy(update={"source_kind": "definition", "stack": None})
    return base.model_copy(update={"operators": (*placed[:-1], rest), "stacks": stacks, "memory": (memory(), memory(device="cpu"))})


def hostile() -> Profile:
    """Names that try to break out of every table."""
    long = HOSTILE + "y" * 500
    ops = tuple(op.model_copy(update={"stack": 0, "source": HOSTILE, "source_kind": "definition"})
                for op in operators((long, HOSTILE), 2, 300_000))
    return gpu_annotation(
        stacks=((long, HOSTILE) * 9,), memory=(memory(HOSTILE), memory(long)),
        capture_metadata=metadata(model_name=long, version=HOSTILE, device_name=HOSTILE), parameters={HOSTILE: HOSTILE, "long": "z" * 5000},
        stages=(stage(long, 500.0, 50.0, key_issue=HOSTILE, source=HOSTILE), stage(HOSTILE, 400.0, 50.0)), operators=ops,
        bottleneck=Bottleneck(kind="Memory", root_cause=HOSTILE + " One. Two. Three. Four."),
        findings=(finding(long, 250.0, HOSTILE, detail=long, hint=HOSTILE, where=HOSTILE),), warnings=(HOSTILE, "# heading"),
        abstained=(Abstained(name=HOSTILE, reason=HOSTILE),))
