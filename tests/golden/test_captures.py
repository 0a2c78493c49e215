"""Whole captures of the examples, recorded on an H200 (tests/gpu/record.py), from the probe's files to the contract."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from contract_format import check_contract
from golden_files import assert_golden
from kernelwright.model.capture import ProbeResult
from kernelwright.model.profile import ClockReading, Profile
from kernelwright.model.workload import WorkloadRef
from kernelwright.pipeline.assemble import Run, assemble, with_recording
from kernelwright.report import render_contract, write_profile
from kernelwright.report.document import render_report
from published_schemas import check_document

ROOT = Path(__file__).resolve().parents[2]
CAPTURES = sorted((ROOT / "tests" / "data" / "captures" / "h200").iterdir())


def run_of(folder: Path) -> Run:
    result = ProbeResult.model_validate_json((folder / "result.json").read_bytes())
    example, _, compiled = folder.name.partition("-")
    workload = WorkloadRef(path=ROOT / "examples" / f"{example}.py", name=example)
    return Run(workload=workload, mode="annotation", raw=folder, result=result, peaks=result.peaks,
               clocks=ClockReading(requested="none", locked=False), compile_mode=compiled or "eager", device_name=None, version="golden")


def assembled(folder: Path) -> Profile:
    return assemble(run_of(folder))


@pytest.fixture(scope="module", params=CAPTURES, ids=[folder.name for folder in CAPTURES])
def capture(request):
    return request.param.name, assembled(request.param)


def test_annotation_on_a_gpu_writes_the_timeline_page(tmp_path):
    run = with_recording(run_of(next(folder for folder in CAPTURES if folder.name == "gpt2")))
    assert run.recorded is not None
    profile, trace = assemble(run), run.recorded.trace
    page = write_profile(profile, tmp_path / "gpu", trace=trace, params_doc={})["timeline"]
    data = json.loads(page.read_text().partition('id="data">')[2].partition("</script>")[0])
    rows = sum(sum(lane["rows"]) for lane in data["lanes"] if lane["kind"] == "device")
    assert page == tmp_path / "gpu" / "timeline.html" and rows == len(trace.device) > 100
    assert any(label == "line" for detail in data["details"] for label, _ in detail), "what the profile attributed is in the hover"
    assert "timeline" not in write_profile(profile, tmp_path / "cpu", trace=replace(trace, is_cuda=False), params_doc={})
    assert not (tmp_path / "cpu" / "timeline.html").exists()


def test_there_are_captures():
    assert len(CAPTURES) >= 6


def test_contract_is_exact_and_unchanged(capture):
    name, profile = capture
    contract = render_contract(profile)
    assert check_contract(contract) == []
    assert_golden(f"capture_{name}.md", contract)


def test_each_finding_of_the_report_names_its_playbook(capture):
    name, profile = capture
    report = render_report(profile)
    findings = report.partition("## Findings")[2].partition("## Not decided")[0]
    named = re.findall(r" Playbook: (\S+)$", findings, re.MULTILINE)
    assert profile.findings and named == [finding.playbook for finding in profile.findings]
    assert all((ROOT / page).is_file() for page in named)
    if name == "gpt2":
        taken = profile.capture_metadata.capture_timestamp_utc  # of the assembly, not of the recording
        assert_golden("report_gpt2.md", report.replace(taken, "2026-01-02T03:04:05+00:00"))


def test_document_holds_to_the_schema_and_time_adds_up(capture):
    _name, profile = capture
    check_document(json.loads(profile.model_dump_json()))
    attributed = sum(kernel.duration_ns for operator in profile.operators for kernel in operator.kernels)
    unattributed = sum(kernel.duration_ns for kernel in profile.unattributed_kernels)
    assert profile.timeline is not None
    assert attributed + unattributed == profile.timeline.measured_ns
    assert attributed >= 0.99 * profile.timeline.measured_ns
    per_step = sum(stage.duration_ns for stage in profile.stages) * profile.timeline.steps
    assert per_step == pytest.approx(profile.timeline.measured_ns, rel=1e-9)


def test_eager_kernels_lead_to_modules_and_lines_of_the_example(capture):
    name, profile = capture
    if "-" in name:
        return  # compiled: no modules are left to see
    heaviest = max(profile.operators, key=lambda operator: operator.aggregated.total_duration_ns)
    assert heaviest.source is not None and heaviest.source.startswith(f"{name}.py:")
    assert any(operator.module for operator in profile.operators)


def test_the_peak_is_the_allocators_own(capture):
    """timing.peak_memory_bytes is torch.cuda.max_memory_allocated() over the timed calls, another part of the run."""
    _name, profile = capture
    use = next(use for use in profile.memory if use.device == "cuda:0")
    assert use.peak_bytes == profile.peak_memory_bytes
    assert use.before_bytes + sum(owner.bytes for owner in use.owners) + use.left_bytes == use.peak_bytes
    assert max(level for _, level in use.timeline) == use.peak_bytes and len(use.timeline) <= 400


def test_every_fused_kernel_names_what_it_fused():
    profile = assembled(next(folder for folder in CAPTURES if folder.name == "gpt2-inductor"))
    fused = [operator for operator in profile.operators if operator.operator_name.startswith("triton_")]
    assert len(fused) > 50 and all(operator.is_fused and operator.fused_ops for operator in fused)


def test_convolutions_are_held_against_tf32_and_products_against_fp32():
    roofs = {folder.name: assembled(folder).roofline for folder in CAPTURES if folder.name in ("conv_block", "gpt2")}
    assert {name: roof.dtype for name, roof in roofs.items() if roof} == {"conv_block": "tf32", "gpt2": "float32"}
