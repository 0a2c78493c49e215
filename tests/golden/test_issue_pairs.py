"""The pairs of tests/gpu/pairs as recorded on an H200 (tests/gpu/record_pairs.py): each issue's rule fires on the one, with the
line and the figures that the files themselves show, and stays silent on the other."""

from __future__ import annotations

import ast
import gzip
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from archives import unpack
from kernelwright.model.activity import Activity
from kernelwright.model.capture import ProbeResult
from kernelwright.model.profile import ClockReading, Finding, Profile
from kernelwright.model.workload import WorkloadRef
from kernelwright.pipeline.assemble import Run, assemble

ROOT = Path(__file__).resolve().parents[2]
PAIRS = ROOT / "tests" / "gpu" / "pairs"
RECORDING = ROOT / "tests" / "data" / "pairs_h200.tar.xz"
RULES = {
    "kernel_bottleneck": ("kernel_bottleneck",), "launch_overhead": ("launch_gaps", "small_kernels"),
    "synchronisation": ("synchronisation",), "host_device_copies": ("host_device_copies",),
    "under_utilisation": ("few_blocks",), "one_stream": ("one_stream",),
    "data_loader": ("data_loader_stall",), "compilation": ("first_use_compilation",),
}
"""Pair -> the rules that are about it."""
CASES = [(issue, rule) for issue, rules in RULES.items() for rule in rules]


class Recorded:
    """The captures of the archive, each analysed once."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._profiles: dict[str, Profile] = {}
        unpack(RECORDING, place)

    def names(self) -> list[str]:
        return sorted(folder.name for folder in self.place.iterdir())

    def result(self, name: str) -> ProbeResult:
        return ProbeResult.model_validate_json((self.place / name / "result.json").read_bytes())

    def profile(self, name: str) -> Profile:
        if name not in self._profiles:
            issue, result = name.rpartition("_")[0], self.result(name)
            workload = WorkloadRef(path=PAIRS / f"{issue}.py", name=issue)
            self._profiles[name] = assemble(Run(
                workload=workload, mode="annotation", raw=self.place / name, result=result, peaks=self._peaks(),
                clocks=ClockReading(requested="none", locked=False), compile_mode="eager", device_name=None, version="golden"))
        return self._profiles[name]

    def _peaks(self) -> Any:
        """One pair measures the device's peaks for all."""
        return self.result("kernel_bottleneck_shows").peaks

    def activity(self, name: str) -> Activity:
        timeline = self.profile(name).timeline
        assert timeline is not None and timeline.activity is not None
        return timeline.activity

    def finding(self, name: str, rule: str) -> Finding | None:
        return next((finding for finding in self.profile(name).findings if finding.rule == rule), None)

    def events(self, name: str, chosen: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """Events inside the steps, read without any of our code. Device work counts when it starts before the last step's work ends."""
        document = json.loads(gzip.decompress((self.place / name / "trace.json.gz").read_bytes()))
        events = [event for event in document["traceEvents"] if event.get("ph") == "X"]
        steps = [event for event in events if event["name"] == "kernelwright.step" and event["cat"] == "user_annotation"]
        calls = {event["args"]["correlation"]: event["ts"] for event in events if event["cat"] in ("cuda_runtime", "cuda_driver")
                 and "correlation" in event["args"]}
        return [event for event in events if chosen(event) and any(
            step["ts"] <= (calls.get(event["args"].get("correlation"), event["ts"]) if event["cat"].startswith(("kernel", "gpu_"))
                           else event["ts"]) < step["ts"] + step["dur"] for step in steps)]

    def line(self, name: str, marker: str) -> str:
        """Where the marked line is: itself where the recording has exact lines, else the beginning of its function."""
        issue = name.rpartition("_")[0]
        text = (PAIRS / f"{issue}.py").read_text()
        number = next(index for index, line in enumerate(text.splitlines(), 1) if line.endswith(f"# <- {marker}"))
        if not getattr(self.result(name), "lines_file", None):
            around = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)
                      and node.lineno <= number <= (node.end_lineno or 0)]
            number = max(around, key=lambda node: node.lineno).lineno
        return f"{issue}.py:{number}"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded(tmp_path_factory.mktemp("pairs"))


def duration_ns(events: Iterable[dict[str, Any]]) -> int:
    return round(sum(event["dur"] for event in events) * 1000)


def ends(finding: Finding | None, where: str) -> bool:
    return finding is not None and finding.where is not None and finding.where.endswith(where)


def test_every_pair_is_recorded_and_has_rules(recorded: Recorded) -> None:
    assert {path.stem for path in PAIRS.glob("*.py")} == set(RULES)
    assert {f"{issue}_{version}" for issue in RULES for version in ("shows", "clean")} <= set(recorded.names())
    assert {recorded.result(name).status for name in recorded.names()} == {"ok"}
    assert RECORDING.stat().st_size < 1_500_000


@pytest.mark.parametrize(("issue", "rule"), CASES)
def test_fires_on_the_one_and_is_silent_on_the_other(recorded: Recorded, issue: str, rule: str) -> None:
    finding = recorded.finding(f"{issue}_shows", rule)
    assert finding is not None and finding.hint and "=" in finding.trigger and finding.estimated_gain_pct > 0
    assert recorded.finding(f"{issue}_clean", rule) is None


@pytest.mark.parametrize(("issue", "rule"), [case for case in CASES if case[0] != "synchronisation"])
def test_names_the_line(recorded: Recorded, issue: str, rule: str) -> None:
    name = f"{issue}_shows"
    marker = "pageable" if issue == "host_device_copies" else "here"
    assert ends(recorded.finding(name, rule), recorded.line(name, marker)), recorded.finding(name, rule)


def test_synchronisations_by_line_with_the_waits_that_the_file_shows(recorded: Recorded) -> None:
    name = "synchronisation_shows"
    calls = recorded.events(name, lambda event: event["cat"] == "cuda_runtime" and event["name"].endswith("Synchronize"))
    activity = recorded.activity(name)
    assert (activity.synchronization_count, activity.synchronization_wait_ns) == (len(calls), duration_ns(calls)) and len(calls) >= 8
    lines = {row.where.split("/")[-1] for row in activity.synchronizations if row.where}
    expected = {recorded.line(name, marker) for marker in ("item", "cpu", "mask", "synchronize")}
    assert lines == expected
    finding = recorded.finding(name, "synchronisation")
    assert finding is not None and finding.where is not None and finding.where.split("/")[-1] in expected
    assert recorded.activity("synchronisation_clean").synchronization_count == 0


@pytest.mark.parametrize(("version", "memory"), [("shows", "pageable"), ("pinned", "pinned")])
def test_copies_with_their_size_memory_and_bandwidth(recorded: Recorded, version: str, memory: str) -> None:
    name = f"host_device_copies_{version}"
    copies = recorded.events(name, lambda event: event["name"].startswith("Memcpy HtoD"))
    size, duration = sum(event["args"]["bytes"] for event in copies), duration_ns(copies)
    rows = [row for row in recorded.activity(name).host_copies if row.direction == "HtoD"]
    assert {row.memory for row in rows} == {memory}
    assert (sum(row.bytes or 0 for row in rows), sum(row.duration_ns for row in rows)) == (size, duration)
    assert size == 2 * 4096 * 4096 * 4
    finding = recorded.finding(name, "host_device_copies")
    assert ends(finding, recorded.line(name, memory)) and finding is not None
    assert f"{size / duration:.3g} GB/s" in finding.detail and f"{memory} memory" in finding.detail
    assert recorded.activity("host_device_copies_clean").host_copies == ()


def test_few_blocks_are_those_of_the_grids(recorded: Recorded) -> None:
    few = recorded.events("under_utilisation_shows", lambda event: event["cat"] == "kernel" and event["args"]["grid"] == [8, 1, 1])
    finding, timing = recorded.finding("under_utilisation_shows", "few_blocks"), recorded.profile("under_utilisation_shows").timing
    assert len(few) == 2 * 64 and finding is not None and timing is not None and "8 blocks on average, for 132" in finding.detail
    share = min(100 * duration_ns(few) / (2 * timing.median_ns), 100)
    assert finding.estimated_gain_pct == pytest.approx(share * (1 - 8 / 132), rel=1e-6)


def test_launch_overhead_counts_the_small_kernels(recorded: Recorded) -> None:
    small = recorded.events("launch_overhead_shows", lambda event: event["cat"] == "kernel" and event["dur"] < 5)
    finding = recorded.finding("launch_overhead_shows", "small_kernels")
    assert finding is not None and finding.trigger == f"kernels_below_5us={len(small) / 2:.0f}" and len(small) >= 2 * 190


def test_attention_written_out_is_told_to_use_the_fused_one(recorded: Recorded) -> None:
    finding = recorded.finding("kernel_bottleneck_shows", "kernel_bottleneck")
    assert finding is not None and finding.trigger.startswith("unfused_attention_share=")
    assert "scaled_dot_product_attention(" in finding.hint


def test_copies_that_could_overlap_are_counted_and_a_side_stream_is_seen(recorded: Recorded) -> None:
    overlap = recorded.activity("one_stream_shows").overlap
    copies = recorded.events("one_stream_shows", lambda event: event["name"].startswith("Memcpy HtoD"))
    assert overlap is not None and (overlap.copies, overlap.copy_ns) == (len(copies), duration_ns(copies)) and len(copies) == 2 * 4
    assert recorded.activity("one_stream_clean").overlap is None and recorded.activity("one_stream_clean").streams == 2


def test_nothing_overlaps_in_a_plain_chain(recorded: Recorded) -> None:
    fired = [name for name in recorded.names() if recorded.finding(name, "one_stream")]
    assert fired == ["one_stream_shows"]


def test_gains_agree_with_what_the_change_brought(recorded: Recorded) -> None:
    """The clean version is the change that the hint asks for, so the two timings say what it really saved."""
    for issue, rule, below, above in (("one_stream", "one_stream", 1.0, 1.0), ("host_device_copies", "host_device_copies", 1.0, 2.0),
                                      ("kernel_bottleneck", "kernel_bottleneck", 2.0, 5.0)):
        finding = recorded.finding(f"{issue}_shows", rule)
        before, after = (recorded.profile(f"{issue}_{version}").timing for version in ("shows", "clean"))
        assert finding is not None and before is not None and after is not None
        saved_pct = 100 * (1 - after.median_ns / before.median_ns)
        assert saved_pct - below <= finding.estimated_gain_pct <= saved_pct + above, (issue, saved_pct, finding.estimated_gain_pct)


def test_data_loading_takes_what_its_range_shows(recorded: Recorded) -> None:
    ranges = recorded.events("data_loader_shows", lambda event: event["cat"] == "user_annotation" and event["name"].endswith(".__next__"))
    activity = recorded.activity("data_loader_shows")
    assert activity.data_loader_wait_ns == duration_ns(ranges) >= 2 * 5_000_000 and len(ranges) == 2
    assert 0 < activity.data_loader_idle_ns <= activity.data_loader_wait_ns
    assert recorded.finding("data_loader_shows", "launch_gaps") is None, "the loader explains the gap"


def test_compilation_is_most_of_such_a_step(recorded: Recorded) -> None:
    activity, timeline = recorded.activity("compilation_shows"), recorded.profile("compilation_shows").timeline
    assert timeline is not None and activity.compile_ns > 0.5 * sum(timeline.step_wall_ns)
    assert recorded.activity("compilation_clean").compile_ns == 0


def test_a_broken_recording_with_stacks_costs_lines_and_not_the_profile(tmp_path: Path) -> None:
    copy = Recorded(tmp_path)
    name = "synchronisation_shows"
    file = copy.result(name).stacks_file
    assert file is not None
    (tmp_path / name / file).write_bytes(gzip.compress(b'{"traceEvents": [{"name": "validator.py(0): """}]}'))
    profile = copy.profile(name)
    assert any(f"lines are not known: {file}" in line for line in profile.warnings)
    assert (found := copy.finding(name, "synchronisation")) is not None and found.where is None
