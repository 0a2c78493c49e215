"""Peaks that a call beats: measured again in the same run, and unknown where that does not help."""

from __future__ import annotations

from pathlib import Path

import pytest

import builders
from kernelwright.capture import calibration
from kernelwright.diagnose import diagnose
from kernelwright.model.capture import ProbeEnvironment, ProbePeak, ProbeResult, ProbeTiming, ProbeWork
from kernelwright.model.workload import WorkloadFacts
from kernelwright.pipeline.peaks import UNKNOWN, beaten_by_stages, best_of_both, measured_peaks


def say_nothing(text: str) -> None:
    """For cases whose words do not matter."""


def peaks(tflops: float) -> tuple[ProbePeak, ...]:
    return (ProbePeak(name="bandwidth", value=10.0, unit="GB/s", method="copy"),
            ProbePeak(name="matmul:float32", value=tflops, unit="TFLOP/s", method="matmul"))


def result(measured: tuple[ProbePeak, ...] = ()) -> ProbeResult:
    """One call of 0.1 GFLOP in 1 ms: 0.1 TFLOP/s."""
    return ProbeResult.model_construct(
        facts=WorkloadFacts.model_construct(dtype="float32"), peaks=measured,
        environment=ProbeEnvironment.model_construct(device="cpu", device_name="a CPU", matmul_tf32=False, cudnn_tf32=False,
                                                     compute_capability="9.0", l2_bytes=None, sm_count=1),
        timing=ProbeTiming.model_construct(samples_ns=(1e6,) * 9, timer="perf_counter"),
        work=ProbeWork.model_construct(flops=1e8, flops_source="counted", min_bytes=1e6, bytes_source="counted"))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path))


def test_a_peak_measured_on_a_busy_machine_is_measured_again_in_the_same_run() -> None:
    said: list[str] = []
    found, warnings = measured_peaks(result(peaks(0.0027)), [], "key", lambda: result(peaks(0.30)), said.append)
    assert found[1].value == 0.30 and warnings == () and len(said) == 1
    assert calibration.load_peaks("key")[1].value == 0.30, "the next run must not start from the low one"


def test_a_kept_peak_that_is_too_low_is_measured_again_too() -> None:
    calibration.store_peaks("key", "a CPU", peaks(0.0027))
    found, warnings = measured_peaks(result(), [], "key", lambda: result(peaks(0.30)), say_nothing)
    assert found[1].value == 0.30 and warnings == ()


def test_a_peak_that_stays_too_low_is_unknown_and_forgotten() -> None:
    calibration.store_peaks("key", "a CPU", peaks(0.001))
    found, warnings = measured_peaks(result(), [], "key", lambda: result(peaks(0.05)), say_nothing)
    assert found == () and "measured twice" in warnings[0] and "unknown" in warnings[0]
    assert calibration.load_peaks("key") == ()


def test_a_sound_peak_is_neither_measured_nor_doubted_again() -> None:
    calibration.store_peaks("key", "a CPU", peaks(0.30))
    found, warnings = measured_peaks(result(), [], "key", lambda: pytest.fail("calibrated for nothing"), say_nothing)
    assert found[1].value == 0.30 and warnings == ()


def test_convolutions_that_may_use_tf32_do_not_refute_float32s_peak() -> None:
    told = result((*peaks(0.05), ProbePeak(name="matmul:tf32", value=0.4, unit="TFLOP/s", method="matmul")))
    gpu = told.environment.model_copy(update={"device": "cuda", "cudnn_tf32": True, "device_name": "a GPU"})
    told = told.model_copy(update={"environment": gpu})
    found, warnings = measured_peaks(told, [], "key", lambda: pytest.fail("calibrated"), say_nothing)
    assert len(found) == 3 and len(warnings) == 1 and "TF32" in warnings[0]


def test_of_two_calibrations_the_higher_ceilings_count() -> None:
    assert [peak.value for peak in best_of_both(peaks(0.2), peaks(0.1))] == [10.0, 0.2]


def test_without_peaks_there_is_no_roof_to_be_near_to() -> None:
    """What the reader then sees: no bound, no roof opportunity with a gain, no "100% of compute roof"."""
    document = diagnose(builders.no_peaks())
    assert document.bottleneck.kind is None
    assert not any("roof_share=100%" in finding.trigger for finding in document.findings)
    assert not any("roof" in (stage.key_issue or "") for stage in document.stages)


def test_a_scripts_operators_tell_that_its_peak_is_too_low() -> None:
    """A script's own process is not calibrated, so an earlier run's peak may be the one that is too low."""
    stages = (builders.stage("aten::addmm", 1000.0, 100.0, flops=1e12),)
    assert beaten_by_stages(builders.gpu_annotation(stages=stages)), "1000 TFLOP/s against a peak of 780"
    assert not beaten_by_stages(builders.gpu_annotation(stages=(builders.stage("aten::addmm", 1000.0, 100.0, flops=7e11),)))
    assert "{again}" in UNKNOWN
