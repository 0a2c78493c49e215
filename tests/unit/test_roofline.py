"""Ceilings, achieved work and the stage table."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.attribute.owned import aggregate
from kernelwright.model.capture import OpRecord, ProbeEnvironment, ProbePeak, ProbeResult, ProbeTiming, ProbeWork
from kernelwright.model.measurement import Measurement
from kernelwright.model.profile import Attribution, ClockReading, Kernel, Operator, Roof
from kernelwright.model.workload import WorkloadFacts, WorkloadRef
from kernelwright.pipeline.assemble import Run, assemble
from kernelwright.pipeline.beside import roof_of_result
from kernelwright.pipeline.peaks import beaten
from kernelwright.roofline import roof, stages, work_summary
from kernelwright.roofline.knowledge import datasheet, devices

PEAKS = (
    ProbePeak(name="bandwidth", value=4200.0, unit="GB/s", method="copy of 512 MiB"),
    ProbePeak(name="matmul:float32", value=50.0, unit="TFLOP/s", method="matmul 8192^3"),
    ProbePeak(name="matmul:tf32", value=380.0, unit="TFLOP/s", method="matmul 8192^3"),
    ProbePeak(name="matmul:bfloat16", value=760.0, unit="TFLOP/s", method="matmul 8192^3"),
)


def environment(**changes: object) -> ProbeEnvironment:
    values: dict[str, object] = {
        "device": "cuda", "device_name": "NVIDIA H200", "torch_version": "2.11.0", "cuda_version": "13.0", "python_version": "3.12.3",
        "triton_version": None, "compute_capability": "9.0", "sm_count": 132, "l2_bytes": 1, "device_memory_bytes": 1, "cpu_threads": 8,
        "matmul_tf32": False, "cudnn_tf32": True, "cudnn_benchmark": False}
    return ProbeEnvironment.model_validate({**values, **changes})


def facts(dtype: str = "float32") -> WorkloadFacts:
    return WorkloadFacts(form="model", version=None, params={}, inputs=(), outputs=(), training=False, dtype=dtype, parameter_count=0,
                         parameter_bytes=0, already_compiled=False)


def op(name: str, flops: float | None) -> OpRecord:
    return OpRecord(name=name, dims=((1,),), dtype="float32", flops=flops, bytes=4.0)


def test_measured_peaks_stand_beside_the_datasheet_and_give_the_ridge_point() -> None:
    found = roof(PEAKS, environment(), facts("bfloat16"))
    assert found.dtype == "bfloat16" and found.peak_compute is not None and found.peak_compute.value == 760.0
    assert found.peak_compute.evidence == "calibration" and found.datasheet_compute is not None
    assert found.datasheet_compute.value == 989.5 and "http" in found.datasheet_compute.source
    assert found.ridge_point is not None and found.ridge_point.value == pytest.approx(760 / 4200 * 1000)


@pytest.mark.parametrize(("changes", "dtype", "ops", "expected"), [
    ({}, "float32", (), "float32"),
    ({"matmul_tf32": True}, "float32", (), "tf32"),
    ({"matmul_tf32": True}, "bfloat16", (), "bfloat16"),
    ({}, "float32", (op("aten::convolution", 90.0), op("aten::addmm", 10.0)), "tf32"),
    ({"cudnn_tf32": False}, "float32", (op("aten::convolution", 90.0), op("aten::addmm", 10.0)), "float32"),
    ({"cudnn_tf32": False, "matmul_tf32": True}, "float32", (op("aten::convolution", 90.0),), "float32"),
    ({}, "float32", (op("aten::convolution", 10.0), op("aten::addmm", 90.0)), "float32"),
    ({"device": "cpu", "matmul_tf32": True}, "float32", (), "float32"),
])
def test_the_arithmetic_in_use_follows_the_flags(changes: dict[str, object], dtype: str, ops: tuple[OpRecord, ...], expected: str) -> None:
    assert roof(PEAKS, environment(**changes), facts(dtype), ops=ops).dtype == expected


@pytest.mark.parametrize(("counted", "expected"), [
    ({"aten::convolution": 90.0, "aten::addmm": 10.0}, "tf32"), ({"aten::convolution": 10.0, "aten::addmm": 90.0}, "float32"),
    ({}, "float32")])
def test_of_a_compiled_call_what_was_counted_uncompiled_tells_the_arithmetic(counted: dict[str, float], expected: str) -> None:
    """Convolutions compiled beforehand (H200): held against float32's own pipe a call was at 253% of the peak."""
    work = ProbeWork(flops=100.0, flops_source="torch FlopCounterMode", min_bytes=1.0, bytes_source="inputs", counted=counted)
    assert roof(PEAKS, environment(), facts(), work=work).dtype == expected
    assert roof(PEAKS, environment(), facts(), ops=[op("aten::addmm", 90.0)], work=work).dtype == "float32", "operators one by one say more"


def test_every_profile_of_a_compiled_call_has_it(tmp_path: Path) -> None:
    timing = ProbeTiming(samples_ns=(3.0e5,) * 9, host_ns=(), timer="cuda_events", calls_per_sample=1, warmup_calls=3, warmup_s=0.1,
                         flushed_l2=False, peak_memory_bytes=None)
    work = ProbeWork(flops=48.5e9, flops_source="torch FlopCounterMode", min_bytes=2e6, bytes_source="inputs",
                     counted={"aten::convolution": 48.5e9})
    result = ProbeResult(status="ok", environment=environment(), facts=facts(), timing=timing, work=work, peaks=PEAKS)
    made = assemble(Run(WorkloadRef(path=tmp_path / "net.py", name="net"), "event", tmp_path, result, PEAKS,
                        ClockReading(requested="none", locked=False), "eager", None, "v1"))
    assert made.roofline is not None and made.roofline.dtype == roof_of_result(result).dtype == "tf32"
    assert made.work is not None and made.work.compute_pct == pytest.approx(100 * 48.5 / 0.3 / 380e3 * 1e3, rel=0.01)
    assert not beaten(result, (), PEAKS, tf32=False), "161 TFLOP/s are more than float32's own 50"


def test_an_unknown_device_without_calibration_has_no_roof() -> None:
    found = roof((), environment(device_name="Mystery 9000"), facts())
    assert (found.peak_compute, found.peak_bandwidth, found.datasheet_compute, found.datasheet_bandwidth, found.ridge_point) == (None,) * 5


def test_without_calibration_the_datasheet_gives_the_ridge() -> None:
    found = roof((), environment(), facts("bfloat16"))
    assert found.ridge_point is not None and found.ridge_point.evidence == "datasheet"
    assert found.ridge_point.value == pytest.approx(989.5 / 4800 * 1000)


@pytest.mark.parametrize(("name", "sheet"), [
    ("NVIDIA H200", "NVIDIA H200"), ("NVIDIA H200 NVL", "NVIDIA H200 NVL"), ("NVIDIA H100 80GB HBM3", "NVIDIA H100 SXM"),
    ("NVIDIA H100 PCIe", "NVIDIA H100 PCIe"), ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 SXM4 80GB"), ("NVIDIA A100-PCIE-40GB",
                                                                                                   "NVIDIA A100 40GB"),
    ("NVIDIA L40S", "NVIDIA L40S"), ("NVIDIA L4", "NVIDIA L4"), ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"),
    ("NVIDIA GeForce RTX 4090 Laptop GPU", None), ("NVIDIA A10G", None), ("Intel Xeon", None),
])
def test_device_names_find_their_own_sheet(name: str, sheet: str | None) -> None:
    found = datasheet(name)
    assert (found.name if found else None) == sheet


def test_every_datasheet_figure_has_a_source_and_plausible_ratios() -> None:
    for device in devices():
        assert device.url.startswith("https://") and device.source, device.name
        figures = device.compute_tflops
        for slower, faster in (("float32", "tf32"), ("tf32", "bfloat16"), ("float64", "float16")):
            if slower in figures and faster in figures:
                assert figures[slower] <= figures[faster], device.name  # type: ignore[index]


def test_achieved_work_and_shares() -> None:
    timing = Measurement.of([1e6] * 9, timer="cuda_events")  # 1 ms
    work = ProbeWork(flops=25e9, flops_source="torch FlopCounterMode", min_bytes=2.1e9, bytes_source="inputs + outputs")
    found = work_summary(work, timing, roof(PEAKS, environment(), facts()))
    assert found.achieved_compute is not None and found.achieved_compute.value == pytest.approx(25.0)
    assert found.achieved_bandwidth is not None and found.achieved_bandwidth.value == pytest.approx(2100.0)
    assert found.compute_pct == pytest.approx(50.0) and found.bandwidth_pct == pytest.approx(50.0)
    assert found.arithmetic_intensity is not None and found.arithmetic_intensity.value == pytest.approx(25e9 / 2.1e9)


def test_what_is_not_known_stays_unknown() -> None:
    timing = Measurement.of([1e6] * 9, timer="cuda_events")
    work = ProbeWork(flops=None, flops_source="no formula", min_bytes=1e6, bytes_source="inputs")
    found = work_summary(work, timing, roof((), environment(device_name="?"), facts()))
    assert (found.flops, found.achieved_compute, found.arithmetic_intensity, found.compute_pct, found.bandwidth_pct) == (None,) * 5
    assert found.achieved_bandwidth is not None and found.achieved_bandwidth.value == pytest.approx(1.0)


def test_no_work_is_known_work_without_a_rate() -> None:
    timing = Measurement.of([1e6] * 9, timer="cuda_events")
    work = ProbeWork(flops=0.0, flops_source="workload flops()", min_bytes=2.1e9, bytes_source="workload bytes_moved()")
    found = work_summary(work, timing, roof(PEAKS, environment(), facts()))
    assert found.flops is not None and found.flops.value == 0 and found.achieved_compute is None and found.arithmetic_intensity is None
    assert (found.compute_pct, found.bandwidth_pct) == (0.0, pytest.approx(50.0))
    empty = work_summary(work.model_copy(update={"flops": 1e9, "min_bytes": 0.0}), timing, roof(PEAKS, environment(), facts()))
    assert empty.achieved_bandwidth is None and empty.arithmetic_intensity is None and empty.bandwidth_pct == 0.0


def kernel(name: str, duration: int, category: str = "kernel") -> Kernel:
    return Kernel.model_validate({"kernel_id": name, "kernel_name": name, "stream_id": 7, "device_id": 0, "start_ns": 0, "end_ns": duration,
                                  "duration_ns": duration, "category": category, "attribution": Attribution(method="none",
                                                                                                            confidence="none")})


def operator(name: str, index: int, durations: list[int], **changes: object) -> Operator:
    kernels = tuple(kernel(f"{name}_k{number}", duration) for number, duration in enumerate(durations))
    return Operator.model_validate({"operator_id": f"{name}_{index}", "operator_name": name, "call_index": index, "step": index,
                                    "kernels": kernels, "aggregated": aggregate(kernels), **changes})


CEILING = roof(PEAKS, environment(), facts())


def test_unmarked_work_has_one_stage_an_operator_name_and_adds_up() -> None:
    rows = stages([operator("aten::mm", 0, [600], flops=1e9, min_bytes=4e5, source="a.py:1"), operator("aten::mm", 1, [400, 200],
                                                                                                       flops=1e9),
                   operator("aten::add", 0, [100]), operator("aten::add", 1, [100])], [kernel("lost", 200)], CEILING, 2)
    assert [(row.name, row.duration_ns, row.calls, row.kernel_count) for row in rows] == [
        ("aten::mm", 600.0, 1.0, 1.5), ("(unattributed)", 100.0, 0.0, 0.5), ("aten::add", 100.0, 1.0, 1.0)]
    assert sum(row.duration_ns for row in rows) == (600 + 400 + 200 + 100 + 100 + 200) / 2
    assert sum(row.share_pct for row in rows) == pytest.approx(100.0)
    top = rows[0]
    assert top.flops == 1e9 and top.min_bytes == 2e5 and top.compute_pct == pytest.approx(100 * (2e9 / 1200 * 1e-3) / 50)
    assert top.source == "a.py:1" and top.dominant_kernel == "aten::mm_k0" and not top.marked
    assert rows[2].compute_pct is None and rows[2].flops is None


def test_marked_ranges_are_the_stages_and_the_rest_is_one_row() -> None:
    rows = stages([operator("aten::mm", 0, [50], stage="attention"), operator("aten::add", 0, [30]), operator("aten::mul", 0, [20])],
                  [kernel("(outside operators)", 10, "cpu")], CEILING, 1)
    assert [(row.name, row.marked, row.duration_ns) for row in rows] == [
        ("(unmarked)", False, 50.0), ("attention", True, 50.0), ("(outside operators)", False, 10.0)]


def test_a_profile_without_steps_is_refused() -> None:
    with pytest.raises(ValueError, match="step"):
        stages([], [], CEILING, 0)


def test_roof_model_accepts_the_result() -> None:
    assert Roof.model_validate(CEILING.model_dump()) == CEILING
