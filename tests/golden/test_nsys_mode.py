"""Mode nsys from recordings of an H200 (tests/gpu/record_nsys.py) to every document of it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from contract_format import check_contract
from golden_files import assert_golden
from kernelwright.diagnose.idle import idle_causes
from kernelwright.model.profile import Profile
from kernelwright.report import render_contract
from kernelwright.report.contract import token_count
from kernelwright.report.nsys_csv import tables
from kernelwright.report.nsys_documents import ROOMS, render_nsys_report
from kernelwright.report.nsys_views import function_name
from kernelwright.report.nsys_write import write_nsys_profile
from nsys_profiles import profiled
from nsys_recordings import NAMES, WITH_STATS, stats
from published_schemas import check_document

ROOT = Path(__file__).resolve().parents[2]


def causes(name: str) -> dict[str, tuple[float, str | None]]:
    """Cause -> (share of the time, line), most first."""
    return {row.cause: (row.share_pct, row.where) for row in idle_causes(profiled(name)[0])}


@pytest.mark.parametrize("name", NAMES)
def test_report_and_contract_are_short_and_unchanged(name: str):
    profile, _trace = profiled(name)
    report, contract = render_nsys_report(profile, ["csv/"]), render_contract(profile)
    assert check_contract(contract) == [] and token_count(report) <= 1500
    assert_golden(f"nsys_{name}.md", report)
    assert_golden(f"nsys_contract_{name}.md", contract)
    assert "TC%" in contract and all("| n/a | n/a | n/a |" in line for line in contract.splitlines() if line.startswith("| aten::"))


@pytest.mark.parametrize("name", NAMES)
def test_document_holds_to_the_schema_and_time_adds_up(name: str):
    profile, _trace = profiled(name)
    text = profile.model_dump_json()
    check_document(json.loads(text))
    assert Profile.model_validate_json(text) == profile
    timeline, flow = profile.timeline, profile.flow
    assert timeline is not None and flow is not None
    attributed = sum(kernel.duration_ns for operator in profile.operators for kernel in operator.kernels)
    assert attributed + sum(kernel.duration_ns for kernel in profile.unattributed_kernels) == timeline.measured_ns
    assert sum(device.busy_ns for device in flow.devices) == timeline.busy_ns
    assert sum(device.idle_ns for device in flow.devices) == timeline.gap_total_ns
    for device in flow.devices:
        assert sum(row.idle_ns for row in device.causes) == device.idle_ns == device.span_ns - device.busy_ns


def test_a_slow_loader_is_named_with_its_line():
    found = causes("slow_loader")
    assert next(iter(found)) == "data_loader" and found["data_loader"][0] > 70 and found["data_loader"][1] == "slow_loader.py:35"
    first = profiled("slow_loader")[0].findings[0]
    assert first.rule == "data_loader_stall" and first.where == "slow_loader.py:35" and first.estimated_gain_pct > 70


def test_hidden_waits_copies_and_allocations_are_told_apart():
    found = causes("hidden_sync")
    assert found["synchronization"][1] == "hidden_sync.py:17" and found["copy"][1] in ("hidden_sync.py:19", "hidden_sync.py:20")
    assert found["allocator"][1] == "hidden_sync.py:21" and found["allocator"][0] > 10
    rules = {finding.rule: finding for finding in profiled("hidden_sync")[0].findings}
    assert {"synchronisation", "allocator_gaps"} <= set(rules)
    activity = profiled("hidden_sync")[0].timeline.activity
    assert any(row.where == "hidden_sync.py:17" and row.count == 12 for row in activity.synchronizations)


@pytest.mark.parametrize("name", ["hidden_sync", "slow_loader"])
def test_idle_time_after_waits_is_the_cause_synchronization(name: str):
    """Each idle nanosecond has one cause: what a wait's gap passed in cudaFree, a copy or the loader is not the wait's."""
    profile, trace = profiled(name)
    cause = next(row for row in idle_causes(profile) if row.cause == "synchronization")
    activity = profile.timeline.activity
    assert activity.synchronization_idle_ns == cause.idle_ns == sum(row.idle_ns for row in activity.synchronizations)
    rows = csv.DictReader(io.StringIO(tables(profile, trace)["syncs.csv"]))
    assert sum(int(row["idle_ns"]) for row in rows) == cause.idle_ns
    for finding in profile.findings:
        if finding.rule == "synchronisation":
            assert finding.estimated_gain_pct == pytest.approx(cause.call_pct)
    gains = [row.estimated_gain_pct for row in profile.findings
             if row.rule in ("synchronisation", "launch_gaps", "allocator_gaps", "data_loader_stall")]
    assert len(gains) >= 2 and sum(gains) <= profile.timeline.idle_share_pct


def test_work_that_began_before_its_call_returned_has_no_latency():
    """As docs/timeline.md has it; and the column holds the flow's own figures."""
    profile, trace = profiled("hidden_sync")
    rows = list(csv.DictReader(io.StringIO(tables(profile, trace)["launches.csv"])))
    early = [row for row in rows if int(row["start_ns"]) < int(row["call_start_ns"]) + int(row["call_ns"])]
    assert early and all(row["latency_ns"] == "0" for row in early) and all(int(row["latency_ns"]) >= 0 for row in rows)


def test_eager_launches_of_gpt2_bind_and_compiled_ones_do_not_as_much():
    eager, compiled = causes("gpt2"), causes("gpt2-inductor")
    assert next(iter(eager)) == "host_bound" and eager["host_bound"][1].startswith("gpt2.py:")
    assert compiled.get("host_bound", (0.0, None))[0] < eager["host_bound"][0] + 20
    report = render_nsys_report(profiled("gpt2")[0])
    assert "Launch-bound: no" in report  # the call takes 5.1 ms without a profiler, 4.7 ms of it device time: recording made the gaps
    assert "## Device busy: 92.3% of a call, 53.3% while recorded" in report


def test_two_streams_are_seen_and_that_they_do_not_overlap():
    profile, _trace = profiled("two_streams")
    device = profile.flow.devices[0]
    assert device.stream_count == 2 and device.overlaps.compute_compute_ns < 0.01 * device.busy_ns
    assert causes("two_streams")["host_bound"][1] in ("two_streams.py:24", "two_streams.py:27")
    assert "Several streams have work, but it hardly ever runs at once" in render_nsys_report(profile)


@pytest.mark.parametrize("name", NAMES)
def test_tables(name: str):
    profile, trace = profiled(name)
    made = {file: list(csv.DictReader(io.StringIO(text))) for file, text in tables(profile, trace).items()}
    assert sum(int(row["total_ns"]) for row in made["kernels.csv"]) == profile.timeline.measured_ns
    assert len(made["launches.csv"]) == profile.timeline.kernels_total
    assert sum(int(row["duration_ns"]) for row in made["launches.csv"]) == profile.timeline.measured_ns
    owned = [row for row in made["launches.csv"] if row["operator"]]
    assert len(owned) == sum(len(operator.kernels) for operator in profile.operators)
    assert sum(int(row["duration_ns"]) for row in made["gaps.csv"] if row["scope"] == "device") <= profile.timeline.gap_total_ns
    assert sum(int(row["count"]) for row in made["api_calls.csv"]) > 0 and made["streams.csv"] and made["iterations.csv"]
    if profile.structure.comparison is not None:
        steps = {int(row["index"]): int(row["device_ns"]) for row in made["iterations.csv"]}
        compared, rows = profile.structure.comparison, made["iteration_differences.csv"]
        assert len(rows) == len(compared.differences)
        assert all((row["step_a"], row["step_b"]) == (str(compared.a), str(compared.b)) for row in rows)
        if compared.aligned:  # launches that took equally long are left out, all others are told
            changed = sum(int(row["b_ns"]) - int(row["a_ns"]) for row in rows)
            assert changed == steps[compared.b] - steps[compared.a]


@pytest.mark.parametrize("name", WITH_STATS)
def test_kernels_of_the_table_are_those_of_nsys(name: str):
    """nsys counts the thrown-away call and the step with markers too: never less than ours, and the same names."""
    ours = {row["name"]: row for row in csv.DictReader(io.StringIO(tables(*profiled(name))["kernels.csv"])) if row["category"] == "kernel"}
    theirs = {row["Name"]: row for row in stats(name, "stats_cuda_gpu_kern_sum")}
    assert ours and set(ours) <= set(theirs)
    for kernel, row in ours.items():
        assert int(row["count"]) <= int(theirs[kernel]["Instances"])
        assert int(theirs[kernel]["Min (ns)"]) <= int(row["min_ns"]) and int(row["max_ns"]) <= int(theirs[kernel]["Max (ns)"])


def test_all_artifacts_are_written_and_equal_runs_give_equal_bytes(tmp_path: Path):
    profile, trace = profiled("two_streams")
    for place in ("one", "two"):
        paths = write_nsys_profile(profile, trace, tmp_path / place, params_doc={"mode": "nsys"})
    assert set(paths) == {"profile", "report", "contract", "params", "timeline", "perfetto", "csv"}
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file())
    assert {"timeline.html", "trace.perfetto.gz", "concurrency.svg", "concurrency.png", "gaps.svg", "gaps.png", "report.md"} <= {
        str(file) for file in files}
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file
    report = (tmp_path / "one" / "report.md").read_text()
    assert all(name in report for name in ("csv/", "timeline.html", "trace.perfetto.gz", "concurrency.svg", "gaps.svg"))
    assert "Nsight Systems 2025.3.2" in report and "n/a: the recording" not in report


def test_names_that_are_hostile_or_long_stay_inside_the_limit(tmp_path: Path):
    profile, _trace = profiled("hidden_sync")
    evil = "x|y`z](http://a)<b>\n# h " * 20
    stages = tuple(stage.model_copy(update={"name": f"{evil}{place}", "source": evil}) for place, stage in enumerate(profile.stages))
    activity = profile.timeline.activity.model_copy(update={"synchronizations": tuple(
        row.model_copy(update={"where": evil, "operators": (evil,)}) for row in profile.timeline.activity.synchronizations)})
    sites = tuple(site.model_copy(update={"where": evil, "operator": evil}) for site in profile.flow.sites)
    findings = tuple(finding.model_copy(update={"where": evil, "detail": evil}) for finding in profile.findings)
    changed = profile.model_copy(update={
        "stages": stages, "findings": findings, "warnings": tuple(f"{evil}{number}" for number in range(30)),
        "flow": profile.flow.model_copy(update={"sites": sites}),
        "timeline": profile.timeline.model_copy(update={"activity": activity}),
        "capture_metadata": profile.capture_metadata.model_copy(update={"model_name": evil, "device_name": evil})})
    report = render_nsys_report(changed, ["csv/"])
    assert token_count(report) <= 1500 and "](http" not in report and "<b>" not in report.replace("\\<b>", "")
    assert [line for line in report.splitlines() if line.startswith("# ")] == [report.splitlines()[0]]
    assert len(ROOMS) > 3


@pytest.mark.parametrize(("name", "function"), [
    ("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, std::array<char*, 2ul> >(int, T2)",
     "vectorized_elementwise_kernel"),
    ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>(int, T2)", "vectorized_layer_norm_kernel"),
    ("void at::native::<unnamed>::vectorized_layer_norm_kernel<float, float, (bool)0>(int, T2)", "vectorized_layer_norm_kernel"),
    ("sm80_xmma_gemm_f32f32", "sm80_xmma_gemm_f32f32"), ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
    ("Memcpy HtoD (Pageable -> Device)", "HtoD"), ("<<<(", "<<<("), ("", ""),
])
def test_a_kernel_s_function(name: str, function: str):
    assert function_name(name) == function
