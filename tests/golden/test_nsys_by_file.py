"""Mode nsys on files: what the unprofiled call is known from, what shares are of where it is not, MFU."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contract_format import check_contract
from kernelwright.model.profile import Profile
from kernelwright.pipeline import beside
from kernelwright.pipeline.nsys import RecordingRun, analyse_recording
from kernelwright.report import render_contract
from kernelwright.report.nsys_csv import tables
from kernelwright.report.nsys_documents import render_nsys_report
from nsys_profiles import profiled
from nsys_recordings import recording

TRACES = Path(__file__).resolve().parents[1] / "data" / "traces"


def rows(run: RecordingRun, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(tables(run.profile, run.trace)[name])))


def gain(profile: Profile, rule: str) -> float | None:
    return next((round(finding.estimated_gain_pct, 6) for finding in profile.findings if finding.rule == rule), None)


def test_beside_its_result_a_recording_says_what_the_live_run_said(tmp_path: Path):
    run, live = analyse_recording(recording("gpt2") / "report.sqlite", tmp_path), profiled("gpt2")[0]
    assert run.profile.timing == live.timing and run.profile.work == live.work and run.profile.roofline == live.roofline
    assert run.profile.bottleneck == live.bottleneck and run.profile.capture_metadata.dtype == "float32"
    assert gain(run.profile, "graph_candidate") == gain(live, "graph_candidate") and gain(run.profile, "launch_gaps") is None
    report = render_nsys_report(run.profile)
    assert "## Device busy: 92.3% of a call, 53.3% while recorded" in report and "Launch-bound: no (6.9% of a call" in report
    row = rows(run, "graph_candidates.csv")[0]
    assert f"at most {int(row['gain_ns']) / 1e3:.2f} us, {float(row['gain_of_recorded_step_pct']):.1f}% of a recorded step, " \
           f"{float(row['gain_of_call_pct']):.1f}% of a call." in report
    assert beside.RESULT not in {file.name for file in (tmp_path / "raw").iterdir()}


def test_without_a_timing_nothing_is_said_of_a_call(tmp_path: Path):
    shutil.copy(recording("gpt2") / "report.sqlite", tmp_path)
    run = analyse_recording(tmp_path / "report.sqlite", tmp_path / "out")
    assert run.profile.timing is None
    report, contract = render_nsys_report(run.profile), render_contract(run.profile)
    assert "of a call" not in report.partition("## Warnings")[0] and check_contract(contract) == []
    assert "## Device busy: 53.3% while recorded" in report and "Launch-bound: partly (41.5% of a recorded step" in report
    assert "44.2% of a recorded step." in report and "idle 47% of a recorded step (the recorder lengthens gaps)" in contract
    assert "trigger: late_launch_share=42%" in contract and "cpu_bound_share" not in contract
    said = "the recorder lengthens gaps, and what a call takes without it is not known"
    assert sum(said in warning for warning in run.profile.warnings) == 1
    row = rows(run, "graph_candidates.csv")[0]
    assert row["gain_of_call_pct"] == "" and f"{float(row['gain_of_recorded_step_pct']):.1f}" == "44.2"


def steps(document: dict[str, Any]) -> None:
    document["trace_steps"] += 1


def device(document: dict[str, Any]) -> None:
    document["environment"]["device_name"] = "NVIDIA A100"


def trace_file(document: dict[str, Any]) -> None:
    document["trace_file"] = "other.json.gz"


def failed(document: dict[str, Any]) -> None:
    document["status"] = "error"


def shape(document: dict[str, Any]) -> None:
    document["timing"] = "fast"


def samples(document: dict[str, Any]) -> None:
    document["timing"]["samples_ns"] = [-1.0]


@pytest.mark.parametrize("change", [steps, device, trace_file, failed, shape, samples])
def test_a_result_that_is_not_this_recording_s_gives_no_timing(change: Callable[[dict[str, Any]], None], tmp_path: Path):
    document = json.loads((recording("two_streams") / "result.json").read_text())
    change(document)
    (tmp_path / "result.json").write_text(json.dumps(document))
    shutil.copy(recording("two_streams") / "report.sqlite", tmp_path)
    assert analyse_recording(tmp_path / "report.sqlite", tmp_path / "out").profile.timing is None


def test_a_result_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = recording("two_streams") / "report.sqlite"
    assert analyse_recording(source, tmp_path / "one").profile.timing is not None
    monkeypatch.setattr(beside, "MOST_RESULT_BYTES", 100)
    assert analyse_recording(source, tmp_path / "two").profile.timing is None


def test_of_the_beginning_of_a_large_recording_nothing_is_scaled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kernelwright.pipeline.nsys.MOST_LAUNCHES", 130)
    profile = analyse_recording(recording("gpt2") / "report.sqlite", tmp_path).profile
    assert profile.timing is None and profile.roofline is not None and profile.roofline.dtype == "float32"
    assert (gain(profile, "launch_gaps") or 0.0) > 40


def test_mfu_of_a_recording_at_the_datasheet_s_peak(tmp_path: Path):
    run = analyse_recording(TRACES / "h200_mlp_training" / "trace.json.gz", tmp_path)
    roof = run.profile.roofline
    assert roof is not None and roof.dtype == "float32" and roof.peak_compute is None and roof.datasheet_compute is not None
    peak = roof.datasheet_compute.value * 1e12
    for row in rows(run, "iterations.csv"):
        assert float(row["mfu_pct"]) == pytest.approx(100 * float(row["flops"]) / (peak * int(row["wall_ns"]) * 1e-9))
    regions = [row for row in rows(run, "regions.csv") if row["flops"] and float(row["flops"])]
    assert regions and all(0 < float(row["mfu_pct"]) < 100 for row in regions)
